// I/O model: a third-party event loop.      libevent PORT WORKERS
//
// libevent 2.1: an evconnlistener on the main thread's event_base accepts connections and gives them to the workers
// in turn. Each worker has an event_base, in which every connection has a persistent read event. The worker calls
// recv once per readiness; bytes that recv leaves make the event fire again. The sockets do not block: after a short
// send the connection waits for writability and does not read meanwhile.
//
// A known server of this model (in our list of five systems, version 3.x) leaks a new one-shot event for each wake,
// treats every read as one request, and loses the rest of a short send. This program does not.
//
//     gcc -O3 -march=native -Wall -Wextra libevent.c -o libevent -levent_core -levent_pthreads -pthread
//                                                                                   (Debian: libevent-dev)
#define _GNU_SOURCE
#include <event2/event.h>
#include <event2/listener.h>
#include <event2/thread.h>
#include <pthread.h>

#include "model.h"

struct conn {
    struct event *readable, *writable;
    size_t owed;              // Bytes of answers that the socket has not taken yet.
    bool waiting;             // True while it waits for writability and does not read.
    unsigned char matched;    // How many bytes of CRLF CRLF the last read ended with.
};

static struct event_base *bases[MAX_WORKERS];
static int workers;

static void drop(struct conn *c) {
    int fd = event_get_fd(c->readable);
    event_free(c->readable);
    event_free(c->writable);
    close(fd);
    free(c);
}

static void turn_to(struct event *on, struct event *off) {
    event_del(off);
    event_add(on, NULL);
}

static void flush(struct conn *c) {
    while (c->owed) {
        size_t len;
        const char *p = owed_bytes(c->owed, &len);
        ssize_t sent = send(event_get_fd(c->readable), p, len, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            if (!c->waiting) turn_to(c->writable, c->readable);
            c->waiting = true;
            return;
        }
        if (sent <= 0) {
            drop(c);
            return;
        }
        c->owed -= sent;
    }
    if (c->waiting) turn_to(c->readable, c->writable);
    c->waiting = false;
}

static void on_readable(evutil_socket_t fd, short what, void *arg) {
    (void)what;
    struct conn *c = arg;
    static __thread char buf[READ];
    ssize_t r = recv(fd, buf, sizeof buf, 0);
    if (r < 0 && errno == EAGAIN) return;
    if (r <= 0) {
        drop(c);
        return;
    }
    c->owed = head_ends(buf, r, &c->matched) * ANSWER;
    if (c->owed) flush(c);
}

static void on_writable(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    flush(arg);
}

static void on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *a, int len, void *arg) {
    (void)l, (void)a, (void)len, (void)arg;
    static unsigned next;
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct event_base *base = bases[next++ % workers];
    struct conn *c = calloc(1, sizeof *c);
    c->writable = event_new(base, fd, EV_WRITE | EV_PERSIST, on_writable, c);
    c->readable = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, c);
    event_add(c->readable, NULL);    // Must be last: from here on the worker owns the connection.
}

static void on_refused(struct evconnlistener *l, void *arg) {
    (void)l, (void)arg;
    usleep(10000);    // No descriptors: waits, so that the loop does not spin.
}

static void *work(void *base) {
    event_base_loop(base, EVLOOP_NO_EXIT_ON_EMPTY);
    return NULL;
}

int main(int argc, char **argv) {
    int port;
    arguments(argc, argv, &port, &workers);
    raise_files();
    prepare_answers();
    signal(SIGTERM, leave);
    evthread_use_pthreads();    // Before the first base, because the acceptor adds events to the workers' bases.

    for (int i = 0; i < workers; i++) {
        pthread_t thread;
        bases[i] = event_base_new();
        if (!bases[i] || pthread_create(&thread, NULL, work, bases[i])) {
            perror("worker");
            return 1;
        }
    }
    struct event_base *base = event_base_new();
    struct evconnlistener *listener =
        evconnlistener_new(base, on_accept, NULL, LEV_OPT_CLOSE_ON_FREE, 0, listen_on(port, SOCK_NONBLOCK));
    evconnlistener_set_error_cb(listener, on_refused);
    event_base_dispatch(base);
}
