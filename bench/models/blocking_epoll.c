// I/O model: N workers, each with an epoll over *blocking* sockets.      blocking_epoll PORT WORKERS
//
// One acceptor (the main thread) gives connections to the workers in turn by adding them to a worker's epoll. A
// worker waits for readable connections, calls recv once on each, and answers every head that ends in the received
// bytes. The epoll is level-triggered: bytes that recv leaves make the connection readable again.
//
// A known server of this model (in our list of five systems, version 2.1.0) calls recv in a loop until the
// connection closes. On a blocking socket that occupies the worker for the life of one client while its others
// starve, and most of its 10,000 clients never connected. This program calls recv once per readiness, so that no
// client starves. It counts split and pipelined heads, so that each request gets one answer, continues short
// sends, and handles EMFILE, resets and SIGTERM.
//
// The weakness of the model remains: a client that does not read its answers blocks its worker in send, and with it
// all other clients of that worker. The worker drops such a client after SEND_SECS.
//
//     gcc -O3 -march=native -Wall -Wextra blocking_epoll.c -o blocking_epoll -pthread
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/time.h>

#include "model.h"

enum {
    EVENTS = 64,       // The same as in the known server.
    SEND_SECS = 5,
};

// For each descriptor, how many bytes of CRLF CRLF its last read ended with. The acceptor clears it before it gives
// the descriptor to a worker; after that only the worker uses it.
static unsigned char matched[MAX_FILES];

static bool send_all(int fd, size_t owed) {
    while (owed) {
        size_t len;
        const char *p = owed_bytes(owed, &len);
        ssize_t sent = send(fd, p, len, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        owed -= sent;
    }
    return true;
}

static void *work(void *arg) {
    int ep = (int)(long)arg;
    struct epoll_event evs[EVENTS];
    char *buf = malloc(READ);
    for (;;) {
        int n = epoll_wait(ep, evs, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            int fd = evs[i].data.fd;
            ssize_t r = recv(fd, buf, READ, 0);
            if (r <= 0 || !send_all(fd, head_ends(buf, r, &matched[fd]) * ANSWER)) close(fd);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    int port, workers, epolls[MAX_WORKERS], on = 1;
    arguments(argc, argv, &port, &workers);
    raise_files();
    prepare_answers();
    signal(SIGTERM, leave);

    int l = listen_on(port, 0);
    for (int i = 0; i < workers; i++) {
        pthread_t thread;
        epolls[i] = epoll_create1(0);
        if (epolls[i] < 0 || pthread_create(&thread, NULL, work, (void *)(long)epolls[i])) {
            perror("worker");
            return 1;
        }
    }
    struct timeval limit = {.tv_sec = SEND_SECS};
    for (unsigned next = 0;;) {
        int c = accept(l, 0, 0);
        if (c < 0) {    // No descriptors, or the client is gone: waits, so that the loop does not spin.
            usleep(10000);
            continue;
        }
        setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(c, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        matched[c] = 0;
        struct epoll_event ev = {.events = EPOLLIN, .data.fd = c};
        if (epoll_ctl(epolls[next++ % workers], EPOLL_CTL_ADD, c, &ev)) close(c);
    }
}
