/* The ways to answer: with header fields and a cookie, from another thread, and in parts as fast as the client takes them.
 *
 *     cc answers.c $(pkg-config --cflags --libs highwire) -lpthread -o answers
 *     ./answers 127.0.0.1:8080
 *     curl -d language=fr http://127.0.0.1:8080/language        # sets a cookie
 *     curl -b language=fr http://127.0.0.1:8080/language        # reads it
 *     curl http://127.0.0.1:8080/primes/100000                  # computed by another thread
 *     curl http://127.0.0.1:8080/numbers/1000000                # in parts
 */
#include <highwire.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Answers with a text that ends with a NUL. */
static void answer(highwire_request request, uint32_t status, const char *text) {
    highwire_respond(request, status, "text/plain", text, strlen(text));
}

/* Returns the number in a parameter of the path, or -1. */
static long number(highwire_request request, const char *name) {
    highwire_string value;
    char text[16], *end;
    long found;
    if (highwire_request_param(request, name, &value) != HIGHWIRE_OK || value.length == 0 || value.length >= sizeof text)
        return -1;
    memcpy(text, value.data, value.length);
    text[value.length] = 0;
    found = strtol(text, &end, 10);
    return *end == 0 ? found : -1;
}

/* A response with a header field. The field of a form is bytes of a stranger, so only known values reach the cookie. */
static void set_language(highwire_request request, void *data) {
    static const char *const KNOWN[] = {"de", "en", "fr"};
    highwire_string language;
    highwire_response response = {0};
    char cookie[64];
    (void)data;
    if (highwire_request_form_param(request, "language", &language) != HIGHWIRE_OK) {
        answer(request, 400, "the field `language` is missing\n");
        return;
    }
    for (size_t at = 0; at < sizeof KNOWN / sizeof *KNOWN; at++) {
        if (language.length != strlen(KNOWN[at]) || memcmp(language.data, KNOWN[at], language.length) != 0)
            continue;
        snprintf(cookie, sizeof cookie, "language=%s; Path=/; HttpOnly; SameSite=Lax", KNOWN[at]);
        if (highwire_response_new(303, &response) || highwire_response_header(response, "Set-Cookie", cookie) ||
            highwire_response_header(response, "Location", "/language")) {
            highwire_response_free(response); /* Does nothing if there is none. */
            answer(request, 500, "out of luck\n");
            return;
        }
        highwire_respond_with(request, response); /* Frees the response. */
        return;
    }
    answer(request, 422, "unknown language\n");
}

static void show_language(highwire_request request, void *data) {
    highwire_string language;
    (void)data;
    if (highwire_request_cookie(request, "language", &language) == HIGHWIRE_OK)
        highwire_respond(request, 200, "text/plain", language.data, language.length);
    else
        answer(request, 200, "no language\n");
}

/* Long work, which must not keep the worker from its other connections. A real program gives it to a fixed set of threads. */
struct work {
    highwire_request request;
    long limit;
};

static void *count_primes(void *data) {
    struct work *work = (struct work *)data;
    char text[32];
    long count = 0;
    for (long candidate = 2; candidate < work->limit; candidate++) {
        long divisor = 2;
        while (divisor * divisor <= candidate && candidate % divisor != 0)
            divisor++;
        count += divisor * divisor > candidate;
        if (candidate % 65536 == 0 && highwire_request_is_wanted(work->request) != HIGHWIRE_OK)
            break; /* The client is gone. Its request must be answered all the same. */
    }
    snprintf(text, sizeof text, "%ld\n", count);
    answer(work->request, 200, text);
    free(work);
    return NULL;
}

static void primes(highwire_request request, void *data) {
    struct work *work = (struct work *)malloc(sizeof *work);
    pthread_t thread;
    (void)data;
    if (work == NULL || (work->limit = number(request, "limit")) < 0 || work->limit > 10000000) {
        answer(request, 400, "the limit is a number up to 10000000\n");
        free(work);
        return;
    }
    work->request = request;
    /* Before another thread has the request. */
    if (highwire_request_defer(request) == HIGHWIRE_OK && pthread_create(&thread, NULL, count_primes, work) == 0) {
        pthread_detach(thread);
        return;
    }
    answer(request, 503, "no thread\n");
    free(work);
}

/* A body in parts. */
struct body {
    long next, last;
};

/* Writes until there is no room, or all is written. */
static void write_numbers(highwire_stream stream, struct body *body) {
    char text[32];
    while (body->next <= body->last) {
        int length = snprintf(text, sizeof text, "%ld\n", body->next);
        enum highwire_result written = highwire_stream_write(stream, text, (size_t)length);
        if (written == HIGHWIRE_AGAIN)
            return; /* There will be a call when there is room. */
        if (written != HIGHWIRE_OK)
            break; /* The client is gone. */
        body->next++;
    }
    highwire_stream_end(stream);
    free(body);
}

/* Runs on the request's worker. */
static void has_room(highwire_stream stream, enum highwire_result result, void *data) {
    if (result == HIGHWIRE_OK) {
        write_numbers(stream, (struct body *)data);
    } else {
        highwire_stream_abort(stream);
        free(data);
    }
}

static void numbers(highwire_request request, void *data) {
    struct body *body = (struct body *)malloc(sizeof *body);
    highwire_response response = {0};
    highwire_stream stream;
    (void)data;
    if (body == NULL || (body->last = number(request, "last")) < 0) {
        answer(request, 400, "not a number\n");
        free(body);
        return;
    }
    body->next = 1;
    if (highwire_response_new(200, &response) || highwire_response_header(response, "Content-Type", "text/plain") ||
        highwire_respond_stream(request, response, -1, has_room, body, &stream)) {
        highwire_response_free(response);
        answer(request, 500, "out of luck\n");
        free(body);
        return;
    }
    write_numbers(stream, body);
}

int main(int argc, char **argv) {
    highwire_app app;
    highwire_server server;
    if (highwire_app_new(&app) ||
        highwire_app_route(app, "POST", "/language", HIGHWIRE_BODY_WHOLE, set_language, NULL) ||
        highwire_app_route(app, "GET", "/language", HIGHWIRE_BODY_NONE, show_language, NULL) ||
        highwire_app_route(app, "GET", "/primes/{limit}", HIGHWIRE_BODY_NONE, primes, NULL) ||
        highwire_app_route(app, "GET", "/numbers/{last}", HIGHWIRE_BODY_NONE, numbers, NULL) ||
        highwire_server_new(app, &server) || highwire_server_listen(server, argc > 1 ? argv[1] : "127.0.0.1:8080")) {
        fprintf(stderr, "%s\n", highwire_last_error());
        return 1;
    }
    printf("http://%s\n", highwire_server_address(server, 0));
    fflush(stdout);
    int result = highwire_server_run(server) == HIGHWIRE_OK ? 0 : 1;
    highwire_server_free(server);
    return result;
}
