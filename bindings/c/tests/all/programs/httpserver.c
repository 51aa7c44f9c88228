/* A program with the interface of httpserver.h, for the tests: what its users rely on. Run it with a port, and with "poll" to serve
 * by http_server_poll. */
#define HTTP_MAX_REQUEST_BUF_SIZE 4096
#define HTTP_REQUEST_TIMEOUT 5
#define HTTPSERVER_IMPL
#include <httpserver.h>
#include <httpserver.h>
/* The header brings those of the system that the original brings. */
#include <pthread.h>

static struct http_server_s *server, *second;
static int chunks_left, port;
static void chunk_sent(struct http_request_s *request);

static int is(struct http_string_s string, char const *text) {
    return (size_t)string.len == strlen(text) && memcmp(string.buf, text, strlen(text)) == 0;
}

static void text(struct http_request_s *request, int status, char const *what) {
    char *copy = strdup(what);
    struct http_response_s *response = http_response_init();
    http_response_status(response, status);
    http_response_header(response, "X-One", "1");
    http_response_header(response, "X-Two", copy);
    http_response_body(response, copy, (int)strlen(copy));
    http_respond(request, response);
    free(copy); /* It is no longer needed. */
}

static void *fill(void *response) {
    http_response_status((struct http_response_s *)response, 201);
    http_response_header((struct http_response_s *)response, "X-Thread", "yes");
    http_response_body((struct http_response_s *)response, "filled", 6);
    return NULL;
}

/* A timer of the program, on the server's own descriptor. */
struct timer {
    void (*handler)(struct epoll_event *event);
    int descriptor;
    struct http_request_s *request;
    /* As the handler was given them. */
    struct http_string_s target, token, body;
};

static void timer_fired(struct epoll_event *event) {
    struct timer *timer = (struct timer *)event->data.ptr;
    close(timer->descriptor);
    /* Much later, and the request is still the same. */
    if (!is(http_request_method(timer->request), timer->body.len > 0 ? "POST" : "GET"))
        abort();
    if (is(http_request_target(timer->request), "/tick")) {
        /* The callbacks come although no turn of the server runs now. */
        chunks_left = 2;
        chunk_sent(timer->request);
    } else if (timer->token.len > 0) {
        char out[400];
        snprintf(out, sizeof out, "%.*s|%.*s|%.*s", timer->target.len, timer->target.buf, timer->token.len,
                 timer->token.buf, timer->body.len, timer->body.buf ? timer->body.buf : "");
        text(timer->request, 200, out);
    } else
        text(timer->request, 200, "later");
    free(timer);
}

static void later(struct http_request_s *request) {
    struct epoll_event event;
    struct itimerspec once;
    struct timer *timer = (struct timer *)malloc(sizeof *timer);
    memset(&once, 0, sizeof once);
    once.it_value.tv_nsec = 20000000;
    timer->handler = timer_fired;
    timer->descriptor = timerfd_create(CLOCK_MONOTONIC, 0);
    timer->request = request;
    timer->target = http_request_target(request);
    timer->token = http_request_header(request, "X-Token");
    timer->body = http_request_body(request);
    timerfd_settime(timer->descriptor, 0, &once, NULL);
    memset(&event, 0, sizeof event);
    event.events = EPOLLIN;
    event.data.ptr = timer;
    epoll_ctl(http_server_loop(server), EPOLL_CTL_ADD, timer->descriptor, &event);
}

static void headers(struct http_request_s *request) {
    char out[2000];
    int used = 0, iter = 0;
    struct http_string_s key, value;
    while (http_request_iterate_headers(request, &key, &value, &iter))
        used += snprintf(out + used, sizeof out - (size_t)used, "%.*s=%.*s;", key.len, key.buf, value.len, value.buf);
    if (http_request_header(request, "absent").buf != NULL || http_request_header(request, "ABSENT").len != 0)
        abort();
    value = http_request_header(request, "x-a");
    snprintf(out + used, sizeof out - (size_t)used, "%.*s", value.len, value.buf);
    text(request, 200, out);
}

