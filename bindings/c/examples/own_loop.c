/* A program whose loop is the server's own: it waits for requests, for a timer and for the end of its input, all in
 * one call. A lock that other threads need is let go around each wait.
 *
 *     cc own_loop.c -pthread $(pkg-config --cflags --libs highwire) -o own_loop && ./own_loop 127.0.0.1:8080
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <highwire.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/timerfd.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static highwire_loop loop;
static unsigned long long ticks, waits;

static void let_go(void *data) {
    (void)data;
    pthread_mutex_unlock(&lock);
}

static void take(void *data) {
    (void)data;
    pthread_mutex_lock(&lock);
    waits++;
}

static void count(highwire_request request, void *data) {
    char text[64];
    (void)data;
    /* The handler runs in this thread, which holds the lock. */
    int length = snprintf(text, sizeof text, "%llu ticks, %llu waits\n", ticks, waits);
    highwire_respond(request, 200, "text/plain", text, (size_t)length);
}

static void tick(int32_t timer, uint32_t events, void *data) {
    uint64_t expired;
    if (read(timer, &expired, sizeof expired) == sizeof expired)
        ticks += expired;
    /* A watch ends when it has been called. */
    highwire_loop_watch(loop, timer, events, tick, data);
}

static void input(int32_t descriptor, uint32_t events, void *data) {
    char bytes[256];
    if (read(descriptor, bytes, sizeof bytes) > 0)
        highwire_loop_watch(loop, descriptor, events, input, data);
    else
        highwire_loop_shutdown(loop);
}

int main(int argc, char **argv) {
    highwire_app app;
    highwire_server server;
    int ended = 0;
    if (highwire_app_new(&app) || highwire_app_route(app, "GET", "/ticks", HIGHWIRE_BODY_NONE, count, NULL) ||
        highwire_app_on_wait(app, let_go, take, NULL) || highwire_server_new(app, &server) ||
        highwire_server_listen(server, argc > 1 ? argv[1] : "127.0.0.1:8080") || highwire_loop_new(server, 0, &loop)) {
        fprintf(stderr, "%s\n", highwire_last_error());
        return 1;
    }
    printf("http://%s\n", highwire_server_address(server, 0));
    fflush(stdout);

    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec every = {{0, 10000000}, {0, 10000000}};
    timerfd_settime(timer, 0, &every, NULL);
    pthread_mutex_lock(&lock);
    if (highwire_loop_watch(loop, timer, HIGHWIRE_READABLE, tick, NULL) ||
        highwire_loop_watch(loop, 0, HIGHWIRE_READABLE, input, NULL)) {
        fprintf(stderr, "%s\n", highwire_last_error());
        return 1;
    }
    while (!ended) {
        if (highwire_loop_wait(loop, -1, &ended) != HIGHWIRE_OK) {
            fprintf(stderr, "%s\n", highwire_last_error());
            return 1;
        }
    }
    pthread_mutex_unlock(&lock);
    highwire_loop_free(loop);
    highwire_server_free(server);
    return 0;
}
