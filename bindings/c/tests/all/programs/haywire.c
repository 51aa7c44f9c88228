/* A program with Haywire's interface, for the tests: what its users rely on, and what crashed the original. */
#include <haywire.h>
#include <pthread.h>
#include <stdlib.h>

static int completed;

static void complete(void* user_data) {
    (void)user_data;
    __sync_fetch_and_add(&completed, 1);
}

static void send_text(hw_http_response* response, const char* text) {
    hw_string status, body;
    SETSTRING(status, HTTP_STATUS_200);
    body.value = (char*)text;
    body.length = strlen(text);
    hw_set_response_status_code(response, &status);
    hw_set_body(response, &body);
    hw_http_response_send(response, NULL, complete);
}

/* Answers with what it has got. */
static void show(http_request* request, hw_http_response* response, void* user_data) {
    char text[4096], key_text[] = "x-a";
    hw_string key, absent;
    hw_string* value;
    size_t used;
    hw_print_request_headers(request);
    hw_print_body(request);
    key.value = key_text;
    key.length = 3;
    value = hw_get_header(request, &key);
    SETSTRING(absent, "X-A"); /* Not in lower case. */
    used = (size_t)snprintf(text, sizeof text, "%s %u %u.%u %d %.*s x-a=%.*s X-A=%d %u %.*s", (const char*)user_data,
                            (unsigned)request->method, (unsigned)request->http_major, (unsigned)request->http_minor,
                            request->keep_alive, (int)request->url->length, request->url->value,
                            value ? (int)value->length : 4, value ? value->value : "none",
                            hw_get_header(request, &absent) != NULL, (unsigned)request->body_length,
                            (int)request->body->length, request->body->value ? request->body->value : "");
    if (used >= sizeof text || (int)request->state != 0)
        abort();
    send_text(response, text);
    /* The response is gone: these must do nothing. */
    hw_set_body(response, &key);
    hw_http_response_send(response, NULL, complete);
    hw_free_http_response(response);
}

/* More than 64 fields, and more than 512 bytes of them. */
static void many(http_request* request, hw_http_response* response, void* user_data) {
    char names[100][32], buffer[64] = "appended: ";
    hw_string status, name, value, body;
    int at;
    (void)request;
    (void)user_data;
    SETSTRING(status, HTTP_STATUS_404);
    hw_set_response_status_code(response, &status);
    SETSTRING(status, HTTP_STATUS_418);
    hw_set_response_status_code(response, &status);
    for (at = 0; at < 100; at++) {
        name.value = names[at];
        name.length = (size_t)snprintf(names[at], sizeof names[at], "X-Field-%d", at);
        SETSTRING(value, "a value of a certain length");
        hw_set_response_header(response, &name, &value);
    }
    SETSTRING(name, "X-Split");
    SETSTRING(value, "a\r\nX-Two: b");
    hw_set_response_header(response, &name, &value);
    body.value = buffer;
    body.length = strlen(buffer);
    APPENDSTRING(&body, "done");
    hw_set_body(response, &body);
    hw_http_response_send(response, NULL, NULL);
}

static hw_http_response* waiting;

/* The next request answers the first one: same thread, after its handler has returned. */
static void later(http_request* request, hw_http_response* response, void* user_data) {
    (void)request;
    (void)user_data;
    if (waiting == NULL) {
        waiting = response;
        return;
    }
    send_text(waiting, "later");
    waiting = NULL;
    send_text(response, "now");
}

/* Sends a response that its handler may have begun, on another thread. */
static void* send_from_thread(void* response) {
    hw_string name, value;
    SETSTRING(name, "X-Thread");
    SETSTRING(value, "yes");
    hw_set_response_header((hw_http_response*)response, &name, &value);
    send_text((hw_http_response*)response, "from a thread");
    return NULL;
}

/* The handler waits for the thread, so the response is always sent before the handler returns. */
static void joined(http_request* request, hw_http_response* response, void* user_data) {
    pthread_t thread;
    hw_string name, value;
    (void)request;
    (void)user_data;
    SETSTRING(name, "X-Handler");
    SETSTRING(value, "yes");
    hw_set_response_header(response, &name, &value);
    if (pthread_create(&thread, NULL, send_from_thread, response) == 0)
        pthread_join(thread, NULL);
}

/* The response is sent before or after the handler returns. */
static void raced(http_request* request, hw_http_response* response, void* user_data) {
    pthread_t thread;
    (void)request;
    (void)user_data;
    if (pthread_create(&thread, NULL, send_from_thread, response) == 0)
        pthread_detach(thread);
}

static void moved(http_request* request, hw_http_response* response, void* user_data) {
    hw_string status, name, value;
    (void)request;
    (void)user_data;
    SETSTRING(status, HTTP_STATUS_302);
    hw_set_response_status_code(response, &status);
    SETSTRING(name, "Location");
    SETSTRING(value, "/elsewhere");
    hw_set_response_header(response, &name, &value);
    hw_http_response_send(response, NULL, NULL);
}

static void freed(http_request* request, hw_http_response* response, void* user_data) {
    (void)request;
    (void)user_data;
    hw_free_http_response(response);
}

static void stop(http_request* request, hw_http_response* response, void* user_data) {
    (void)request;
    (void)response;
    (void)user_data;
    fprintf(stderr, "completed %d\n", completed);
    exit(0); /* hw_http_open has no end. */
}

static void route(const char* path, http_request_callback callback, const char* name) {
    hw_http_add_route((char*)path, callback, (void*)name);
}

int main(int argc, char** argv) {
    char missing[] = "/nowhere/at/all";
    if (argc < 2 || hw_init_from_config(missing) != 1 || hw_init_from_config(argv[1]) != 0)
        return 2;
    if (HW_HTTP_DELETE != 0 || HW_HTTP_MSEARCH != 20 || HW_HTTP_PATCH != 24 || HW_HTTP_PURGE != 25)
        return 3;
    route("/w/*", show, "wildcard");
    route("/w/x", show, "replaced");
    route("/w/x", show, "exact");
    route("/", show, "root");
    route("/many", many, "");
    route("/later", later, "");
    route("/moved", moved, "");
    route("/joined", joined, "");
    route("/raced", raced, "");
    route("/freed", freed, "");
    route("/stop", stop, "");
    /* Older programs pass a number of threads. */
    return argc > 2 ? hw_http_open(atoi(argv[2])) : hw_http_open();
}
