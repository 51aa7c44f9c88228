// The completion floor for one core: floor_uring PORT
//
// The same program as floor_epoll through io_uring: multishot accept, multishot receive into a ring of provided
// buffers, and one io_uring_enter per turn, which submits all sends and waits for one completion. No parsing,
// routing, dates or limits, so that no real server can be faster with these operations.
//
// Not a real server: it misses the end of a head that is split between two buffers, and loses the rest of a short
// send. The load generator causes neither. The caller sets the descriptor limit.
//
//     gcc -O3 -march=native -Wall -Wextra floor_uring.c -o floor_uring -luring        # Debian: liburing-dev
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <liburing.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "answer.h"

enum {
    BUFFERS = 1024,                 // 4 MiB: more than one turn fills, so that ENOBUFS is rare.
    BUFFER = 4096,                  // Takes a pipelined batch of 64 requests of wrk.
    COPIES = BUFFER / 4,            // A buffer cannot contain more ends of heads.
    ANSWER = sizeof answer - 1,
    SQ = 2048,                      // The sends of a turn fit without an early submit.
    CQ = 8192,                      // Beyond that the kernel uses a slower overflow list.
};

// The kind of operation, in the bits of user_data above the descriptor.
#define ACCEPT (1ull << 62)
#define SEND (1ull << 61)
#define RECV (1ull << 60)

static struct io_uring ring;

static struct io_uring_sqe *next_sqe(void) {
    struct io_uring_sqe *s;
    while (!(s = io_uring_get_sqe(&ring))) io_uring_submit(&ring);
    return s;
}

static void arm_accept(int l) {
    struct io_uring_sqe *s = next_sqe();
    io_uring_prep_multishot_accept(s, l, 0, 0, 0);
    io_uring_sqe_set_data64(s, ACCEPT);
}

static void arm_recv(int fd) {
    struct io_uring_sqe *s = next_sqe();
    io_uring_prep_recv_multishot(s, fd, NULL, 0, 0);
    s->flags |= IOSQE_BUFFER_SELECT;
    s->buf_group = 0;
    io_uring_sqe_set_data64(s, RECV | fd);
}

static void queue_send(int fd, const char *out, size_t len) {
    struct io_uring_sqe *s = next_sqe();
    io_uring_prep_send(s, fd, out, len, MSG_NOSIGNAL);
    s->flags |= IOSQE_CQE_SKIP_SUCCESS;
    io_uring_sqe_set_data64(s, SEND | fd);
}

static int listen_on(int port) {
    int on = 1, l = socket(AF_INET, SOCK_STREAM, 0);
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
    if (argc < 2) return fprintf(stderr, "usage: floor_uring PORT\n"), 2;
    int l = listen_on(atoi(argv[1])), on = 1;

    char *out = malloc((size_t)ANSWER * COPIES);
    for (int i = 0; i < COPIES; i++) memcpy(out + i * ANSWER, answer, ANSWER);

    struct io_uring_params p = {
        .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE, .cq_entries = CQ};
    int err = io_uring_queue_init_params(SQ, &ring, &p);
    if (err) return fprintf(stderr, "io_uring: %s\n", strerror(-err)), 2;

    struct io_uring_buf_ring *br = aligned_alloc(4096, BUFFERS * sizeof(struct io_uring_buf));
    struct io_uring_buf_reg reg = {.ring_addr = (unsigned long)br, .ring_entries = BUFFERS, .bgid = 0};
    if (io_uring_register_buf_ring(&ring, &reg, 0)) return fprintf(stderr, "io_uring: no buffer ring\n"), 3;
    io_uring_buf_ring_init(br);
    char *bufs = malloc((size_t)BUFFERS * BUFFER);
    for (int i = 0; i < BUFFERS; i++) io_uring_buf_ring_add(br, bufs + i * BUFFER, BUFFER, i, BUFFERS - 1, i);
    io_uring_buf_ring_advance(br, BUFFERS);

    arm_accept(l);
    for (;;) {
        io_uring_submit_and_wait(&ring, 1);
        struct io_uring_cqe *c;
        unsigned head, seen = 0;
        int given = 0;
        io_uring_for_each_cqe(&ring, head, c) {
            seen++;
            unsigned long long d = c->user_data;
            int fd = (int)(d & 0xffffffff);
            if (d & ACCEPT) {
                if (c->res >= 0) {
                    setsockopt(c->res, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                    arm_recv(c->res);
                }
                if (!(c->flags & IORING_CQE_F_MORE)) arm_accept(l);
            } else if (d & RECV) {
                if (c->res > 0) {
                    int id = c->flags >> IORING_CQE_BUFFER_SHIFT;
                    char *b = bufs + id * BUFFER, *q = b, *end = b + c->res;
                    size_t heads = 0;
                    while ((q = memmem(q, end - q, "\r\n\r\n", 4))) {
                        heads++;
                        q += 4;
                    }
                    if (heads) queue_send(fd, out, heads * ANSWER);
                    io_uring_buf_ring_add(br, b, BUFFER, id, BUFFERS - 1, given++);
                    if (!(c->flags & IORING_CQE_F_MORE)) arm_recv(fd);
                } else if (c->res == -ENOBUFS) {
                    arm_recv(fd);
                } else {
                    close(fd);
                }
            }
        }
        io_uring_cq_advance(&ring, seen);
        io_uring_buf_ring_advance(br, given);
    }
}
