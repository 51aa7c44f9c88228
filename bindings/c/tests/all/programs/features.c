/* A server for the tests: values, hooks, forms, certificates, and bodies in both directions at once. Compiled as C99 and as C++11.
 * The arguments are the engine and, for TLS, the files of two certificates with their keys and that of the clients' authority. */
#include <highwire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static highwire_server server;

static void expect(enum highwire_result got, enum highwire_result wanted, int line) {
    if (got != wanted) {
        fprintf(stderr, "line %d: %s, not %s: %s\n", line, highwire_result_name((int)got), highwire_result_name((int)wanted),
                highwire_last_error());
        abort();
    }
}
#define EXPECT(call, wanted) expect((call), (wanted), __LINE__)

struct out {
    char text[4096];
    size_t used;
};

static void add(struct out *out, const char *name, highwire_string value) {
    out->used += (size_t)snprintf(out->text + out->used, sizeof out->text - out->used, "%s=%.*s\n", name, (int)value.length,
                                  value.data ? value.data : "");
}

static int32_t add_pair(highwire_string name, highwire_string value, void *data) {
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)name.length, name.data);
    add((struct out *)data, text, value);
    return strcmp(text, "stop") == 0;
}

/* Numbers, and all values of a query and of a form. */
static void values(highwire_request request, void *data) {
    struct out out;
    int64_t number = 0, page = 0;
    (void)data;
    out.used = 0;
    EXPECT(highwire_request_param_int(request, "nothing", &number), HIGHWIRE_NOT_FOUND);
    EXPECT(highwire_request_param_int(request, "id", NULL), HIGHWIRE_NULL);
    if (highwire_request_param_int(request, "id", &number) != HIGHWIRE_OK) {
        highwire_respond(request, 400, "text/plain", highwire_last_error(), strlen(highwire_last_error()));
        return;
    }
    EXPECT(highwire_request_query_int(request, "page", &page), HIGHWIRE_OK);
    EXPECT(highwire_request_query_int(request, "tag", &page), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_request_each_query_param(request, NULL, NULL), HIGHWIRE_NULL);
    EXPECT(highwire_request_each_query_param(request, add_pair, &out), HIGHWIRE_OK);
    if (highwire_request_each_form_param(request, add_pair, &out) == HIGHWIRE_OK)
        EXPECT(highwire_request_form_int(request, "f", &page), HIGHWIRE_OK);
    out.used += (size_t)snprintf(out.text + out.used, sizeof out.text - out.used, "%lld", (long long)(number + page));
    EXPECT(highwire_respond(request, 200, "text/plain", out.text, out.used), HIGHWIRE_OK);
}

/* Fields that replace others. */
static void fields(highwire_request request, void *data) {
    highwire_response response;
    highwire_string value;
    uint32_t status;
    (void)data;
    EXPECT(highwire_response_new(200, &response), HIGHWIRE_OK);
    EXPECT(highwire_response_set_header(response, "x-first", "1"), HIGHWIRE_OK);
    EXPECT(highwire_response_header(response, "x-a", "1"), HIGHWIRE_OK);
    EXPECT(highwire_response_header(response, "x-a", "2"), HIGHWIRE_OK);
    EXPECT(highwire_response_header(response, "x-b", "1"), HIGHWIRE_OK);
    EXPECT(highwire_response_set_header(response, "X-A", "3"), HIGHWIRE_OK);
    EXPECT(highwire_response_set_header(response, "x-b", NULL), HIGHWIRE_OK);
    EXPECT(highwire_response_set_header(response, "x a", "1"), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_response_get_header(response, "x-A", &value), HIGHWIRE_OK);
    if (value.length != 1 || value.data[0] != '3')
        abort();
    EXPECT(highwire_response_get_header(response, "x-b", &value), HIGHWIRE_NOT_FOUND);
    EXPECT(highwire_response_get_status(response, &status), HIGHWIRE_OK);
    EXPECT(highwire_response_body(response, "fields", 6), HIGHWIRE_OK);
    EXPECT(highwire_respond_with(request, response), status == 200 ? HIGHWIRE_OK : HIGHWIRE_INTERNAL);
}

