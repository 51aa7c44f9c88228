/* A server for the tests: every way to answer. A client asks it; /stop ends it. Compiled as C99 and as C++11. */
#include <highwire.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static highwire_server server;

static void text(highwire_request request, const char *what) {
    highwire_respond(request, 200, "text/plain", what, strlen(what));
}

static void expect(enum highwire_result got, enum highwire_result wanted, int line) {
    if (got != wanted) {
        fprintf(stderr, "line %d: %s, not %s: %s\n", line, highwire_result_name((int)got), highwire_result_name((int)wanted),
                highwire_last_error());
        abort();
    }
}
#ifdef __cplusplus
#define HANDLE(type, id) (type{(id)})
#else
#define HANDLE(type, id) ((type){(id)})
#endif
#define EXPECT(call, wanted) expect((call), (wanted), __LINE__)

/* Answers with all that the request has. */
static void show(highwire_request request, void *data) {
    char out[4096];
    size_t used = 0;
    highwire_string name, value, method, path, body;
    uint32_t version;
    (void)data;
    EXPECT(highwire_request_method(request, &method), HIGHWIRE_OK);
    EXPECT(highwire_request_path(request, &path), HIGHWIRE_OK);
    EXPECT(highwire_request_version(request, &version), HIGHWIRE_OK);
    used += (size_t)snprintf(out + used, sizeof out - used, "%.*s %.*s %u\n", (int)method.length, method.data,
                             (int)path.length, path.data, (unsigned)version);
    for (size_t at = 0; highwire_request_header_at(request, at, &name, &value) == HIGHWIRE_OK; at++)
        used += (size_t)snprintf(out + used, sizeof out - used, "%.*s: %.*s\n", (int)name.length, name.data,
                                 (int)value.length, value.data);
    if (highwire_request_query_param(request, "q", &value) == HIGHWIRE_OK)
        used += (size_t)snprintf(out + used, sizeof out - used, "q=%.*s\n", (int)value.length, value.data);
    if (highwire_request_form_param(request, "f", &value) == HIGHWIRE_OK)
        used += (size_t)snprintf(out + used, sizeof out - used, "f=%.*s\n", (int)value.length, value.data);
    if (highwire_request_cookie(request, "c", &value) == HIGHWIRE_OK)
        used += (size_t)snprintf(out + used, sizeof out - used, "c=%.*s\n", (int)value.length, value.data);
    EXPECT(highwire_request_body(request, &body), HIGHWIRE_OK);
    used += (size_t)snprintf(out + used, sizeof out - used, "%.*s", (int)body.length, body.data ? body.data : "");
    highwire_respond(request, 200, "text/plain", out, used);
}

static void fields(highwire_request request, void *data) {
    highwire_response response;
    (void)data;
    EXPECT(highwire_response_new(200, &response), HIGHWIRE_OK);
    EXPECT(highwire_response_status(response, 201), HIGHWIRE_OK);
    EXPECT(highwire_response_header(response, "X-One", "1"), HIGHWIRE_OK);
    EXPECT(highwire_response_header(response, "Content-Length", "999"), HIGHWIRE_OK);
    EXPECT(highwire_response_header(response, "X-Split", "a\r\nX-Two: 2"), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_response_header(response, "X Y", "a"), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_response_header(response, NULL, "a"), HIGHWIRE_NULL);
    for (int at = 0; at < 80; at++)
        EXPECT(highwire_response_header(response, "X-Many", "0123456789"), HIGHWIRE_OK);
    EXPECT(highwire_response_body(response, "made", 4), HIGHWIRE_OK);
    EXPECT(highwire_respond_with(request, response), HIGHWIRE_OK);
    EXPECT(highwire_respond_with(request, response), HIGHWIRE_INVALID_HANDLE);
    EXPECT(highwire_response_free(response), HIGHWIRE_INVALID_HANDLE);
}

/* Wrong calls are results and no crashes, and the right one still works. */
static void misuse(highwire_request request, void *data) {
    highwire_string value;
    highwire_stream stream;
    highwire_response response;
    (void)data;
    EXPECT(highwire_respond(request, 99, NULL, NULL, 0), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_respond(request, 101, NULL, NULL, 0), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_respond(request, 200, NULL, NULL, 5), HIGHWIRE_NULL);
    EXPECT(highwire_respond(request, 200, "text\r\nX: y", "a", 1), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_respond(HANDLE(highwire_request, 0), 200, NULL, NULL, 0), HIGHWIRE_INVALID_HANDLE);
    EXPECT(highwire_respond(HANDLE(highwire_request, request.id + 1), 200, NULL, NULL, 0), HIGHWIRE_INVALID_HANDLE);
    EXPECT(highwire_respond_with(request, HANDLE(highwire_response, 12345)), HIGHWIRE_INVALID_HANDLE);
    EXPECT(highwire_request_header(request, NULL, &value), HIGHWIRE_NULL);
    EXPECT(highwire_request_header(request, "host", NULL), HIGHWIRE_NULL);
    EXPECT(highwire_request_header(request, "absent", &value), HIGHWIRE_NOT_FOUND);
    EXPECT(highwire_request_param(request, "absent", &value), HIGHWIRE_NOT_FOUND);
    EXPECT(highwire_request_read(request, NULL, NULL), HIGHWIRE_NULL);
    EXPECT(highwire_stream_write(HANDLE(highwire_stream, 77), "a", 1), HIGHWIRE_INVALID_HANDLE);
    EXPECT(highwire_stream_end(HANDLE(highwire_stream, 0)), HIGHWIRE_INVALID_HANDLE);
    EXPECT(highwire_server_free(HANDLE(highwire_server, request.id)), HIGHWIRE_INVALID_HANDLE);
    EXPECT(highwire_app_free(HANDLE(highwire_app, request.id)), HIGHWIRE_INVALID_HANDLE);
    EXPECT(highwire_server_listen(server, "127.0.0.1:0"), HIGHWIRE_WRONG_STATE);
    EXPECT(highwire_server_start(server), HIGHWIRE_WRONG_STATE);
    EXPECT(highwire_server_join(server), HIGHWIRE_WRONG_THREAD);
    EXPECT(highwire_server_free(server), HIGHWIRE_WRONG_THREAD);
    EXPECT(highwire_server_serve(server), HIGHWIRE_WRONG_THREAD);
    EXPECT(highwire_loop_turn(HANDLE(highwire_loop, 5), NULL), HIGHWIRE_INVALID_HANDLE);
    EXPECT(highwire_response_new(200, NULL), HIGHWIRE_NULL);
    EXPECT(highwire_response_new(200, &response), HIGHWIRE_OK);
    EXPECT(highwire_respond_stream(request, response, -1, NULL, NULL, NULL), HIGHWIRE_NULL);
    EXPECT(highwire_respond(request, 200, "text/plain", "still here", 10), HIGHWIRE_OK);
    EXPECT(highwire_respond(request, 200, "text/plain", "twice", 5), HIGHWIRE_WRONG_STATE);
    EXPECT(highwire_request_defer(request), HIGHWIRE_WRONG_STATE);
    EXPECT(highwire_response_new(200, &response), HIGHWIRE_OK);
    EXPECT(highwire_respond_stream(request, response, -1, NULL, NULL, &stream), HIGHWIRE_WRONG_STATE);
}

