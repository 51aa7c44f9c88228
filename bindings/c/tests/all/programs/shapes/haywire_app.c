/* An application for Haywire, as people write it: a configuration in a struct, routes with a value, headers that are read, and a
 * response whose memory the callback frees. Run it with a port. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "haywire.h"

#define CRLF "\r\n"

struct counter {
    int hits;
};

static void response_complete(void *user_data) {
    free(user_data);
}

static void respond(http_request *request, hw_http_response *response, const char *status, const char *type, char *text) {
    hw_string status_code, name, value, body;
    status_code.value = (char *)status;
    status_code.length = strlen(status);
    hw_set_response_status_code(response, &status_code);
    SETSTRING(name, "Content-Type");
    value.value = (char *)type;
    value.length = strlen(type);
    hw_set_response_header(response, &name, &value);
    body.value = text;
    body.length = strlen(text);
    hw_set_body(response, &body);
    if (request->keep_alive) {
        SETSTRING(name, "Connection");
        SETSTRING(value, "Keep-Alive");
        hw_set_response_header(response, &name, &value);
    } else
        hw_set_http_version(response, 1, 0);
    hw_http_response_send(response, text, response_complete);
}

static void get_root(http_request *request, hw_http_response *response, void *user_data) {
    char *text = (char *)malloc(64);
    struct counter *counter = (struct counter *)user_data;
    if (text == NULL)
        abort();
    snprintf(text, 64, "hit %d", ++counter->hits);
    respond(request, response, HTTP_STATUS_200, "text/html", text);
}

static void get_agent(http_request *request, hw_http_response *response, void *user_data) {
    char *text = (char *)malloc(256);
    hw_string key, *agent;
    (void)user_data;
    if (text == NULL)
        abort();
    SETSTRING(key, "user-agent");
    agent = (hw_string *)hw_get_header(request, &key);
    snprintf(text, 256, "%.*s%s", agent != NULL ? (int)agent->length : 4, agent != NULL ? agent->value : "none", CRLF);
    respond(request, response, agent != NULL ? HTTP_STATUS_200 : HTTP_STATUS_404, "text/plain", text);
}

static void post_echo(http_request *request, hw_http_response *response, void *user_data) {
    char *text = (char *)calloc(1, request->body_length + 1);
    (void)user_data;
    if (text == NULL)
        abort();
    if (request->method != HW_HTTP_POST) {
        respond(request, response, HTTP_STATUS_405, "text/plain", text);
        return;
    }
    memcpy(text, request->body->value, request->body_length);
    respond(request, response, HTTP_STATUS_200, "text/plain", text);
}

int main(int argc, char **argv) {
    static struct counter counter;
    char root[] = "/", agent[] = "/agent", echo[] = "/echo/*", address[] = "127.0.0.1", parser[] = "http_parser";
    configuration config;
    memset(&config, 0, sizeof config);
    config.http_listen_address = address;
    config.http_listen_port = (unsigned int)(argc > 1 ? atoi(argv[1]) : 8000);
    config.thread_count = 0;
    config.parser = parser;
    config.tcp_nodelay = true;
    config.listen_backlog = 128;
    config.max_request_size = 1048576;
    if (hw_init_with_config(&config) != 0)
        return 1;
    hw_http_add_route(root, get_root, &counter);
    hw_http_add_route(agent, get_agent, NULL);
    hw_http_add_route(echo, post_echo, NULL);
    return hw_http_open();
}
