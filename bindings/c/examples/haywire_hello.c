/* A program in the manner of Haywire's sample: a page for each request that says hello. New programs should use highwire.h.
 *
 *     cc haywire_hello.c $(pkg-config --cflags --libs highwire) -o haywire_hello && ./haywire_hello 8000
 */
#include <haywire.h>
#include <stdlib.h>

static void complete(void* user_data) { (void)user_data; }

static void hello(http_request* request, hw_http_response* response, void* user_data) {
    hw_string status, name, value, body, close_name, close_value;
    (void)user_data;
    SETSTRING(status, HTTP_STATUS_200);
    hw_set_response_status_code(response, &status);
    SETSTRING(name, "Content-Type");
    SETSTRING(value, "text/html");
    hw_set_response_header(response, &name, &value);
    SETSTRING(body, "hello world");
    hw_set_body(response, &body);
    SETSTRING(close_name, "Connection");
    if (request->keep_alive) {
        SETSTRING(close_value, "Keep-Alive");
    } else {
        hw_set_http_version(response, 1, 0);
        SETSTRING(close_value, "close");
    }
    hw_set_response_header(response, &close_name, &close_value);
    hw_http_response_send(response, NULL, complete);
}

int main(int argc, char** argv) {
    static char address[] = "127.0.0.1", route[] = "/", other_route[] = "/hello", balancer[] = "reuseport", parser[] = "http_parser";
    configuration config;
    config.http_listen_address = address;
    config.http_listen_port = argc > 1 ? (unsigned)atoi(argv[1]) : 8000;
    config.thread_count = argc > 2 ? (unsigned)atoi(argv[2]) : 1;
    config.balancer = balancer;
    config.parser = parser;
    config.tcp_nodelay = true;
    config.listen_backlog = 0;
    config.max_request_size = 1048576;
    hw_init_with_config(&config);
    hw_http_add_route(route, hello, NULL);
    hw_http_add_route(other_route, hello, NULL);
    return hw_http_open();
}