struct later {
    highwire_request request;
    highwire_string path;
};

static void *answer_later(void *data) {
    struct later *later = (struct later *)data;
    char out[256];
    highwire_string host;
    EXPECT(highwire_request_header(later->request, "Host", &host), HIGHWIRE_OK);
    int length = snprintf(out, sizeof out, "%.*s for %.*s", (int)later->path.length, later->path.data, (int)host.length,
                          host.data);
    enum highwire_result result = highwire_respond(later->request, 200, "text/plain", out, (size_t)length);
    if (result != HIGHWIRE_GONE)
        expect(result, HIGHWIRE_OK, __LINE__);
    EXPECT(highwire_respond(later->request, 200, NULL, NULL, 0), HIGHWIRE_INVALID_HANDLE);
    free(later);
    return NULL;
}

/* Another thread answers. */
static void thread(highwire_request request, void *data) {
    pthread_t thread;
    struct later *later = (struct later *)malloc(sizeof *later);
    (void)data;
    EXPECT(highwire_request_defer(request), HIGHWIRE_OK);
    later->request = request;
    EXPECT(highwire_request_path(request, &later->path), HIGHWIRE_OK);
    pthread_create(&thread, NULL, answer_later, later);
    pthread_detach(thread);
}

static highwire_request waiting;

/* The next request on this thread answers this one. */
static void wait_for_next(highwire_request request, void *data) {
    (void)data;
    if (waiting.id != 0) {
        text(waiting, "the second one came");
        waiting.id = 0;
        text(request, "I am the second one");
    } else {
        waiting = request;
    }
}

struct writer {
    highwire_stream stream;
    unsigned long left;
};

static void write_more(highwire_stream stream, enum highwire_result result, void *data) {
    char part[8192];
    struct writer *writer = (struct writer *)data;
    memset(part, 'x', sizeof part);
    while (result == HIGHWIRE_OK && writer->left > 0) {
        result = highwire_stream_write(stream, part, sizeof part);
        if (result == HIGHWIRE_AGAIN)
            return; /* The callback comes when there is room. */
        if (result == HIGHWIRE_OK)
            writer->left--;
    }
    if (result == HIGHWIRE_OK)
        highwire_stream_end(stream);
    else
        highwire_stream_abort(stream);
    free(writer);
}

/* 1,000 parts of 8 KiB, as fast as the client takes them. */
static void big(highwire_request request, void *data) {
    highwire_response response;
    struct writer *writer = (struct writer *)malloc(sizeof *writer);
    (void)data;
    writer->left = 1000;
    EXPECT(highwire_response_new(200, &response), HIGHWIRE_OK);
    EXPECT(highwire_response_trailer(response, "X-Sum", "7"), HIGHWIRE_OK);
    EXPECT(highwire_respond_stream(request, response, -1, write_more, writer, &writer->stream), HIGHWIRE_OK);
    write_more(writer->stream, HIGHWIRE_OK, writer);
}

/* A body that is cut. */
static void cut(highwire_request request, void *data) {
    highwire_response response;
    highwire_stream stream;
    (void)data;
    EXPECT(highwire_response_new(200, &response), HIGHWIRE_OK);
    EXPECT(highwire_respond_stream(request, response, 100, NULL, NULL, &stream), HIGHWIRE_OK);
    EXPECT(highwire_stream_write(stream, "half", 4), HIGHWIRE_OK);
    EXPECT(highwire_stream_abort(stream), HIGHWIRE_OK);
    EXPECT(highwire_stream_write(stream, "half", 4), HIGHWIRE_INVALID_HANDLE);
}

static void part(highwire_request request, enum highwire_result result, const void *bytes, size_t length, void *data) {
    unsigned long long *count = (unsigned long long *)data;
    char out[64];
    if (result == HIGHWIRE_OK && length > 0) {
        *count += length;
        if (((const char *)bytes)[length - 1] != 'x')
            abort();
        EXPECT(highwire_request_read(request, part, count), HIGHWIRE_OK);
        EXPECT(highwire_request_read(request, part, count), HIGHWIRE_WRONG_STATE);
        return;
    }
    int written = snprintf(out, sizeof out, "%llu %s", *count, highwire_result_name((int)result));
    highwire_respond(request, 200, "text/plain", out, (size_t)written);
    free(count);
}