/* The values that live for a request, so that the test sees whether all were freed. */
static long kept, released;

static void release(void *value) {
    free(value);
    __atomic_add_fetch(&released, 1, __ATOMIC_SEQ_CST);
}

/* Refuses requests without a name, and keeps the name for the handlers. */
static void sign_in(highwire_request request, void *data) {
    highwire_string name, path;
    void *none;
    (void)data;
    EXPECT(highwire_request_path(request, &path), HIGHWIRE_OK);
    EXPECT(highwire_request_data(request, &none), HIGHWIRE_NOT_FOUND);
    EXPECT(highwire_request_defer(request), HIGHWIRE_WRONG_STATE);
    if (path.length < 6 || memcmp(path.data, "/whoam", 6) != 0)
        return;
    if (highwire_request_header(request, "x-name", &name) != HIGHWIRE_OK) {
        EXPECT(highwire_respond(request, 401, "text/plain", "who are you?", 12), HIGHWIRE_OK);
        return;
    }
    char *copy = (char *)malloc(name.length + 1);
    memcpy(copy, name.data, name.length);
    copy[name.length] = 0;
    __atomic_add_fetch(&kept, 1, __ATOMIC_SEQ_CST);
    EXPECT(highwire_request_set_data(request, copy, release), HIGHWIRE_OK);
}

static void who_am_i(highwire_request request, void *data) {
    void *name = NULL;
    if (data != NULL)
        EXPECT(highwire_request_defer(request), HIGHWIRE_OK);
    EXPECT(highwire_request_data(request, &name), HIGHWIRE_OK);
    EXPECT(highwire_respond(request, 200, "text/plain", name, strlen((const char *)name)), HIGHWIRE_OK);
}

/* Sees every answer. */
static void mark(highwire_request request, highwire_response response, void *data) {
    highwire_string path, type;
    void *name = NULL;
    uint32_t status;
    char text[128];
    (void)data;
    EXPECT(highwire_request_path(request, &path), HIGHWIRE_OK);
    EXPECT(highwire_response_get_status(response, &status), HIGHWIRE_OK);
    int is_known = highwire_request_data(request, &name) == HIGHWIRE_OK;
    snprintf(text, sizeof text, "%.*s %u %s", (int)path.length, path.data, (unsigned)status, is_known ? (char *)name : "-");
    EXPECT(highwire_response_set_header(response, "x-mark", text), HIGHWIRE_OK);
    EXPECT(highwire_respond(request, 200, NULL, NULL, 0), HIGHWIRE_INVALID_HANDLE);
    if (path.length == 8 && memcmp(path.data, "/changed", 8) == 0) {
        EXPECT(highwire_response_get_header(response, "content-type", &type), HIGHWIRE_OK);
        EXPECT(highwire_response_status(response, 203), HIGHWIRE_OK);
        EXPECT(highwire_response_set_header(response, "content-type", "text/x-changed"), HIGHWIRE_OK);
        EXPECT(highwire_response_body(response, "by the hook", 11), HIGHWIRE_OK);
    }
}

static void on_error(uint32_t status, const char *reason, highwire_response response, void *data) {
    char text[256];
    int length = snprintf(text, sizeof text, "{\"status\":%u,\"hasReason\":%s}", (unsigned)status, reason[0] ? "true" : "false");
    (void)data;
    EXPECT(highwire_response_header(response, "content-type", "application/problem+json"), HIGHWIRE_OK);
    EXPECT(highwire_response_body(response, text, (size_t)length), HIGHWIRE_OK);
}

static void long_text(highwire_request request, void *data) {
    static char text[20000];
    (void)data;
    memset(text, 'a', sizeof text);
    EXPECT(highwire_respond(request, 200, "text/plain", text, sizeof text), HIGHWIRE_OK);
}

/* The fields of a form. */
struct form {
    struct out out;
    size_t bytes;
};