static void chunk_sent(struct http_request_s *request) {
    struct http_response_s *response = http_response_init();
    if (chunks_left-- > 0) {
        http_response_status(response, 500); /* Has no effect now. */
        http_response_body(response, "chunk,", 6);
        http_respond_chunk(request, response, chunk_sent);
    } else {
        http_response_header(response, "X-Trailer", "end");
        http_respond_chunk_end(request, response);
    }
}

static void chunked(struct http_request_s *request) {
    struct http_response_s *response = http_response_init();
    chunks_left = 3;
    http_response_status(response, 201);
    http_response_header(response, "X-First", "1");
    http_response_body(response, "first,", 6);
    http_respond_chunk(request, response, chunk_sent);
}

static char part[65536];

static void more(struct http_request_s *request) {
    struct http_response_s *response = http_response_init();
    if (chunks_left-- > 0) {
        http_response_body(response, part, sizeof part);
        http_respond_chunk(request, response, more);
    } else {
        http_respond_chunk_end(request, response);
    }
}

static void big(struct http_request_s *request) {
    memset(part, 'y', sizeof part);
    chunks_left = 100;
    more(request);
}

static void chunk_read(struct http_request_s *request) {
    long *count = (long *)http_request_userdata(request);
    struct http_string_s chunk = http_request_chunk(request);
    char out[64];
    if (chunk.len > 0) {
        *count += chunk.len;
        http_request_read_chunk(request, chunk_read);
        return;
    }
    snprintf(out, sizeof out, "%ld bytes, streamed %d, body %d", *count, http_request_has_flag(request, HTTP_FLG_STREAMED),
             http_request_body(request).len);
    http_request_set_userdata(request, NULL);
    free(count);
    text(request, 200, out);
}

static void upload(struct http_request_s *request) {
    http_request_set_userdata(request, calloc(1, sizeof(long)));
    http_request_read_body(request, chunk_read);
}

static void count(struct http_request_s *request) {
    static int connections;
    char out[64];
    int *number = (int *)http_request_userdata(request);
    if (number == NULL) {
        static int numbers[64];
        number = &numbers[connections % 64];
        *number = 0;
        connections++;
        http_request_set_userdata(request, number);
    }
    snprintf(out, sizeof out, "request %d", ++*number);
    text(request, 200, out);
}

/* Sends each chunk of the body back before it reads the next one. */
static void duplex_part(struct http_request_s *request);

static void duplex_read(struct http_request_s *request) {
    http_request_read_chunk(request, duplex_part);
}

static void duplex_part(struct http_request_s *request) {
    struct http_string_s chunk = http_request_chunk(request);
    struct http_response_s *response = http_response_init();
    if (chunk.len == 0) {
        http_respond_chunk_end(request, response);
        return;
    }
    http_response_body(response, chunk.buf, chunk.len);
    http_respond_chunk(request, response, duplex_read);
}

static void duplex(struct http_request_s *request) {
    struct http_response_s *response = http_response_init();
    http_response_body(response, "begin", 5);
    http_respond_chunk(request, response, duplex_read);
}

/* Another thread answers. */
static void *answer(void *request) {
    struct http_response_s *response = http_response_init();
    http_response_status(response, 202);
    http_response_body(response, "from another thread", 19);
    http_respond((struct http_request_s *)request, response);
    return NULL;
}

static void elsewhere(struct http_request_s *request, int waits) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, answer, request) != 0)
        abort();
    if (waits)
        pthread_join(thread, NULL);
    else
        pthread_detach(thread);
}