static void upload(highwire_request request, void *data) {
    (void)data;
    EXPECT(highwire_request_read(request, part, calloc(1, sizeof(unsigned long long))), HIGHWIRE_OK);
}

/* WebSockets: each has a number of bytes of its own to send, and each must end once. */
static highwire_topics topics;
static int opened, ended;

struct talk {
    highwire_websocket socket;
    int left;
};

static void say(highwire_websocket socket, const char *what) {
    EXPECT(highwire_websocket_send(socket, HIGHWIRE_WEBSOCKET_TEXT, what, strlen(what)), HIGHWIRE_OK);
}

static void flood(struct talk *talk) {
    char text[4096];
    memset(text, '.', sizeof text);
    while (talk->left > 0) {
        char number[16];
        snprintf(number, sizeof number, "%08d", (2000 - talk->left) % 10000);
        memcpy(text, number, 8);
        enum highwire_result result =
            highwire_websocket_send(talk->socket, HIGHWIRE_WEBSOCKET_TEXT, text, sizeof text);
        if (result == HIGHWIRE_AGAIN || talk->left > 2000)
            talk->left += result == HIGHWIRE_OK; /* This one goes on for ever. */
        if (result == HIGHWIRE_AGAIN || (result == HIGHWIRE_WRONG_STATE && talk->left > 2000))
            return; /* The callback comes when there is room. */
        expect(result, HIGHWIRE_OK, __LINE__);
        talk->left--;
    }
}

static void *speak(void *data) {
    highwire_websocket socket = ((struct talk *)data)->socket;
    EXPECT(highwire_websocket_subscribe(socket, topics, "a", 0), HIGHWIRE_WRONG_THREAD);
    say(socket, "done thread");
    return NULL;
}

static void misuse_socket(highwire_websocket socket) {
    char reason[200];
    memset(reason, 'x', sizeof reason);
    reason[124] = 0;
    EXPECT(highwire_websocket_send(HANDLE(highwire_websocket, 0), HIGHWIRE_WEBSOCKET_TEXT, "a", 1), HIGHWIRE_INVALID_HANDLE);
    EXPECT(highwire_websocket_send(socket, 77, "a", 1), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_websocket_send(socket, HIGHWIRE_WEBSOCKET_TEXT, "\xff", 1), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_websocket_send(socket, HIGHWIRE_WEBSOCKET_TEXT, NULL, 1), HIGHWIRE_NULL);
    EXPECT(highwire_websocket_send(socket, HIGHWIRE_WEBSOCKET_PING, reason, 126), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_websocket_close(socket, 1005, NULL), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_websocket_close(socket, 70000, NULL), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_websocket_close(socket, 1000, reason), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_websocket_subscribe(socket, topics, "a//b", 0), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_websocket_subscribe(socket, HANDLE(highwire_topics, 5), "a", 0), HIGHWIRE_INVALID_HANDLE);
    EXPECT(highwire_websocket_unsubscribe(socket, topics, "a"), HIGHWIRE_NOT_FOUND);
    EXPECT(highwire_topics_publish(topics, "a/#", HIGHWIRE_WEBSOCKET_TEXT, "a", 1), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_topics_publish(topics, "a", HIGHWIRE_WEBSOCKET_PING, "a", 1), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_topics_publish(topics, NULL, HIGHWIRE_WEBSOCKET_TEXT, "a", 1), HIGHWIRE_NULL);
}

static void talking(highwire_websocket socket, int32_t event, uint32_t code, const void *bytes, size_t length, void *data) {
    struct talk *talk = (struct talk *)data;
    pthread_t thread;
    if (event != HIGHWIRE_WEBSOCKET_OPEN && event != HIGHWIRE_WEBSOCKET_END && talk->socket.id != socket.id)
        abort();
    if (event == HIGHWIRE_WEBSOCKET_OPEN) {
        talk->socket = socket;
        say(socket, "open");
    } else if (event == HIGHWIRE_WEBSOCKET_BINARY) {
        EXPECT(highwire_websocket_send(socket, HIGHWIRE_WEBSOCKET_BINARY, bytes, length), HIGHWIRE_OK);
    } else if (event == HIGHWIRE_WEBSOCKET_ROOM) {
        flood(talk);
    } else if (event == HIGHWIRE_WEBSOCKET_END) {
        if (code < 1000)
            abort();
        EXPECT(highwire_websocket_subscribe(socket, topics, "a", 0), HIGHWIRE_WRONG_THREAD);
        EXPECT(highwire_websocket_send(socket, HIGHWIRE_WEBSOCKET_TEXT, "a", 1), HIGHWIRE_WRONG_STATE);
        ended++;
        free(talk);
    } else if (event != HIGHWIRE_WEBSOCKET_TEXT) {
        /* A Ping or Pong frame. */
    } else if (length == 6 && memcmp(bytes, "misuse", 6) == 0) {
        misuse_socket(socket);
        say(socket, "done misuse");
    } else if (length == 6 && memcmp(bytes, "thread", 6) == 0) {
        pthread_create(&thread, NULL, speak, talk);
        pthread_join(thread, NULL);
    } else if (length == 5 && memcmp(bytes, "flood", 5) == 0) {
        talk->left = 2000;
        flood(talk);
    } else if (length == 7 && memcmp(bytes, "forever", 7) == 0) {
        talk->left = 1000000;
        flood(talk);
    } else if (length == 9 && memcmp(bytes, "subscribe", 9) == 0) {
        EXPECT(highwire_websocket_subscribe(socket, topics, "news/+", 0), HIGHWIRE_OK);
        say(socket, "done subscribe");
    } else if (length == 7 && memcmp(bytes, "publish", 7) == 0) {
        EXPECT(highwire_topics_publish(topics, "news/today", HIGHWIRE_WEBSOCKET_TEXT, "published", 9), HIGHWIRE_OK);
    } else if (length == 5 && memcmp(bytes, "close", 5) == 0) {
        EXPECT(highwire_websocket_close(socket, 4000, "as asked"), HIGHWIRE_OK);
        EXPECT(highwire_websocket_close(socket, 4000, NULL), HIGHWIRE_WRONG_STATE);
        EXPECT(highwire_websocket_send(socket, HIGHWIRE_WEBSOCKET_TEXT, "a", 1), HIGHWIRE_WRONG_STATE);
    } else {
        EXPECT(highwire_websocket_send(socket, HIGHWIRE_WEBSOCKET_TEXT, bytes, length), HIGHWIRE_OK);
    }
}

