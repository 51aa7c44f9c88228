// The readiness floor for one core: floor_epoll PORT [once]
//
// Reads, counts the ends of requests with memmem, and answers with fixed bytes in one send, without parsing,
// routing, dates or limits. No real server can be faster with the same system calls (one recv, one send, a share
// of an epoll_wait). The difference between a server and its floor is the cost of the server's own code.
//
// Not a real server: it misses the end of a head that is split between two reads, and loses the rest of a short
// send. The load generator causes neither. With any second argument it closes after each read's answers, for
// comparison with one request per connection. The caller sets the descriptor limit.
//
//     gcc -O3 -march=native -Wall -Wextra floor_epoll.c -o floor_epoll
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "answer.h"

enum {
    EVENTS = 1024,         // More than a closed loop makes ready at once, so that one wait per turn suffices.
    READ = 65536,          // One recv takes any pipelined batch of the scenarios.
    COPIES = READ / 4,     // A read cannot contain more ends of heads.
    ANSWER = sizeof answer - 1,
};

static int listen_on(int port) {
    int on = 1, l = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(l, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(l, (void *)&a, sizeof a) || listen(l, 4096)) {
        perror("listen");
        exit(1);
    }
    return l;
}

int main(int argc, char **argv) {
    if (argc < 2) return fprintf(stderr, "usage: floor_epoll PORT [once]\n"), 2;
    int l = listen_on(atoi(argv[1])), once = argc > 2, on = 1;

    char *out = malloc((size_t)ANSWER * COPIES);
    for (int i = 0; i < COPIES; i++) memcpy(out + i * ANSWER, answer, ANSWER);

    int ep = epoll_create1(0);
    struct epoll_event ev = {.events = EPOLLIN, .data.fd = l}, evs[EVENTS];
    epoll_ctl(ep, EPOLL_CTL_ADD, l, &ev);

    static char buf[READ];
    for (;;) {
        int n = epoll_wait(ep, evs, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            int fd = evs[i].data.fd;
            if (fd == l) {
                int c;
                while ((c = accept4(l, 0, 0, SOCK_NONBLOCK)) >= 0) {
                    setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                    ev.events = EPOLLIN | EPOLLRDHUP;
                    ev.data.fd = c;
                    epoll_ctl(ep, EPOLL_CTL_ADD, c, &ev);
                }
                continue;
            }
            ssize_t r = recv(fd, buf, sizeof buf, 0);
            if (r <= 0) {
                if (r < 0 && errno == EAGAIN) continue;
                close(fd);
                continue;
            }
            size_t heads = 0;
            char *p = buf, *end = buf + r;
            while ((p = memmem(p, end - p, "\r\n\r\n", 4))) {
                heads++;
                p += 4;
            }
            if (heads && (send(fd, out, heads * ANSWER, MSG_NOSIGNAL) < 0 || once)) close(fd);
        }
    }
}
