// The floor of clients for one core: floor_client PORT REQUESTS CONNECTIONS
//
// Sends `GET /hello` on each connection, and the next one when the response has come, through io_uring as floor_uring
// does. It finds the end of a response by its length, which the first response of each connection shows. No URLs, pools,
// deadlines or tasks, so that no real client can be faster with these operations. Prints what client_cost prints.
//
//     gcc -O3 -march=native -Wall -Wextra floor_client.c -o floor_client -luring        # Debian: liburing-dev
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <liburing.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BUFFERS = 1024, BUFFER = 4096, SQ = 2048, CQ = 8192, MOST = 65536 };

#define SEND (1ull << 61)
#define RECV (1ull << 60)

static struct io_uring ring;
static const char request[] = "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";
static int length[MOST];   // Of the response, by descriptor; 0 before the first one.
static int got[MOST];      // The received bytes of the current response.

static struct io_uring_sqe *next_sqe(void) {
    struct io_uring_sqe *s;
    while (!(s = io_uring_get_sqe(&ring))) io_uring_submit(&ring);
    return s;
}

static void arm_recv(int fd) {
    struct io_uring_sqe *s = next_sqe();
    io_uring_prep_recv_multishot(s, fd, NULL, 0, 0);
    s->flags |= IOSQE_BUFFER_SELECT;
    s->buf_group = 0;
    io_uring_sqe_set_data64(s, RECV | fd);
}

static void queue_send(int fd) {
    struct io_uring_sqe *s = next_sqe();
    io_uring_prep_send(s, fd, request, sizeof request - 1, MSG_NOSIGNAL);
    s->flags |= IOSQE_CQE_SKIP_SUCCESS;
    io_uring_sqe_set_data64(s, SEND | fd);
}

static double seconds(struct timeval t) { return t.tv_sec + t.tv_usec / 1e6; }

static double cpu(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return seconds(u.ru_utime) + seconds(u.ru_stime);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc < 4) return fprintf(stderr, "usage: floor_client PORT REQUESTS CONNECTIONS\n"), 2;
    long requests = atol(argv[2]), connections = atol(argv[3]), left, open = 0;
    int on = 1;

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

    for (long i = 0; i < connections; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in a = {
            .sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        if (fd < 0 || fd >= MOST || connect(fd, (void *)&a, sizeof a)) return perror("connect"), 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        arm_recv(fd);
        queue_send(fd);
        open++;
    }
    // Two responses for each connection are not counted.
    left = requests + connections;
    double begun = 0, used = 0;
    while (open > 0) {
        io_uring_submit_and_wait(&ring, 1);
        struct io_uring_cqe *c;
        unsigned head, seen = 0;
        int given = 0;
        io_uring_for_each_cqe(&ring, head, c) {
            seen++;
            unsigned long long d = c->user_data;
            int fd = (int)(d & 0xffffffff);
            if (!(d & RECV)) continue;
            if (c->res <= 0 && c->res != -ENOBUFS) return fprintf(stderr, "the server has closed a connection\n"), 1;
            if (c->res > 0) {
                int id = c->flags >> IORING_CQE_BUFFER_SHIFT;
                char *b = bufs + id * BUFFER;
                if (!length[fd]) length[fd] = c->res;
                got[fd] += c->res;
                io_uring_buf_ring_add(br, b, BUFFER, id, BUFFERS - 1, given++);
                if (got[fd] >= length[fd]) {
                    got[fd] = 0;
                    if (left == requests) begun = now(), used = cpu();
                    if (left-- > 0) queue_send(fd);
                    else open--;
                }
            }
            if (!(c->flags & IORING_CQE_F_MORE)) arm_recv(fd);
        }
        io_uring_cq_advance(&ring, seen);
        io_uring_buf_ring_advance(br, given);
    }
    double elapsed = now() - begun, cost = cpu() - used;
    printf("%.0f requests/s, %.3f us CPU a request\n", requests / elapsed, cost * 1e6 / requests);
}