static void open_socket(highwire_request request, void *data) {
    const struct highwire_websocket_settings settings = {"a, c", "https://good.example", 1000000, 60000, 1};
    struct talk *talk = (struct talk *)calloc(1, sizeof *talk);
    highwire_websocket socket;
    (void)data;
    EXPECT(highwire_respond_websocket(request, &settings, NULL, talk, &socket), HIGHWIRE_NULL);
    EXPECT(highwire_respond_websocket(HANDLE(highwire_request, request.id + 1), &settings, talking, talk, &socket), HIGHWIRE_INVALID_HANDLE);
    if (highwire_respond_websocket(request, &settings, talking, talk, &socket) != HIGHWIRE_OK) {
        free(talk);
        return;
    }
    opened++;
    EXPECT(highwire_respond_websocket(request, NULL, talking, talk, NULL), HIGHWIRE_WRONG_STATE);
    EXPECT(highwire_websocket_subscribe(socket, topics, "a", 0), HIGHWIRE_WRONG_THREAD);
}

/* Calls to other servers, which are this one. */
static highwire_client client;

/* Its connections are HTTP/2. */
static highwire_client client2;

struct called {
    highwire_request request;
    highwire_call call;
    unsigned long long bytes;
    int left;   /* The parts after which the callback ends the call. */
    int pauses; /* The parts behind which the call is paused; -1 if nobody lets it go on, -2 to cancel it. */
    pthread_t resumer;
    pthread_mutex_t lock;
    int is_paused;
};

/* Another thread lets the parts go on. */
static void *go_on(void *data) {
    struct called *called = (struct called *)data;
    pthread_mutex_lock(&called->lock);
    called->is_paused = 0;
    pthread_mutex_unlock(&called->lock);
    EXPECT(highwire_call_resume(called->call), HIGHWIRE_OK);
    return NULL;
}

static int32_t count_part(const void *part, size_t length, void *data) {
    struct called *called = (struct called *)data;
    int is_first = called->bytes == 0;
    if (part == NULL || length == 0)
        abort();
    called->bytes += length;
    if (called->pauses == -1) {
        if (!is_first)
            abort();
        EXPECT(highwire_call_pause(called->call), HIGHWIRE_OK);
    }
    if (called->pauses == -2) {
        if (!is_first)
            abort();
        EXPECT(highwire_call_cancel(called->call), HIGHWIRE_OK);
    }
    if (called->pauses > 0) {
        pthread_mutex_lock(&called->lock);
        if (called->is_paused)
            abort();
        called->is_paused = 1;
        EXPECT(highwire_call_pause(called->call), HIGHWIRE_OK);
        pthread_mutex_unlock(&called->lock);
        if (!is_first)
            pthread_join(called->resumer, NULL);
        called->pauses--;
        pthread_create(&called->resumer, NULL, go_on, called);
        if (called->pauses == 0)
            pthread_join(called->resumer, NULL);
    }
    return --called->left == 0;
}

static void *cancel(void *data) {
    EXPECT(highwire_call_cancel(((struct called *)data)->call), HIGHWIRE_OK);
    return NULL;
}

static void never(highwire_stream stream, enum highwire_result result, void *data) {
    fprintf(stderr, "stream %llx of %p was told %d\n", (unsigned long long)stream.id, data, (int)result);
    abort();
}

/* The body of a call: 100 parts of 8 KiB, or the beginning of a first one that is cut. */
static void stream_upload(highwire_call call, int64_t length, int is_cut) {
    struct writer *writer = (struct writer *)malloc(sizeof *writer);
    highwire_stream dropped;
    writer->left = 100;
    EXPECT(highwire_call_stream(call, length, write_more, writer, NULL), HIGHWIRE_NULL);
    EXPECT(highwire_call_stream(HANDLE(highwire_call, 0), length, write_more, writer, &writer->stream), HIGHWIRE_INVALID_HANDLE);
    /* A body that another one replaces. */
    EXPECT(highwire_call_stream(call, length, never, NULL, &dropped), HIGHWIRE_OK);
    EXPECT(highwire_call_stream(call, length, write_more, writer, &writer->stream), HIGHWIRE_OK);
    EXPECT(highwire_stream_write(dropped, "a", 1), HIGHWIRE_GONE);
    EXPECT(highwire_stream_end(dropped), HIGHWIRE_GONE);
    if (is_cut) {
        EXPECT(highwire_stream_write(writer->stream, "xxxx", 4), HIGHWIRE_OK);
        EXPECT(highwire_stream_abort(writer->stream), HIGHWIRE_OK);
        free(writer);
    } else {
        write_more(writer->stream, HIGHWIRE_OK, writer);
    }
}