static int32_t field(highwire_request request, enum highwire_result result, const highwire_field *field, const void *part,
                     size_t length, void *data) {
    struct form *form = (struct form *)data;
    (void)part;
    if (field == NULL) {
        if (result == HIGHWIRE_OK)
            highwire_respond(request, 200, "text/plain", form->out.text, form->out.used);
        else
            highwire_respond(request, 400, "text/plain", highwire_last_error(), strlen(highwire_last_error()));
        free(form);
        return 0;
    }
    form->bytes += length;
    if (length == 0) {
        char text[64];
        highwire_string count = {text, (size_t)snprintf(text, sizeof text, "%zu", form->bytes)};
        add(&form->out, "name", field->name);
        if (field->file_name.data != NULL)
            add(&form->out, "file", field->safe_file_name);
        if (field->content_type.data != NULL)
            add(&form->out, "type", field->content_type);
        add(&form->out, "bytes", count);
        form->bytes = 0;
    }
    return 0;
}

static void multipart(highwire_request request, void *data) {
    struct form *form = (struct form *)calloc(1, sizeof *form);
    (void)data;
    EXPECT(highwire_request_multipart(request, NULL, NULL), HIGHWIRE_NULL);
    if (highwire_request_multipart(request, field, form) != HIGHWIRE_OK) {
        free(form);
        highwire_respond(request, 415, "text/plain", highwire_last_error(), strlen(highwire_last_error()));
    }
}

/* Sends each part back as soon as it is there. */
static void echo_part(highwire_request request, enum highwire_result result, const void *part, size_t length, void *data) {
    highwire_stream *stream = (highwire_stream *)data;
    if (result != HIGHWIRE_OK || length == 0) {
        if (result == HIGHWIRE_OK)
            highwire_stream_end(*stream);
        else
            highwire_stream_abort(*stream);
        free(stream);
        return;
    }
    highwire_stream_write(*stream, part, length);
    if (highwire_request_read(request, echo_part, stream) != HIGHWIRE_OK) {
        highwire_stream_abort(*stream);
        free(stream);
    }
}

static void duplex(highwire_request request, void *data) {
    highwire_stream *stream = (highwire_stream *)malloc(sizeof *stream), second;
    highwire_response response;
    (void)data;
    EXPECT(highwire_response_new(200, &response), HIGHWIRE_OK);
    EXPECT(highwire_respond_stream(request, response, -1, NULL, NULL, stream), HIGHWIRE_OK);
    EXPECT(highwire_response_new(200, &response), HIGHWIRE_OK);
    EXPECT(highwire_respond_stream(request, response, -1, NULL, NULL, &second), HIGHWIRE_WRONG_STATE);
    EXPECT(highwire_response_free(response), HIGHWIRE_INVALID_HANDLE);
    EXPECT(highwire_stream_write(*stream, "begin\n", 6), HIGHWIRE_OK);
    EXPECT(highwire_request_read(request, echo_part, stream), HIGHWIRE_OK);
}

/* One structure for both directions, which is freed once the stream has ended: no callback may come behind that. */
struct both {
    highwire_stream stream;
    size_t parts;
};

static void room(highwire_stream stream, enum highwire_result result, void *data) {
    (void)stream;
    if (result == HIGHWIRE_OK)
        return;
    highwire_stream_abort(((struct both *)data)->stream);
    free(data);
}

static void count_both(highwire_request request, enum highwire_result result, const void *part, size_t length, void *data) {
    struct both *both = (struct both *)data;
    (void)part;
    /* The client may be gone, and the callback of the stream is still to come. */
    if (result != HIGHWIRE_OK)
        return;
    both->parts++;
    if (length == 0) {
        highwire_stream_end(both->stream);
        free(both);
        return;
    }
    highwire_request_read(request, count_both, both);
}

static void read_both(highwire_request request, void *data) {
    struct both *both = (struct both *)calloc(1, sizeof *both);
    char *value = (char *)calloc(1, 1);
    highwire_response response;
    (void)data;
    __atomic_add_fetch(&kept, 1, __ATOMIC_SEQ_CST);
    EXPECT(highwire_request_set_data(request, value, release), HIGHWIRE_OK);
    EXPECT(highwire_response_new(200, &response), HIGHWIRE_OK);
    EXPECT(highwire_respond_stream(request, response, -1, room, both, &both->stream), HIGHWIRE_OK);
    EXPECT(highwire_stream_write(both->stream, "begin\n", 6), HIGHWIRE_OK);
    EXPECT(highwire_request_read(request, count_both, both), HIGHWIRE_OK);
}

