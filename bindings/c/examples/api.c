/* An API: numbers and lists in a query, a hook that knows the user, one that marks answers, errors in JSON, a form with files.
 *
 *     cc api.c $(pkg-config --cflags --libs highwire) -o api && ./api 127.0.0.1:8080
 *     curl -H 'Authorization: Bearer ada' 'http://127.0.0.1:8080/orders/7?limit=2&tag=new&tag=paid'
 *     curl -H 'Authorization: Bearer ada' -F note=hello -F photo=@api.c http://127.0.0.1:8080/photos
 */
#include <highwire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void text(highwire_request request, uint32_t status, const char *what) {
    highwire_respond(request, status, "text/plain; charset=utf-8", what, strlen(what));
}

/* Is called before each handler. What it keeps is freed with the request. */
static void sign_in(highwire_request request, void *data) {
    highwire_string field;
    char *user;
    (void)data;
    if (highwire_request_header(request, "Authorization", &field) != HIGHWIRE_OK || field.length < 8 ||
        memcmp(field.data, "Bearer ", 7) != 0) {
        text(request, 401, "please send Authorization: Bearer NAME\n");
        return;
    }
    user = (char *)calloc(1, field.length - 6);
    if (user == NULL) {
        text(request, 503, "out of memory\n");
        return;
    }
    memcpy(user, field.data + 7, field.length - 7);
    highwire_request_set_data(request, user, free);
}

/* Is called with each answer. */
static void mark(highwire_request request, highwire_response response, void *data) {
    void *user = NULL;
    (void)data;
    if (highwire_request_data(request, &user) == HIGHWIRE_OK)
        highwire_response_set_header(response, "Cache-Control", "private");
}

/* Makes the answers to errors outside of handlers. */
static void on_error(uint32_t status, const char *reason, highwire_response response, void *data) {
    char body[64];
    int length = snprintf(body, sizeof body, "{\"status\":%u}\n", (unsigned)status);
    (void)reason, (void)data;
    highwire_response_set_header(response, "Content-Type", "application/problem+json");
    highwire_response_body(response, body, (size_t)length);
}

/* Adds each `tag` of the query. */
static int32_t add_tag(highwire_string name, highwire_string value, void *data) {
    char *out = (char *)data;
    size_t used = strlen(out);
    if (name.length == 3 && memcmp(name.data, "tag", 3) == 0)
        snprintf(out + used, 512 - used, " #%.*s", (int)value.length, value.data);
    return 0;
}

static void order(highwire_request request, void *data) {
    int64_t id, limit = 10;
    enum highwire_result result;
    void *user = NULL;
    char out[512];
    (void)data;
    if (highwire_request_param_int(request, "id", &id) != HIGHWIRE_OK) {
        text(request, 400, "the number of an order is a number\n");
        return;
    }
    result = highwire_request_query_int(request, "limit", &limit);
    if (result != HIGHWIRE_OK && result != HIGHWIRE_NOT_FOUND) {
        text(request, 400, highwire_last_error());
        return;
    }
    highwire_request_data(request, &user);
    snprintf(out, sizeof out, "order %lld of %s, at most %lld lines", (long long)id, (const char *)user, (long long)limit);
    highwire_request_each_query_param(request, add_tag, out);
    text(request, 200, out);
}

/* Counts the bytes of each field. A program that stores a file opens it under `safe_file_name`. */
static int32_t photo(highwire_request request, enum highwire_result result, const highwire_field *field, const void *part,
                     size_t length, void *data) {
    size_t *bytes = (size_t *)data;
    char out[64];
    (void)part;
    if (field != NULL) {
        if (field->file_name.data != NULL)
            *bytes += length;
        return 0;
    }
    if (result == HIGHWIRE_OK) {
        snprintf(out, sizeof out, "%zu bytes of photos\n", *bytes);
        text(request, 200, out);
    } else {
        text(request, 400, highwire_last_error());
    }
    free(bytes);
    return 0;
}

static void photos(highwire_request request, void *data) {
    size_t *bytes = (size_t *)calloc(1, sizeof *bytes);
    (void)data;
    if (bytes == NULL || highwire_request_multipart(request, photo, bytes) != HIGHWIRE_OK) {
        free(bytes);
        text(request, 415, "please send multipart/form-data\n");
    }
}

int main(int argc, char **argv) {
    highwire_app app;
    highwire_server server;
    if (highwire_app_new(&app) || highwire_app_set(app, HIGHWIRE_COMPRESS, 1) ||
        highwire_app_on_response(app, mark, NULL) || highwire_app_on_request(app, sign_in, NULL) ||
        highwire_app_on_error(app, on_error, NULL) ||
        highwire_app_route(app, "GET", "/orders/{id}", HIGHWIRE_BODY_NONE, order, NULL) ||
        highwire_app_route(app, "POST", "/photos", HIGHWIRE_BODY_PARTS, photos, NULL) ||
        highwire_server_new(app, &server) || highwire_server_listen(server, argc > 1 ? argv[1] : "127.0.0.1:8080")) {
        fprintf(stderr, "%s\n", highwire_last_error());
        return 1;
    }
    printf("http://%s\n", highwire_server_address(server, 0));
    fflush(stdout);
    if (highwire_server_run(server)) {
        fprintf(stderr, "%s\n", highwire_last_error());
        return 1;
    }
    highwire_server_free(server);
    return 0;
}