static void was_called(enum highwire_result result, highwire_reply reply, void *data) {
    struct called *called = (struct called *)data;
    highwire_string body = {"", 0}, value = {"", 0};
    uint32_t status = 0, version = 0;
    char out[512];
    if ((result == HIGHWIRE_OK) != (reply.id != 0))
        abort();
    if (result == HIGHWIRE_OK) {
        EXPECT(highwire_reply_status(reply, &status), HIGHWIRE_OK);
        EXPECT(highwire_reply_version(reply, &version), HIGHWIRE_OK);
        EXPECT(highwire_reply_body(reply, &body), HIGHWIRE_OK);
        if (highwire_reply_header(reply, "X-ONE", &value) == HIGHWIRE_NOT_FOUND)
            value.length = 0;
    }
    int length = snprintf(out, sizeof out, "%s %u %u %.*s %.*s %llu", highwire_result_name((int)result), (unsigned)status,
                          (unsigned)version, (int)value.length, value.data, (int)body.length, body.data ? body.data : "",
                          called->bytes);
    EXPECT(highwire_respond(called->request, 200, "text/plain", out, (size_t)length), HIGHWIRE_OK);
    if (result == HIGHWIRE_OK)
        EXPECT(highwire_reply_free(reply), HIGHWIRE_OK);
    EXPECT(highwire_reply_free(reply), HIGHWIRE_INVALID_HANDLE);
    EXPECT(highwire_call_cancel(called->call), HIGHWIRE_INVALID_HANDLE);
    pthread_mutex_destroy(&called->lock);
    free(called);
}

/* Calls the path of the parameter, on this worker or on the client's thread. */
static void call(highwire_request request, void *data) {
    struct called *called = (struct called *)calloc(1, sizeof *called);
    highwire_string path, value;
    highwire_call call, other;
    highwire_reply reply;
    char url[256];
    (void)data;
    EXPECT(highwire_request_query_param(request, "path", &path), HIGHWIRE_OK);
    snprintf(url, sizeof url, "http://%s%.*s", highwire_server_address(server, 0), (int)path.length, path.data);
    called->request = request;
    pthread_mutex_init(&called->lock, NULL);
    EXPECT(highwire_call_new(client, "GET", "nonsense", &call), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_call_new(client, "G T", url, &call), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_call_new(client, "GET", url, NULL), HIGHWIRE_NULL);
    EXPECT(highwire_call_new(HANDLE(highwire_client, request.id), "GET", url, &call), HIGHWIRE_INVALID_HANDLE);
    int has_http2 = highwire_request_query_param(request, "http2", &value) == HIGHWIRE_OK;
    EXPECT(highwire_call_new(has_http2 ? client2 : client, "POST", url, &call), HIGHWIRE_OK);
    EXPECT(highwire_call_header(call, "X Y", "a"), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_call_header(call, "X-Y", "a\r\nb: c"), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_call_header(call, "X-Y", "a"), HIGHWIRE_OK);
    EXPECT(highwire_call_body(call, "body", 4), HIGHWIRE_OK);
    called->call = call;
    if (highwire_request_query_param(request, "upload", &value) == HIGHWIRE_OK)
        stream_upload(call, value.data[0] == 'l' ? 819200 : value.data[0] == 's' ? 819199 : -1, value.data[0] == 'c');
    if (highwire_request_query_param(request, "hurry", &value) == HIGHWIRE_OK)
        EXPECT(highwire_call_timeout(call, value.data[0] == '2' ? 200 : 1000), HIGHWIRE_OK);
    if (highwire_request_query_param(request, "parts", &value) == HIGHWIRE_OK) {
        called->left = atoi(value.length == 1 ? "1" : "100000000");
        called->pauses = value.data[0] == 'p' ? 20 : value.data[0] == 's' ? -1 : value.data[0] == 'c' ? -2 : 0;
        EXPECT(highwire_call_on_part(call, count_part, called), HIGHWIRE_OK);
    }
    EXPECT(highwire_call_new(client, "GET", url, &other), HIGHWIRE_OK);
    EXPECT(highwire_call_wait(other, &reply), HIGHWIRE_WRONG_THREAD);
    EXPECT(highwire_call_send(other, was_called, called), HIGHWIRE_INVALID_HANDLE);
    EXPECT(highwire_call_cancel(call), HIGHWIRE_WRONG_STATE);
    EXPECT(highwire_call_pause(call), HIGHWIRE_WRONG_STATE);
    EXPECT(highwire_call_send(call, was_called, called), HIGHWIRE_OK);
    EXPECT(highwire_call_send(call, was_called, called), HIGHWIRE_WRONG_STATE);
    EXPECT(highwire_call_body(call, "a", 1), HIGHWIRE_WRONG_STATE);
    EXPECT(highwire_call_free(call), HIGHWIRE_WRONG_STATE);
    if (highwire_request_query_param(request, "cancel", &value) == HIGHWIRE_OK) {
        if (value.data[0] == 't') {
            pthread_create(&called->resumer, NULL, cancel, called);
            pthread_join(called->resumer, NULL);
        } else {
            EXPECT(highwire_call_cancel(call), HIGHWIRE_OK);
        }
    }
    EXPECT(highwire_client_set(client, HIGHWIRE_CLIENT_RETRIES, 0), HIGHWIRE_WRONG_STATE);
    EXPECT(highwire_call_new(client, "GET", url, &other), HIGHWIRE_OK);
    EXPECT(highwire_call_free(other), HIGHWIRE_OK);
    EXPECT(highwire_call_new(client, "GET", "ws://127.0.0.1/", &other), HIGHWIRE_OK);
    EXPECT(highwire_call_send(other, was_called, NULL), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_call_free(other), HIGHWIRE_INVALID_HANDLE);
    EXPECT(highwire_request_body(request, &value), HIGHWIRE_WRONG_STATE);
    EXPECT(highwire_request_form_param(request, "a", &value), HIGHWIRE_WRONG_STATE);
}

/* A WebSocket of the client, to the path of a parameter. It says one thing, and the end is the answer of the request. */
struct relay {
    highwire_request request; /* 0 if a thread waits for the end. */
    pthread_mutex_t lock;
    pthread_cond_t over;
    char heard[64];
    char end[256];
};