/* Ends the answer while a part of the body is awaited, which is then never given. */
static void not_given(highwire_request request, enum highwire_result result, const void *part, size_t length, void *data) {
    (void)request, (void)result, (void)part, (void)length, (void)data;
    abort();
}

static void end_first(highwire_request request, void *data) {
    highwire_stream stream;
    highwire_response response;
    (void)data;
    EXPECT(highwire_response_new(200, &response), HIGHWIRE_OK);
    EXPECT(highwire_respond_stream(request, response, -1, NULL, NULL, &stream), HIGHWIRE_OK);
    EXPECT(highwire_request_read(request, not_given, NULL), HIGHWIRE_OK);
    EXPECT(highwire_stream_write(stream, "the end", 7), HIGHWIRE_OK);
    EXPECT(highwire_stream_end(stream), HIGHWIRE_OK);
    if (highwire_request_read(request, not_given, NULL) == HIGHWIRE_OK)
        abort();
}

/* Answers a form in parts, slowly, so that the client can leave meanwhile. */
static int32_t slow_field(highwire_request request, enum highwire_result result, const highwire_field *field, const void *part,
                          size_t length, void *data) {
    struct both *both = (struct both *)data;
    highwire_response response;
    (void)part, (void)length;
    if (field != NULL)
        return 0;
    if (result != HIGHWIRE_OK) {
        free(both);
        highwire_respond(request, 400, NULL, NULL, 0);
        return 0;
    }
    EXPECT(highwire_response_new(200, &response), HIGHWIRE_OK);
    if (highwire_respond_stream(request, response, -1, room, both, &both->stream) != HIGHWIRE_OK)
        free(both);
    else
        highwire_stream_write(both->stream, "begin\n", 6);
    return 0;
}

static void slow_form(highwire_request request, void *data) {
    struct both *both = (struct both *)calloc(1, sizeof *both);
    (void)data;
    __atomic_add_fetch(&kept, 1, __ATOMIC_SEQ_CST);
    EXPECT(highwire_request_set_data(request, calloc(1, 1), release), HIGHWIRE_OK);
    EXPECT(highwire_request_multipart(request, slow_field, both), HIGHWIRE_OK);
}

static void is_never_called(highwire_websocket socket, int32_t event, uint32_t code, const void *bytes, size_t length, void *data) {
    (void)socket, (void)event, (void)code, (void)bytes, (void)length, (void)data;
    abort();
}

/* A body with an announced length: neither more nor less. */
static void lengths(highwire_request request, void *data) {
    highwire_stream stream;
    highwire_response response;
    (void)data;
    EXPECT(highwire_response_new(200, &response), HIGHWIRE_OK);
    EXPECT(highwire_respond_stream(request, response, -2, NULL, NULL, &stream), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_response_new(200, &response), HIGHWIRE_OK);
    EXPECT(highwire_respond_stream(request, response, 5, NULL, NULL, &stream), HIGHWIRE_OK);
    EXPECT(highwire_stream_write(stream, "hel", 3), HIGHWIRE_OK);
    EXPECT(highwire_stream_write(stream, "lo!", 3), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_stream_write(stream, "lo", 2), HIGHWIRE_OK);
    EXPECT(highwire_stream_end(stream), HIGHWIRE_OK);
}

static void too_short(highwire_request request, void *data) {
    highwire_stream stream;
    highwire_response response;
    (void)data;
    EXPECT(highwire_response_new(200, &response), HIGHWIRE_OK);
    EXPECT(highwire_respond_stream(request, response, 5, NULL, NULL, &stream), HIGHWIRE_OK);
    EXPECT(highwire_stream_write(stream, "hel", 3), HIGHWIRE_OK);
    EXPECT(highwire_stream_end(stream), HIGHWIRE_INVALID_ARGUMENT);
}

static void socket(highwire_request request, void *data) {
    (void)data;
    EXPECT(highwire_respond_websocket(request, NULL, is_never_called, NULL, NULL), HIGHWIRE_REFUSED);
}

