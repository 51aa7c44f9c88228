/* A server inside a libevent loop (Debian: libevent-dev), which also has a timer. SIGINT and SIGTERM stop it.
 *
 *     cc libevent_loop.c $(pkg-config --cflags --libs highwire libevent) -o libevent_loop && ./libevent_loop 127.0.0.1:8080
 */
#include <event2/event.h>
#include <highwire.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>

static highwire_loop server_loop;
static struct event_base *base;
static unsigned long long ticks;

static void count(highwire_request request, void *data) {
    char text[64];
    (void)data;
    /* The handler runs in this thread, in highwire_loop_turn, so it needs no lock. */
    int length = snprintf(text, sizeof text, "%llu ticks\n", ticks);
    highwire_respond(request, 200, "text/plain", text, (size_t)length);
}

static void on_tick(evutil_socket_t none, short what, void *data) {
    (void)none;
    (void)what;
    (void)data;
    ticks++;
}

static void turn(evutil_socket_t descriptor, short what, void *data) {
    int ended = 0;
    (void)descriptor;
    (void)what;
    (void)data;
    if (highwire_loop_turn(server_loop, &ended) != HIGHWIRE_OK)
        fprintf(stderr, "%s\n", highwire_last_error());
    else if (!ended)
        return;
    event_base_loopbreak(base);
}

static void stop(evutil_socket_t number, short what, void *data) {
    highwire_loop_shutdown(server_loop);
    turn(number, what, data);
}

int main(int argc, char **argv) {
    highwire_app app;
    highwire_server server;
    int descriptor;
    struct timeval every = {0, 10000};
    if (highwire_app_new(&app) || highwire_app_route(app, "GET", "/ticks", HIGHWIRE_BODY_NONE, count, NULL) ||
        highwire_server_new(app, &server) || highwire_server_listen(server, argc > 1 ? argv[1] : "127.0.0.1:8080") ||
        highwire_loop_new(server, 0, &server_loop) || highwire_loop_descriptor(server_loop, &descriptor)) {
        fprintf(stderr, "%s\n", highwire_last_error());
        return 1;
    }
    printf("http://%s\n", highwire_server_address(server, 0));
    fflush(stdout);
    base = event_base_new();
    struct event *events[] = {
        event_new(base, descriptor, EV_READ | EV_PERSIST, turn, NULL),
        event_new(base, -1, EV_PERSIST, on_tick, NULL),
        evsignal_new(base, SIGINT, stop, NULL),
        evsignal_new(base, SIGTERM, stop, NULL),
    };
    for (size_t at = 0; at < sizeof events / sizeof *events; at++)
        event_add(events[at], at == 1 ? &every : NULL);
    /* The first turn begins to accept. */
    turn(descriptor, EV_READ, NULL);
    event_base_dispatch(base);
    for (size_t at = 0; at < sizeof events / sizeof *events; at++)
        event_free(events[at]);
    event_base_free(base);
    highwire_loop_free(server_loop);
    highwire_server_free(server);
    return 0;
}