static void relaying(highwire_websocket socket, int32_t event, uint32_t code, const void *bytes, size_t length, void *data) {
    struct relay *relay = (struct relay *)data;
    if (event == HIGHWIRE_WEBSOCKET_TEXT && length == 4 && memcmp(bytes, "open", 4) == 0) {
        say(socket, "echo of the client");
    } else if (event == HIGHWIRE_WEBSOCKET_TEXT) {
        snprintf(relay->heard, sizeof relay->heard, "%.*s", (int)length, (const char *)bytes);
        EXPECT(highwire_websocket_close(socket, 4001, "enough"), HIGHWIRE_OK);
    } else if (event == HIGHWIRE_WEBSOCKET_END) {
        char end[256];
        int used = snprintf(end, sizeof end, "%s|%u|%.*s", relay->heard, (unsigned)code, (int)length, length ? (const char *)bytes : "");
        if (relay->request.id != 0) {
            EXPECT(highwire_respond(relay->request, 200, "text/plain", end, (size_t)used), HIGHWIRE_OK);
            free(relay);
            return;
        }
        pthread_mutex_lock(&relay->lock);
        memcpy(relay->end, end, sizeof end);
        pthread_cond_signal(&relay->over);
        pthread_mutex_unlock(&relay->lock);
    }
}

static void open_relay(highwire_client client, const char *url, struct relay *relay) {
    const struct highwire_websocket_settings settings = {"c", NULL, 1000000, 60000, 1};
    highwire_call call;
    highwire_websocket socket;
    EXPECT(highwire_call_new(client, "GET", "ftp://a/", &call), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_call_new(client, "GET", url, &call), HIGHWIRE_OK);
    EXPECT(highwire_call_websocket(call, &settings, NULL, relay, &socket), HIGHWIRE_NULL);
    EXPECT(highwire_call_free(call), HIGHWIRE_INVALID_HANDLE);
    EXPECT(highwire_call_new(client, "POST", url, &call), HIGHWIRE_OK);
    EXPECT(highwire_call_websocket(call, &settings, relaying, relay, &socket), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_call_websocket(call, &settings, relaying, relay, &socket), HIGHWIRE_INVALID_HANDLE);
    EXPECT(highwire_call_new(client, "GET", url, &call), HIGHWIRE_OK);
    EXPECT(highwire_call_header(call, "Origin", "https://good.example"), HIGHWIRE_OK);
    EXPECT(highwire_call_websocket(call, &settings, relaying, relay, &socket), HIGHWIRE_OK);
}

static void relay(highwire_request request, void *data) {
    struct relay *relay = (struct relay *)calloc(1, sizeof *relay);
    highwire_string path, version;
    char url[256];
    (void)data;
    EXPECT(highwire_request_query_param(request, "path", &path), HIGHWIRE_OK);
    snprintf(url, sizeof url, "ws://%s%.*s", highwire_server_address(server, 0), (int)path.length, path.data);
    relay->request = request;
    open_relay(highwire_request_query_param(request, "http2", &version) == HIGHWIRE_OK ? client2 : client, url, relay);
}

/* Opens one from a thread that waits. */
static void wait_for_relay(void) {
    struct relay relay = {{0}, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, "", ""};
    char url[256];
    snprintf(url, sizeof url, "http://%s/socket", highwire_server_address(server, 0));
    open_relay(client, url, &relay);
    pthread_mutex_lock(&relay.lock);
    while (relay.end[0] == 0)
        pthread_cond_wait(&relay.over, &relay.lock);
    pthread_mutex_unlock(&relay.lock);
    if (strcmp(relay.end, "echo of the client|4001|") != 0) {
        fprintf(stderr, "line %d: %s\n", __LINE__, relay.end);
        abort();
    }
}

/* A call that this thread waits for, which another one ends. */
struct awaited {
    highwire_call call;
    pthread_mutex_t lock;
    pthread_cond_t came;
    int parts;
};

static int32_t pause_call(const void *part, size_t length, void *data) {
    struct awaited *awaited = (struct awaited *)data;
    (void)part;
    (void)length;
    EXPECT(highwire_call_pause(awaited->call), HIGHWIRE_OK);
    pthread_mutex_lock(&awaited->lock);
    awaited->parts++;
    pthread_cond_signal(&awaited->came);
    pthread_mutex_unlock(&awaited->lock);
    return 0;
}

static void *cancel_after_part(void *data) {
    struct awaited *awaited = (struct awaited *)data;
    pthread_mutex_lock(&awaited->lock);
    while (awaited->parts == 0)
        pthread_cond_wait(&awaited->came, &awaited->lock);
    pthread_mutex_unlock(&awaited->lock);
    EXPECT(highwire_call_cancel(awaited->call), HIGHWIRE_OK);
    return NULL;
}

static void wait_for_cancelled(const char *url) {
    struct awaited awaited;
    highwire_reply reply = {7};
    pthread_t thread;
    memset(&awaited, 0, sizeof awaited);
    pthread_mutex_init(&awaited.lock, NULL);
    pthread_cond_init(&awaited.came, NULL);
    EXPECT(highwire_call_new(client, "GET", url, &awaited.call), HIGHWIRE_OK);
    EXPECT(highwire_call_on_part(awaited.call, pause_call, &awaited), HIGHWIRE_OK);
    pthread_create(&thread, NULL, cancel_after_part, &awaited);
    EXPECT(highwire_call_wait(awaited.call, &reply), HIGHWIRE_GONE);
    pthread_join(thread, NULL);
    if (awaited.parts != 1)
        abort();
    pthread_cond_destroy(&awaited.came);
    pthread_mutex_destroy(&awaited.lock);
}