static void certificate(highwire_request request, void *data) {
    highwire_string subject, der;
    if (data != NULL)
        EXPECT(highwire_request_defer(request), HIGHWIRE_OK);
    if (highwire_request_client_subject(request, &subject) != HIGHWIRE_OK) {
        EXPECT(highwire_request_client_certificate(request, &der), HIGHWIRE_NOT_FOUND);
        EXPECT(highwire_respond(request, 200, "text/plain", "nobody", 6), HIGHWIRE_OK);
        return;
    }
    EXPECT(highwire_request_client_certificate(request, &der), HIGHWIRE_OK);
    if (der.length < 100 || (unsigned char)der.data[0] != 0x30)
        abort();
    EXPECT(highwire_respond(request, 200, "text/plain", subject.data, subject.length), HIGHWIRE_OK);
}

/* Calls the own server with the certificate of the client. */
static void asked(enum highwire_result result, highwire_reply reply, void *data) {
    highwire_request request = *(highwire_request *)data;
    highwire_string body;
    free(data);
    if (result != HIGHWIRE_OK) {
        highwire_respond(request, 502, "text/plain", highwire_last_error(), strlen(highwire_last_error()));
        return;
    }
    EXPECT(highwire_reply_body(reply, &body), HIGHWIRE_OK);
    EXPECT(highwire_respond(request, 200, "text/plain", body.data, body.length), HIGHWIRE_OK);
    EXPECT(highwire_reply_free(reply), HIGHWIRE_OK);
}

static highwire_client client;

static void call(highwire_request request, void *data) {
    highwire_call call;
    highwire_request *waiting;
    highwire_string port;
    char url[128];
    (void)data;
    EXPECT(highwire_call_new(client, "GET", "https://localhost/", &call), HIGHWIRE_OK);
    EXPECT(highwire_call_send(call, NULL, NULL), HIGHWIRE_NULL);
    EXPECT(highwire_call_free(call), HIGHWIRE_INVALID_HANDLE);
    EXPECT(highwire_call_new(client, "GET", "https://localhost/", &call), HIGHWIRE_OK);
    EXPECT(highwire_call_wait(call, NULL), HIGHWIRE_NULL);
    EXPECT(highwire_call_free(call), HIGHWIRE_INVALID_HANDLE);
    EXPECT(highwire_request_param(request, "port", &port), HIGHWIRE_OK);
    snprintf(url, sizeof url, "https://localhost:%.*s/certificate", (int)port.length, port.data);
    EXPECT(highwire_call_new(client, "GET", url, &call), HIGHWIRE_OK);
    waiting = (highwire_request *)malloc(sizeof *waiting);
    *waiting = request;
    EXPECT(highwire_call_send(call, asked, waiting), HIGHWIRE_OK);
}

static void stop(highwire_request request, void *data) {
    (void)data;
    highwire_respond(request, 200, "text/plain", "bye", 3);
    highwire_server_shutdown(server);
}

