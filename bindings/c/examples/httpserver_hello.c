/* A program in the manner of httpserver.h's sample. New programs should use highwire.h.
 *
 *     cc httpserver_hello.c $(pkg-config --cflags --libs highwire) -o httpserver_hello && ./httpserver_hello 8080
 */
#define HTTPSERVER_IMPL
#include <httpserver.h>
#include <stdlib.h>

#define RESPONSE "Hello, World!"

static void handle_request(struct http_request_s *request) {
    struct http_response_s *response = http_response_init();
    http_response_status(response, 200);
    http_response_header(response, "Content-Type", "text/plain");
    http_response_body(response, RESPONSE, sizeof(RESPONSE) - 1);
    http_respond(request, response);
}

int main(int argc, char **argv) {
    struct http_server_s *server = http_server_init(argc > 1 ? atoi(argv[1]) : 8080, handle_request);
    /* Without an address, http_server_listen listens on all of them. */
    return http_server_listen_addr(server, "127.0.0.1");
}