/* A body in parts that wait before the call is sent. */
static void wait_for_upload(const char *url) {
    highwire_call call;
    highwire_reply reply = {7};
    highwire_stream stream;
    highwire_string value;
    EXPECT(highwire_call_new(client, "POST", url, &call), HIGHWIRE_OK);
    EXPECT(highwire_call_stream(call, 6, never, NULL, &stream), HIGHWIRE_OK);
    EXPECT(highwire_stream_write(stream, "xxx", 3), HIGHWIRE_OK);
    EXPECT(highwire_stream_write(stream, "xxx", 3), HIGHWIRE_OK);
    EXPECT(highwire_call_wait(call, &reply), HIGHWIRE_OK);
    /* The server has answered after the announced length, before this end. */
    EXPECT(highwire_stream_end(stream), HIGHWIRE_OK);
    EXPECT(highwire_reply_body(reply, &value), HIGHWIRE_OK);
    if (value.length != 13 || memcmp(value.data, "6 HIGHWIRE_OK", 13) != 0)
        abort();
    EXPECT(highwire_reply_free(reply), HIGHWIRE_OK);
    /* A call that is never sent. */
    EXPECT(highwire_call_new(client, "POST", url, &call), HIGHWIRE_OK);
    EXPECT(highwire_call_stream(call, -1, never, NULL, &stream), HIGHWIRE_OK);
    EXPECT(highwire_call_free(call), HIGHWIRE_OK);
    EXPECT(highwire_stream_write(stream, "x", 1), HIGHWIRE_GONE);
    EXPECT(highwire_stream_abort(stream), HIGHWIRE_OK);
}

/* Calls the server from a thread that waits. */
static void wait_for_call(void) {
    highwire_call call;
    highwire_reply reply = {7};
    highwire_string name, value;
    char url[256];
    size_t at = 0;
    snprintf(url, sizeof url, "http://%s/fields", highwire_server_address(server, 0));
    EXPECT(highwire_call_new(client, "GET", url, &call), HIGHWIRE_OK);
    EXPECT(highwire_call_wait(call, &reply), HIGHWIRE_OK);
    while (highwire_reply_header_at(reply, at, &name, &value) == HIGHWIRE_OK)
        at++;
    EXPECT(highwire_reply_body(reply, &value), HIGHWIRE_OK);
    if (at < 80 || value.length != 4 || memcmp(value.data, "made", 4) != 0)
        abort();
    EXPECT(highwire_reply_free(reply), HIGHWIRE_OK);
    EXPECT(highwire_call_new(client, "GET", "http://127.0.0.1:1/", &call), HIGHWIRE_OK);
    EXPECT(highwire_call_wait(call, &reply), HIGHWIRE_FAILED);
    snprintf(url, sizeof url, "http://%s/big", highwire_server_address(server, 0));
    wait_for_cancelled(url);
    snprintf(url, sizeof url, "http://%s/upload", highwire_server_address(server, 0));
    wait_for_upload(url);
}

static void missing(highwire_request request, void *data) {
    (void)data;
    highwire_respond(request, 404, "text/plain", "nothing of that name", 20);
}

static void stop(highwire_request request, void *data) {
    highwire_stats stats;
    (void)data;
    EXPECT(highwire_server_stats(server, &stats), HIGHWIRE_OK);
    if (stats.accepted == 0)
        abort();
    text(request, "stopping");
    EXPECT(highwire_server_shutdown(server), HIGHWIRE_OK);
}

static void line(int32_t level, const char *what, void *data) {
    (void)data;
    fprintf(stderr, "log %d: %s\n", (int)level, what);
}