int main(int argc, char **argv) {
    static const struct {
        const char *method, *path;
        int32_t body;
        highwire_handler handler;
        void *data;
    } routes[] = {
        {"*", "/values/{id}", HIGHWIRE_BODY_WHOLE, values, NULL},
        {"GET", "/fields", HIGHWIRE_BODY_NONE, fields, NULL},
        {"GET", "/whoami", HIGHWIRE_BODY_NONE, who_am_i, NULL},
        {"GET", "/whoami/later", HIGHWIRE_BODY_NONE, who_am_i, &server},
        {"GET", "/changed", HIGHWIRE_BODY_NONE, long_text, NULL},
        {"GET", "/long", HIGHWIRE_BODY_NONE, long_text, NULL},
        {"POST", "/form/whole", HIGHWIRE_BODY_WHOLE, multipart, NULL},
        {"POST", "/form/parts", HIGHWIRE_BODY_PARTS, multipart, NULL},
        {"POST", "/duplex", HIGHWIRE_BODY_PARTS, duplex, NULL},
        {"POST", "/both", HIGHWIRE_BODY_PARTS, read_both, NULL},
        {"POST", "/end", HIGHWIRE_BODY_PARTS, end_first, NULL},
        {"POST", "/form/slow", HIGHWIRE_BODY_PARTS, slow_form, NULL},
        {"GET", "/lengths", HIGHWIRE_BODY_NONE, lengths, NULL},
        {"GET", "/short", HIGHWIRE_BODY_NONE, too_short, NULL},
        {"GET", "/socket", HIGHWIRE_BODY_NONE, socket, NULL},
        {"GET", "/certificate", HIGHWIRE_BODY_NONE, certificate, NULL},
        {"GET", "/certificate/later", HIGHWIRE_BODY_NONE, certificate, &server},
        {"GET", "/call/{port}", HIGHWIRE_BODY_NONE, call, NULL},
        {"GET", "/stop", HIGHWIRE_BODY_NONE, stop, NULL},
    };
    highwire_app app;
    highwire_tls tls;
    EXPECT(highwire_app_new(&app), HIGHWIRE_OK);
    EXPECT(highwire_app_set(app, HIGHWIRE_WORKERS, 1), HIGHWIRE_OK);
    EXPECT(highwire_app_set(app, HIGHWIRE_ENGINE, argc > 1 ? (uint64_t)atoi(argv[1]) : 0), HIGHWIRE_OK);
    EXPECT(highwire_app_set(app, HIGHWIRE_COMPRESS, 1), HIGHWIRE_OK);
    EXPECT(highwire_app_on_response(app, NULL, NULL), HIGHWIRE_NULL);
    EXPECT(highwire_app_on_response(app, mark, NULL), HIGHWIRE_OK);
    EXPECT(highwire_app_on_request(app, sign_in, NULL), HIGHWIRE_OK);
    EXPECT(highwire_app_on_error(app, on_error, NULL), HIGHWIRE_OK);
    for (size_t at = 0; at < sizeof routes / sizeof *routes; at++)
        EXPECT(highwire_app_route(app, routes[at].method, routes[at].path, routes[at].body, routes[at].handler, routes[at].data),
               HIGHWIRE_OK);
    EXPECT(highwire_server_new(app, &server), HIGHWIRE_OK);
    EXPECT(highwire_server_listen(server, "127.0.0.1:0"), HIGHWIRE_OK);
    if (argc > 4) {
        EXPECT(highwire_client_new(&client), HIGHWIRE_OK);
        EXPECT(highwire_client_set_text(client, HIGHWIRE_CLIENT_ROOT_FILE, argv[4]), HIGHWIRE_OK);
        EXPECT(highwire_client_set_text(client, HIGHWIRE_CLIENT_IDENTITY_FILE, argv[5]), HIGHWIRE_OK);
        EXPECT(highwire_tls_new(&tls), HIGHWIRE_OK);
        EXPECT(highwire_tls_free(tls), HIGHWIRE_OK);
        EXPECT(highwire_tls_certificate(tls, argv[2], argv[2]), HIGHWIRE_INVALID_HANDLE);
        EXPECT(highwire_tls_new(&tls), HIGHWIRE_OK);
        EXPECT(highwire_tls_certificate(tls, argv[2], argv[2]), HIGHWIRE_OK);
        EXPECT(highwire_tls_certificate(tls, argv[3], argv[3]), HIGHWIRE_OK);
        EXPECT(highwire_tls_client_roots(tls, argv[4], 0), HIGHWIRE_OK);
        EXPECT(highwire_server_listen_tls_with(server, "127.0.0.1:0", tls), HIGHWIRE_OK);
        EXPECT(highwire_tls_free(tls), HIGHWIRE_INVALID_HANDLE);
    }
    /* The port with TLS, if there is one, behind the other address. */
    printf("http://%s %s\n", highwire_server_address(server, 0), argc > 4 ? highwire_server_address(server, 1) : "");
    fflush(stdout);
    EXPECT(highwire_server_run(server), HIGHWIRE_OK);
    EXPECT(highwire_server_free(server), HIGHWIRE_OK);
    if (argc > 4)
        EXPECT(highwire_client_free(client), HIGHWIRE_OK);
    if (kept != released) {
        fprintf(stderr, "%ld of %ld values were released\n", released, kept);
        return 1;
    }
    return 0;
}
