/* A server inside a libuv loop (Debian: libuv1-dev), which also has a timer. SIGINT and SIGTERM stop it.
 *
 *     cc -std=gnu99 libuv_loop.c $(pkg-config --cflags --libs highwire libuv) -o libuv_loop && ./libuv_loop 127.0.0.1:8080
 */
#include <highwire.h>
#include <signal.h>
#include <stdio.h>
#include <uv.h>

static highwire_loop server_loop;
static uv_poll_t readable;
static uv_timer_t timer;
static uv_signal_t signals[2];
static unsigned long long ticks;

static void count(highwire_request request, void *data) {
    char text[64];
    (void)data;
    /* The handler runs in this thread, in highwire_loop_turn, so it needs no lock. */
    int length = snprintf(text, sizeof text, "%llu ticks\n", ticks);
    highwire_respond(request, 200, "text/plain", text, (size_t)length);
}

static void on_tick(uv_timer_t *handle) {
    (void)handle;
    ticks++;
}

static void turn(uv_poll_t *handle, int status, int events) {
    int ended = 0;
    (void)events;
    if (status < 0)
        fprintf(stderr, "%s\n", uv_strerror(status));
    else if (highwire_loop_turn(server_loop, &ended) != HIGHWIRE_OK)
        fprintf(stderr, "%s\n", highwire_last_error());
    else if (!ended)
        return;
    /* Without handles, uv_run returns. */
    uv_close((uv_handle_t *)handle, NULL);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_close((uv_handle_t *)&signals[0], NULL);
    uv_close((uv_handle_t *)&signals[1], NULL);
}

static void stop(uv_signal_t *handle, int number) {
    (void)handle;
    (void)number;
    highwire_loop_shutdown(server_loop);
    turn(&readable, 0, UV_READABLE);
}

int main(int argc, char **argv) {
    static const int NUMBERS[] = {SIGINT, SIGTERM};
    highwire_app app;
    highwire_server server;
    int descriptor;
    uv_loop_t *loop = uv_default_loop();
    if (highwire_app_new(&app) || highwire_app_route(app, "GET", "/ticks", HIGHWIRE_BODY_NONE, count, NULL) ||
        highwire_server_new(app, &server) || highwire_server_listen(server, argc > 1 ? argv[1] : "127.0.0.1:8080") ||
        highwire_loop_new(server, 0, &server_loop) || highwire_loop_descriptor(server_loop, &descriptor)) {
        fprintf(stderr, "%s\n", highwire_last_error());
        return 1;
    }
    printf("http://%s\n", highwire_server_address(server, 0));
    fflush(stdout);
    uv_timer_init(loop, &timer);
    uv_timer_start(&timer, on_tick, 10, 10);
    for (int at = 0; at < 2; at++) {
        uv_signal_init(loop, &signals[at]);
        uv_signal_start(&signals[at], stop, NUMBERS[at]);
    }
    uv_poll_init(loop, &readable, descriptor);
    uv_poll_start(&readable, UV_READABLE, turn);
    /* The first turn begins to accept. */
    turn(&readable, 0, UV_READABLE);
    uv_run(loop, UV_RUN_DEFAULT);
    uv_loop_close(loop);
    highwire_loop_free(server_loop);
    highwire_server_free(server);
    return 0;
}