int main(int argc, char **argv) {
    highwire_app app, other;
    highwire_server broken;
    EXPECT(highwire_set_log(2, line, NULL), HIGHWIRE_OK);
    EXPECT(highwire_set_allocator(NULL), HIGHWIRE_NULL);
    EXPECT(highwire_set_log(2, line, NULL), HIGHWIRE_WRONG_STATE);
    EXPECT(highwire_app_new(NULL), HIGHWIRE_NULL);
    EXPECT(highwire_app_new(&other), HIGHWIRE_OK);
    EXPECT(highwire_app_route(other, "GET", "/{a}/{a}", HIGHWIRE_BODY_NONE, show, NULL), HIGHWIRE_OK);
    EXPECT(highwire_server_new(other, &broken), HIGHWIRE_SETTING);
    EXPECT(highwire_app_free(other), HIGHWIRE_INVALID_HANDLE);
    EXPECT(highwire_app_new(&other), HIGHWIRE_OK);
    EXPECT(highwire_server_new(other, &broken), HIGHWIRE_OK);
    EXPECT(highwire_server_start(broken), HIGHWIRE_SETTING);
    EXPECT(highwire_server_listen(broken, "127.0.0.1:0"), HIGHWIRE_WRONG_STATE);
    EXPECT(highwire_server_free(broken), HIGHWIRE_OK);
    EXPECT(highwire_server_free(broken), HIGHWIRE_INVALID_HANDLE);
    EXPECT(highwire_app_new(&other), HIGHWIRE_OK);
    EXPECT(highwire_server_new(other, &broken), HIGHWIRE_OK);
    EXPECT(highwire_server_listen(broken, "127.0.0.1"), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_server_free(broken), HIGHWIRE_OK);

    EXPECT(highwire_app_new(&app), HIGHWIRE_OK);
    EXPECT(highwire_app_route(app, "GET", "no-slash", HIGHWIRE_BODY_NONE, show, NULL), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_app_route(app, "G T", "/", HIGHWIRE_BODY_NONE, show, NULL), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_app_route(app, "GET", "/", 9, show, NULL), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_app_route(app, "GET", "/", HIGHWIRE_BODY_NONE, NULL, NULL), HIGHWIRE_NULL);
    EXPECT(highwire_app_set(app, 999, 1), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_app_set(app, HIGHWIRE_ENGINE, 9), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_app_set(app, HIGHWIRE_ENGINE, argc > 1 ? (uint64_t)atoi(argv[1]) : 0), HIGHWIRE_OK);
    EXPECT(highwire_app_set(app, HIGHWIRE_WORKERS, 1), HIGHWIRE_OK);
    EXPECT(highwire_app_server_name(app, "everything"), HIGHWIRE_OK);
    EXPECT(highwire_app_route(app, "*", "/show", HIGHWIRE_BODY_WHOLE, show, NULL), HIGHWIRE_OK);
    EXPECT(highwire_app_route(app, "*", "/fields", HIGHWIRE_BODY_NONE, fields, NULL), HIGHWIRE_OK);
    EXPECT(highwire_app_route(app, "GET", "/misuse", HIGHWIRE_BODY_NONE, misuse, NULL), HIGHWIRE_OK);
    EXPECT(highwire_app_route(app, "GET", "/thread/{name}", HIGHWIRE_BODY_NONE, thread, NULL), HIGHWIRE_OK);
    EXPECT(highwire_app_route(app, "*", "/wait", HIGHWIRE_BODY_NONE, wait_for_next, NULL), HIGHWIRE_OK);
    EXPECT(highwire_app_route(app, "*", "/big", HIGHWIRE_BODY_NONE, big, NULL), HIGHWIRE_OK);
    EXPECT(highwire_app_route(app, "*", "/cut", HIGHWIRE_BODY_NONE, cut, NULL), HIGHWIRE_OK);
    EXPECT(highwire_app_route(app, "POST", "/upload", HIGHWIRE_BODY_PARTS, upload, NULL), HIGHWIRE_OK);
    EXPECT(highwire_client_new(NULL), HIGHWIRE_NULL);
    EXPECT(highwire_client_new(&client), HIGHWIRE_OK);
    EXPECT(highwire_client_new(&client2), HIGHWIRE_OK);
    EXPECT(highwire_client_set(client2, HIGHWIRE_CLIENT_HTTP, 20), HIGHWIRE_OK);
    EXPECT(highwire_client_set(client, 99, 1), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_client_set(client, HIGHWIRE_CLIENT_HTTP, 12), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_client_set(client, HIGHWIRE_CLIENT_BODY_BYTES, 10000), HIGHWIRE_OK);
    EXPECT(highwire_client_set(client, HIGHWIRE_CLIENT_ENGINE, 3), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_client_set(client, HIGHWIRE_CLIENT_ENGINE, argc > 1 ? (uint64_t)atoi(argv[1]) : 0), HIGHWIRE_OK);
    EXPECT(highwire_client_set_text(client, 99, "a"), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_client_set_text(client, HIGHWIRE_CLIENT_PROXY, "nonsense://"), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_client_set_text(client, HIGHWIRE_CLIENT_USER_AGENT, "a\nb"), HIGHWIRE_INVALID_ARGUMENT);
    EXPECT(highwire_client_set_text(client, HIGHWIRE_CLIENT_USER_AGENT, "everything"), HIGHWIRE_OK);
    EXPECT(highwire_app_route(app, "GET", "/call", HIGHWIRE_BODY_NONE, call, NULL), HIGHWIRE_OK);
    EXPECT(highwire_app_route(app, "GET", "/relay", HIGHWIRE_BODY_NONE, relay, NULL), HIGHWIRE_OK);
    EXPECT(highwire_topics_new(0, NULL), HIGHWIRE_NULL);
    EXPECT(highwire_topics_new(0, &topics), HIGHWIRE_OK);
    EXPECT(highwire_app_route(app, "GET", "/socket", HIGHWIRE_BODY_NONE, open_socket, NULL), HIGHWIRE_OK);
    EXPECT(highwire_app_route(app, "GET", "/stop", HIGHWIRE_BODY_NONE, stop, NULL), HIGHWIRE_OK);
    EXPECT(highwire_app_fallback(app, HIGHWIRE_BODY_NONE, missing, NULL), HIGHWIRE_OK);
    EXPECT(highwire_server_new(app, &server), HIGHWIRE_OK);
    EXPECT(highwire_app_route(app, "GET", "/", HIGHWIRE_BODY_NONE, show, NULL), HIGHWIRE_INVALID_HANDLE);
    EXPECT(highwire_server_join(server), HIGHWIRE_WRONG_STATE);
    EXPECT(highwire_server_shutdown(server), HIGHWIRE_WRONG_STATE);
    EXPECT(highwire_server_listen(server, "127.0.0.1:0"), HIGHWIRE_OK);
    printf("http://%s\n", highwire_server_address(server, 0));
    if (highwire_server_address(server, 1) != NULL || highwire_server_address(HANDLE(highwire_server, 0), 0) != NULL)
        abort();
    fflush(stdout);
    EXPECT(highwire_server_start(server), HIGHWIRE_OK);
    wait_for_call();
    wait_for_relay();
    EXPECT(highwire_server_join(server), HIGHWIRE_OK);
    EXPECT(highwire_client_free(client2), HIGHWIRE_OK);
    EXPECT(highwire_client_free(client), HIGHWIRE_OK);
    EXPECT(highwire_client_free(client), HIGHWIRE_INVALID_HANDLE);
    EXPECT(highwire_server_free(server), HIGHWIRE_OK);
    EXPECT(highwire_topics_free(topics), HIGHWIRE_OK);
    EXPECT(highwire_topics_free(topics), HIGHWIRE_INVALID_HANDLE);
    if (opened < 4 || opened != ended) {
        fprintf(stderr, "line %d: %d WebSockets were opened, %d ended\n", __LINE__, opened, ended);
        return 1;
    }
    return 0;
}