static void handle(struct http_request_s *request) {
    struct http_string_s target = http_request_target(request), body = http_request_body(request);
    if (http_request_server_userdata(request) != (void *)&server)
        abort();
    if (is(target, "/filled")) {
        /* Another thread fills the response while the handler waits. */
        struct http_response_s *response = http_response_init();
        pthread_t filler;
        if (pthread_create(&filler, NULL, fill, response) == 0)
            pthread_join(filler, NULL);
        http_respond(request, response);
    } else if (is(target, "/duplex")) {
        duplex(request);
    } else if (is(target, "/elsewhere")) {
        elsewhere(request, 0);
    } else if (is(target, "/elsewhere/before")) {
        elsewhere(request, 1);
    } else if (is(target, "/terminated")) {
        text(request, 200, body.buf[body.len] == 0 ? "a NUL" : "none");
    } else if (is(target, "/count"))
        count(request);
    else if (is(target, "/headers"))
        headers(request);
    else if ((target.len >= 6 && memcmp(target.buf, "/later", 6) == 0) || is(target, "/tick"))
        later(request);
    else if (is(target, "/chunked"))
        chunked(request);
    else if (is(target, "/big"))
        big(request);
    else if (is(target, "/upload"))
        upload(request);
    else if (is(target, "/echo?x")) {
        struct http_response_s *response = http_response_init();
        http_response_body(response, body.buf, body.len);
        http_respond(request, response);
        http_respond(request, response); /* Does nothing. */
        http_response_status(response, 500);
    } else if (is(target, "/close")) {
        http_request_connection(request, HTTP_AUTOMATIC);
        http_request_connection(request, HTTP_CLOSE);
        text(request, 200, "closing");
    } else if (is(target, "/free")) {
        http_request_free_buffer(request);
        text(request, 999, "wrong status");
    } else if (is(target, "/split")) {
        struct http_response_s *response = http_response_init();
        http_response_header(response, "X-A", "a\r\nX-B: b");
        http_respond(request, response);
    } else if (is(target, "/nested")) {
        /* Another server is served inside of a handler. */
        while (http_server_poll(second) > 0)
            ;
        text(request, 200, "nested");
    } else if (is(target, "/own")) {
        /* A connection waits, so the server's own event is there for as long as this handler runs. */
        struct sockaddr_in address;
        int client = socket(AF_INET, SOCK_STREAM, 0);
        memset(&address, 0, sizeof address);
        address.sin_family = AF_INET;
        address.sin_port = htons((unsigned short)port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (client < 0 || connect(client, (struct sockaddr *)&address, sizeof address) != 0)
            abort();
        while (http_server_poll(server) > 0)
            ;
        close(client);
        text(request, 200, "own");
    } else if (is(target, "/stop")) {
        free(server);
        exit(0);
    } else
        text(request, 404, "nothing");
}

static void handle_second(struct http_request_s *request) {
    text(request, 200, http_request_server_userdata(request) == NULL ? "second" : "wrong");
}

static void *listen_here(void *unused) {
    (void)unused;
    return http_server_listen_addr(server, "127.0.0.1") == 0 ? NULL : &server;
}

int main(int argc, char **argv) {
    pthread_t thread;
    port = argc > 1 ? atoi(argv[1]) : 8080;
    server = http_server_init(port, handle);
    second = http_server_init(port + 1, handle_second);
    http_server_set_userdata(server, &server);
    if (http_server_loop(server) < 0 || http_server_listen_addr_poll(second, "127.0.0.1") != 0)
        return 2;
    if (argc > 2 && strcmp(argv[2], "poll") == 0) {
        if (http_server_listen_addr_poll(server, "127.0.0.1") != 0)
            return 3;
        for (;;) {
            int any = 0;
            while (http_server_poll(server) > 0)
                any = 1;
            while (http_server_poll(second) > 0)
                any = 1;
            if (!any)
                usleep(200);
        }
    }
    if (argc > 2 && strcmp(argv[2], "thread") == 0) {
        /* The server was made in this thread, and listens in another one. */
        if (pthread_create(&thread, NULL, listen_here, NULL) != 0)
            return 4;
        for (;;) {
            while (http_server_poll(second) > 0)
                ;
            usleep(200);
        }
    }
    return http_server_listen_addr(server, "127.0.0.1");
}
