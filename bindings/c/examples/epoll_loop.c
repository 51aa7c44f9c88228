/* A server inside the program's own epoll loop, which also has a timer.
 *
 *     cc epoll_loop.c $(pkg-config --cflags --libs highwire) -o epoll_loop && ./epoll_loop 127.0.0.1:8080
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <highwire.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

static unsigned long long ticks;

static void count(highwire_request request, void *data) {
    char text[64];
    (void)data;
    /* The handler runs in this thread, in highwire_loop_turn, so it needs no lock. */
    int length = snprintf(text, sizeof text, "%llu ticks\n", ticks);
    highwire_respond(request, 200, "text/plain", text, (size_t)length);
}

int main(int argc, char **argv) {
    highwire_app app;
    highwire_server server;
    highwire_loop loop;
    int descriptor, ended = 0;
    if (highwire_app_new(&app) || highwire_app_route(app, "GET", "/ticks", HIGHWIRE_BODY_NONE, count, NULL) ||
        highwire_server_new(app, &server) || highwire_server_listen(server, argc > 1 ? argv[1] : "127.0.0.1:8080") ||
        highwire_loop_new(server, 0, &loop) || highwire_loop_descriptor(loop, &descriptor)) {
        fprintf(stderr, "%s\n", highwire_last_error());
        return 1;
    }
    printf("http://%s\n", highwire_server_address(server, 0));
    fflush(stdout);

    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec every = {{0, 10000000}, {0, 10000000}};
    timerfd_settime(timer, 0, &every, NULL);
    int epoll = epoll_create1(0);
    struct epoll_event event;
    event.events = EPOLLIN;
    event.data.fd = descriptor;
    epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
    event.data.fd = timer;
    epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &event);

    while (!ended) {
        if (highwire_loop_turn(loop, &ended) != HIGHWIRE_OK) {
            fprintf(stderr, "%s\n", highwire_last_error());
            return 1;
        }
        if (!ended && epoll_wait(epoll, &event, 1, -1) == 1 && event.data.fd == timer) {
            uint64_t expired;
            if (read(timer, &expired, sizeof expired) == sizeof expired)
                ticks += expired;
        }
    }
    highwire_loop_free(loop);
    highwire_server_free(server);
    return 0;
}
