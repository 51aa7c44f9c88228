/* A static site, as people write it with httpserver.h: the whole file in memory, and a table of media types. Run it with a port
 * and a folder. */
#define HTTPSERVER_IMPL
#include "httpserver.h"

static const char *folder;

static const char *media_type(const char *path) {
    const char *dot = strrchr(path, '.');
    if (dot == NULL)
        return "application/octet-stream";
    if (strcmp(dot, ".html") == 0)
        return "text/html";
    if (strcmp(dot, ".css") == 0)
        return "text/css";
    return "text/plain";
}

static void not_found(struct http_request_s *request) {
    struct http_response_s *response = http_response_init();
    http_response_status(response, 404);
    http_response_header(response, "Content-Type", "text/plain");
    http_response_body(response, "no such file", (int)strlen("no such file"));
    http_respond(request, response);
}

static void handle_request(struct http_request_s *request) {
    struct http_string_s method = http_request_method(request), target = http_request_target(request);
    struct http_response_s *response;
    char path[512], *data;
    FILE *file;
    long size;
    if (method.len != 3 || strncmp(method.buf, "GET", 3) != 0 || target.len > 200) {
        not_found(request);
        return;
    }
    snprintf(path, sizeof path, "%s%.*s%s", folder, target.len, target.buf,
             target.buf[target.len - 1] == '/' ? "index.html" : "");
    if (strstr(path, "..") != NULL || (file = fopen(path, "rb")) == NULL) {
        not_found(request);
        return;
    }
    fseek(file, 0, SEEK_END);
    size = ftell(file);
    rewind(file);
    data = (char *)malloc((size_t)size + 1);
    if (data == NULL || fread(data, 1, (size_t)size, file) != (size_t)size)
        abort();
    fclose(file);
    response = http_response_init();
    http_response_status(response, 200);
    http_response_header(response, "Content-Type", media_type(path));
    http_response_body(response, data, (int)size);
    http_respond(request, response);
    free(data);
}

int main(int argc, char **argv) {
    struct http_server_s *server = http_server_init(argc > 1 ? atoi(argv[1]) : 8080, handle_request);
    folder = argc > 2 ? argv[2] : ".";
    return http_server_listen_addr(server, "127.0.0.1");
}
