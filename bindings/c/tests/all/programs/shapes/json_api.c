/* A JSON API, as people write it with httpserver.h: a list in memory, and a body that is read like a C string. Run it with a
 * port. */
#define HTTPSERVER_IMPL
#include "httpserver.h"

#define REQUEST_TARGET(request, text) (strncmp(http_request_target(request).buf, text, strlen(text)) == 0)

struct item {
    int id, is_done;
    char title[64];
};
static struct item items[100];
static int count;

static void send_json(struct http_request_s *request, int status, const char *json) {
    struct http_response_s *response = http_response_init();
    http_response_status(response, status);
    http_response_header(response, "Content-Type", "application/json");
    http_response_header(response, "Access-Control-Allow-Origin", "*");
    http_response_body(response, json, (int)strlen(json));
    http_respond(request, response);
}

static void add(struct http_request_s *request) {
    struct http_string_s body = http_request_body(request);
    char json[200], *title, *end;
    /* The body has a NUL behind it. */
    if (body.buf == NULL || (title = strstr((char *)body.buf, "\"title\":\"")) == NULL || count == 100) {
        send_json(request, 400, "{\"error\":\"title is missing\"}");
        return;
    }
    title += strlen("\"title\":\"");
    end = strchr(title, '"');
    if (end == NULL || end - title >= 64) {
        send_json(request, 400, "{\"error\":\"title is too long\"}");
        return;
    }
    items[count].id = count + 1;
    memcpy(items[count].title, title, (size_t)(end - title));
    snprintf(json, sizeof json, "{\"id\":%d,\"title\":\"%s\"}", items[count].id, items[count].title);
    count++;
    send_json(request, 201, json);
}

static void list(struct http_request_s *request) {
    char *json = (char *)calloc(1, 20000);
    int at;
    if (json == NULL)
        abort();
    strcat(json, "[");
    for (at = 0; at < count; at++) {
        char one[160];
        snprintf(one, sizeof one, "%s{\"id\":%d,\"title\":\"%s\",\"done\":%s}", at > 0 ? "," : "", items[at].id,
                 items[at].title, items[at].is_done ? "true" : "false");
        strcat(json, one);
    }
    strcat(json, "]");
    send_json(request, 200, json);
    free(json);
}

static void handle(struct http_request_s *request) {
    struct http_string_s method = http_request_method(request);
    if (REQUEST_TARGET(request, "/items/") && strncmp(method.buf, "PUT", (size_t)method.len) == 0) {
        int id = atoi(http_request_target(request).buf + strlen("/items/"));
        if (id < 1 || id > count) {
            send_json(request, 404, "{}");
            return;
        }
        items[id - 1].is_done = 1;
        send_json(request, 200, "{}");
    } else if (REQUEST_TARGET(request, "/items") && strncmp(method.buf, "POST", (size_t)method.len) == 0)
        add(request);
    else if (REQUEST_TARGET(request, "/items"))
        list(request);
    else
        send_json(request, 404, "{}");
}

int main(int argc, char **argv) {
    return http_server_listen_addr(http_server_init(argc > 1 ? atoi(argv[1]) : 8080, handle), "127.0.0.1");
}
