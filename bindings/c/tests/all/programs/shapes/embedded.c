/* A server in the loop of another program, as people write it with httpserver.h: a simulation that goes on between the requests,
 * and a response in chunks while it does. Run it with a port. */
#include <poll.h>
#define HTTPSERVER_IMPL
#include "httpserver.h"

static int ticks;
static struct http_request_s *watcher;
static int sent;
static int may_send;

static void part_sent(struct http_request_s *request) {
    (void)request;
    may_send = 1;
}

static void answer(struct http_request_s *request) {
    char text[64];
    struct http_response_s *response = http_response_init();
    if (http_request_target(request).len == 6 && watcher == NULL) { /* /watch */
        http_response_header(response, "Content-Type", "text/plain");
        http_response_body(response, "begin\n", 6);
        watcher = request;
        sent = 0;
        may_send = 0;
        http_respond_chunk(request, response, part_sent);
        return;
    }
    snprintf(text, sizeof text, "%s", ticks > 0 ? "it runs" : "it waits");
    http_response_body(response, text, (int)strlen(text));
    http_respond(request, response);
}

static void simulate(void) {
    ticks++;
    if (watcher != NULL && may_send) {
        char line[32];
        struct http_response_s *response = http_response_init();
        may_send = 0;
        if (sent == 5) {
            http_respond_chunk_end(watcher, response);
            watcher = NULL;
            return;
        }
        snprintf(line, sizeof line, "part %d\n", ++sent);
        http_response_body(response, line, (int)strlen(line));
        http_respond_chunk(watcher, response, part_sent);
    }
}

int main(int argc, char **argv) {
    struct http_server_s *server = http_server_init(argc > 1 ? atoi(argv[1]) : 8080, answer);
    struct pollfd ready;
    if (http_server_listen_addr_poll(server, "127.0.0.1") != 0)
        return 1;
    ready.fd = http_server_loop(server);
    ready.events = POLLIN;
    for (;;) {
        poll(&ready, 1, 5);
        while (http_server_poll(server) > 0)
            ;
        simulate();
    }
}
