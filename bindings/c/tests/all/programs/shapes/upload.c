/* An upload of any length, as people write it with httpserver.h: the body in chunks, a value of the request that counts them, and
 * a stop by a signal. Run it with a port. */
#define HTTP_MAX_REQUEST_BUF_SIZE 65536
#define HTTPSERVER_IMPL
#include "httpserver.h"

struct upload {
    long bytes;
    unsigned sum;
};

static void next_chunk(struct http_request_s *request) {
    struct http_string_s chunk = http_request_chunk(request);
    struct upload *upload = (struct upload *)http_request_userdata(request);
    struct http_response_s *response;
    char text[64];
    int at;
    if (chunk.len > 0) {
        for (at = 0; at < chunk.len; at++)
            upload->sum = upload->sum * 31 + (unsigned char)chunk.buf[at];
        upload->bytes += chunk.len;
        http_request_read_chunk(request, next_chunk);
        return;
    }
    snprintf(text, sizeof text, "%ld bytes, sum %u", upload->bytes, upload->sum);
    free(upload);
    response = http_response_init();
    http_response_status(response, 200);
    http_response_body(response, text, (int)strlen(text));
    http_respond(request, response);
}

static void handle(struct http_request_s *request) {
    struct upload *upload = (struct upload *)calloc(1, sizeof *upload);
    http_request_set_userdata(request, upload);
    if (http_request_has_flag(request, HTTP_FLG_STREAMED)) {
        http_request_read_chunk(request, next_chunk);
        return;
    } else {
        struct http_string_s body = http_request_body(request);
        char text[64];
        struct http_response_s *response = http_response_init();
        snprintf(text, sizeof text, "%d bytes at once", body.len);
        free(upload);
        http_response_body(response, text, (int)strlen(text));
        http_respond(request, response);
    }
}

static void stop(int number) {
    (void)number;
    _exit(0);
}

int main(int argc, char **argv) {
    struct http_server_s *server;
    signal(SIGTERM, stop);
    server = http_server_init(argc > 1 ? atoi(argv[1]) : 8080, handle);
    return http_server_listen_addr(server, "127.0.0.1");
}
