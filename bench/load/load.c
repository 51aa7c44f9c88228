// A light HTTP/1.1 load generator through io_uring, so that on two cores the server saturates first.
//
//     load PORT PATH CONNECTIONS PIPELINE SECONDS [HEADERS] [--rate R] [--post FILE]
//
// Closed loop (default): every connection keeps PIPELINE requests in flight and sends the next batch when the last
// answer of the previous one has arrived. This measures throughput, and not latency, because a slow server slows
// down its own load.
//
// Open loop (--rate R): R requests per second in total, independent of the server. Batch k is due at start + k *
// PIPELINE / R on connection k mod CONNECTIONS. If that connection still waits for an answer, the batch waits in a
// queue. Latency runs from the time when a batch was due until its last answer arrives, so that a stall counts for
// every request that it delayed. A request that is unanswered a second after the end counts with its time so far.
//
// HEADERS is a file of header lines to add to each request, LF or CRLF. With --post each request is a POST of that
// file as application/json.
//
// The generator separates answers by their fixed length, which it learns from a first request on its own connection.
// All answers must therefore be a 200 with a Content-Length and have the same length. The clock starts when every
// connection is established; it is an error if one is not. Output, one line each:
//
//     Connections: N              established before the clock started
//     Requests/sec: N             answers in SECONDS
//     Latency us: p50=N p90=N p99=N p999=N max=N                            (--rate only)
//     Generator lag us: max=N     the delay of a batch by the generator; if large, distrust the latencies (--rate only)
//     Unanswered: N               requests (only with --rate, if any)
//     Served connections: N       with at least one complete answer; if fewer than Connections, the server starved some
//     Socket errors: N            closed or reset by the server, then reconnected (only if any)
//     Non-2xx answers: N          batches whose first answer was not a 200; the run is void (only if any)
//
//     gcc -O3 -march=native -Wall -Wextra load.c -o load -luring        # Debian: liburing-dev
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <liburing.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    ROOM = 8 << 20,    // Bytes of receive buffers: more than small answers fill in a turn, so that ENOBUFS is rare.
    SMALL = 8192,      // The size of a buffer. Small buffers stay in the CPU's cache.
    LARGE = 128 << 10, // The size for large answers: fewer completions, so that the server saturates first.
    SQ = 2048,
    CQ = 8192,         // The least size; at least twice the connections, so that completions never overflow.
    DIAL_SECS = 10,    // Longer than a few SYN retransmissions.
};
static const double DRAIN_SECS = 1;    // Open loop: the wait for missing answers at the end.
static const double TURN_SECS = 0.2;   // The longest wait in one turn.

// The kind of operation, in the bits of user_data above the connection's number.
#define SEND (1ull << 40)

struct conn {
    int fd;
    bool busy;            // A batch is in flight.
    bool served;          // At least one complete answer has arrived.
    size_t got;           // Received bytes of the current batch's answers.
    unsigned long turn;   // Open loop: the number of the connection's current or next batch.
    unsigned long due;    // Open loop: unanswered due batches, including the one in flight.
};

static struct io_uring ring;
static struct io_uring_buf_ring *buf_ring;
static char *bufs;
static int buffer = SMALL;           // The most bytes of one receive.
static int buffers = ROOM / SMALL;
static struct conn *conns;

static int port, n, depth;
static char *request;                // One request.
static size_t request_len;
static char *batch;                  // PIPELINE requests.
static size_t batch_len, answer_len;

static double rate, gap;             // Open loop: requests per second; seconds between batches.
static double start, end;
static unsigned long issued, waiting;    // Open loop: issued batches; unanswered ones of them.
static unsigned long done, errors, not_200;
static double lag;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double least(double a, double b) { return a < b ? a : b; }

// ---- latency: a log-linear histogram of nanoseconds, each slot at most 1/128 wide

enum { SUB = 7 };
static unsigned long slots[64 << SUB], recorded;
static double worst;

static unsigned slot_of(unsigned long ns) {
    unsigned msb = ns ? 63 - __builtin_clzl(ns) : 0, shift = msb > SUB ? msb - SUB : 0;
    return (shift << SUB) + (ns >> shift);
}

static unsigned long slot_end(unsigned slot) {
    unsigned shift = slot < 2u << SUB ? 0 : (slot >> SUB) - 1;
    return ((slot - (shift << SUB) + 1ul) << shift) - 1;
}

static void record(double secs) {
    if (secs < 0) secs = 0;
    if (secs > worst) worst = secs;
    slots[slot_of((unsigned long)(secs * 1e9))]++;
    recorded++;
}

static double percentile_us(double p) {
    unsigned long rank = (unsigned long)(p / 100 * recorded), seen = 0;
    for (unsigned i = 0; i < sizeof slots / sizeof *slots; i++)
        if ((seen += slots[i]) > rank) return least(slot_end(i) / 1e3, worst * 1e6);
    return worst * 1e6;
}

// ---- set-up

static void fail(const char *what) {
    fprintf(stderr, "load: %s\n", what);
    exit(1);
}

static void raise_files(int need) {
    struct rlimit l;
    getrlimit(RLIMIT_NOFILE, &l);
    if (l.rlim_cur >= (rlim_t)need) return;
    l.rlim_cur = need;
    if (l.rlim_max < (rlim_t)need) l.rlim_max = need;    // Needs privilege; otherwise setrlimit fails below.
    if (setrlimit(RLIMIT_NOFILE, &l)) fail("cannot raise the limit of open files to the number of connections");
}

// Returns a connected socket, or -1 and sets errno.
static int dial(void) {
    int on = 1, c = socket(AF_INET, SOCK_STREAM, 0);
    if (c < 0) return -1;
    struct timeval limit = {.tv_sec = DIAL_SECS};    // Linux applies the send timeout to connect, too.
    setsockopt(c, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (connect(c, (void *)&a, sizeof a)) {
        int e = errno;
        close(c);
        errno = e;
        return -1;
    }
    setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return c;
}

static bool established(int fd) {
    struct tcp_info info;
    socklen_t len = sizeof info;
    return !getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) && info.tcpi_state == TCP_ESTABLISHED;
}

static void dial_all(void) {
    int up = 0;
    for (int i = 0; i < n; i++) {
        if ((conns[i].fd = dial()) >= 0) continue;
        fprintf(stderr, "load: connect: %s: only %d of %d connections\n", strerror(errno), i, n);
        exit(1);
    }
    // Checked after all connects, because a server may drop accepted connections meanwhile.
    for (int i = 0; i < n; i++) up += established(conns[i].fd);
    if (up < n) {
        fprintf(stderr, "load: dropped by the server: only %d of %d connections\n", up, n);
        exit(1);
    }
    printf("Connections: %d\n", up);
    fflush(stdout);
}

// Returns the content of a file in memory from malloc.
static char *read_file(const char *path, size_t *len) {
    FILE *in = fopen(path, "r");
    char *text = NULL;
    FILE *out = open_memstream(&text, len);
    if (!in) fail("cannot read the file to post");
    for (int c; (c = getc(in)) != EOF;) putc(c, out);
    fclose(in);
    fclose(out);
    return text;
}

static void build_request(const char *path, const char *headers, const char *post) {
    FILE *out = open_memstream(&request, &request_len);
    fprintf(out, "%s %s HTTP/1.1\r\nHost: localhost:%d\r\n", post ? "POST" : "GET", path, port);
    char *body = NULL;
    size_t body_len = 0;
    if (post) {
        body = read_file(post, &body_len);
        fprintf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", body_len);
    }
    if (headers) {
        FILE *in = fopen(headers, "r");
        if (!in) fail("cannot read the file of headers");
        char *line = NULL;
        size_t room = 0;
        while (getline(&line, &room, in) >= 0) {
            line[strcspn(line, "\r\n")] = 0;
            if (*line) fprintf(out, "%s\r\n", line);    // A blank line would end the head.
        }
        free(line);
        fclose(in);
    }
    fputs("\r\n", out);
    if (body) fwrite(body, 1, body_len, out);
    fclose(out);
    free(body);

    batch_len = request_len * depth;
    batch = malloc(batch_len);
    for (int i = 0; i < depth; i++) memcpy(batch + i * request_len, request, request_len);
}

// Sends one request on its own connection to learn the length of an answer.
static void probe(void) {
    static char b[65536];
    size_t have = 0, room = sizeof b - 1;    // The later bytes of a longer answer overwrite each other.
    int fd = dial();
    if (fd < 0) fail("cannot connect");
    struct timeval limit = {.tv_sec = DIAL_SECS};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (send(fd, request, request_len, MSG_NOSIGNAL) != (ssize_t)request_len) fail("cannot send");
    do {
        ssize_t r = recv(fd, b + (have < room / 2 ? have : room / 2), room / 2, 0);
        if (r <= 0) fail("no answer");
        have += r;
        if (answer_len) continue;
        char *e = strstr(b, "\r\n\r\n");
        if (!e) continue;
        char *length = strcasestr(b, "\ncontent-length:");
        if (!length || length > e) fail("no content-length");
        answer_len = (e + 4 - b) + atol(length + 16);
    } while (!answer_len || have < answer_len);
    if (strncmp(b, "HTTP/1.1 200", 12)) {
        fprintf(stderr, "load: not 200: %.20s\n", b);
        exit(1);
    }
    close(fd);
    if (answer_len >= LARGE / 2) buffer = LARGE, buffers = ROOM / LARGE;
}

static void open_ring(void) {
    unsigned cq = CQ;
    while (cq < 2u * n) cq *= 2;
    struct io_uring_params p = {
        .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE, .cq_entries = cq};
    int err = io_uring_queue_init_params(SQ, &ring, &p);
    if (err) {
        fprintf(stderr, "load: io_uring: %s\n", strerror(-err));
        exit(2);
    }
    buf_ring = aligned_alloc(4096, buffers * sizeof(struct io_uring_buf));
    struct io_uring_buf_reg reg = {.ring_addr = (unsigned long)buf_ring, .ring_entries = buffers, .bgid = 0};
    if (io_uring_register_buf_ring(&ring, &reg, 0)) {
        fprintf(stderr, "load: io_uring: no buffer ring\n");
        exit(3);
    }
    io_uring_buf_ring_init(buf_ring);
    bufs = malloc(ROOM);
    for (int i = 0; i < buffers; i++) io_uring_buf_ring_add(buf_ring, bufs + i * buffer, buffer, i, buffers - 1, i);
    io_uring_buf_ring_advance(buf_ring, buffers);
}

// ---- the loop

static struct io_uring_sqe *next_sqe(void) {
    struct io_uring_sqe *s;
    while (!(s = io_uring_get_sqe(&ring))) io_uring_submit(&ring);
    return s;
}

static void arm_recv(int i) {
    struct io_uring_sqe *s = next_sqe();
    io_uring_prep_recv_multishot(s, conns[i].fd, NULL, 0, 0);
    s->flags |= IOSQE_BUFFER_SELECT;
    s->buf_group = 0;
    io_uring_sqe_set_data64(s, (unsigned)i);
}

static void send_batch(int i) {
    struct io_uring_sqe *s = next_sqe();
    io_uring_prep_send(s, conns[i].fd, batch, batch_len, MSG_NOSIGNAL | MSG_WAITALL);
    s->flags |= IOSQE_CQE_SKIP_SUCCESS;
    io_uring_sqe_set_data64(s, SEND | (unsigned)i);
    conns[i].busy = true;
}

static double due_at(int i, unsigned long turn) { return start + gap * (i + (double)n * turn); }

// Open loop: issues every batch that is due by t.
static void issue(double t) {
    for (double at; (at = start + gap * issued) <= t && at < end; issued++, waiting++) {
        int i = issued % n;
        if (t - at > lag) lag = t - at;
        conns[i].due++;
        if (!conns[i].busy) send_batch(i);
    }
}

static void answered(int i, double t) {
    struct conn *c = &conns[i];
    c->busy = false;
    done += depth;
    if (!rate) {
        send_batch(i);
        return;
    }
    record(t - due_at(i, c->turn));
    c->turn++;
    waiting--;
    if (--c->due) send_batch(i);
}

static void received(int i, const char *b, size_t len, double t) {
    struct conn *c = &conns[i];
    if (!c->got && memcmp(b, "HTTP/1.1 200", len < 12 ? len : 12)) not_200++;
    c->got += len;
    if (c->got >= answer_len) c->served = true;
    if (c->got < answer_len * depth) return;
    c->got -= answer_len * depth;
    answered(i, t);
}

static void dial_again(int i) {
    errors++;
    close(conns[i].fd);
    if ((conns[i].fd = dial()) < 0) fail("a connection was lost and could not be dialled again");
    conns[i].got = 0;
    arm_recv(i);
    if (conns[i].busy) send_batch(i);
}

// Submits, waits for one completion or `secs`, and handles all completions. Returns the time.
static double turn(double secs) {
    struct __kernel_timespec ts = {.tv_nsec = secs > 0 ? (long long)(secs * 1e9) : 0};
    struct io_uring_cqe *c;
    io_uring_submit_and_wait_timeout(&ring, &c, 1, &ts, NULL);
    double t = now();
    unsigned head, seen = 0;
    int given = 0;
    io_uring_for_each_cqe(&ring, head, c) {
        seen++;
        unsigned long long d = c->user_data;
        if (d == LIBURING_UDATA_TIMEOUT) continue;
        if (d & SEND) {    // Only failed sends complete; the receive on the same socket handles the end.
            errors++;
            continue;
        }
        int i = (int)d;
        if (c->res > 0) {
            int id = c->flags >> IORING_CQE_BUFFER_SHIFT;
            char *b = bufs + (size_t)id * buffer;
            received(i, b, c->res, t);
            io_uring_buf_ring_add(buf_ring, b, buffer, id, buffers - 1, given++);
            if (!(c->flags & IORING_CQE_F_MORE)) arm_recv(i);
        } else if (c->res == -ENOBUFS) {
            arm_recv(i);
        } else {
            dial_again(i);
        }
    }
    io_uring_cq_advance(&ring, seen);
    io_uring_buf_ring_advance(buf_ring, given);
    return t;
}

// Runs for `secs` and returns the elapsed seconds.
static double run(double secs) {
    for (int i = 0; i < n; i++) arm_recv(i);
    io_uring_submit(&ring);

    double t = start = now();
    end = start + secs;
    if (!rate)
        for (int i = 0; i < n; i++) send_batch(i);
    while (t < end) {
        double until = end;
        if (rate) {
            issue(t);
            until = least(end, start + gap * issued);
        }
        t = turn(least(TURN_SECS, until - now()));
    }
    return t - start;
}

static void drain(void) {
    issue(end);
    for (double t = now(); waiting && t < end + DRAIN_SECS;) t = turn(least(TURN_SECS, end + DRAIN_SECS - t));
    double t = now();
    for (int i = 0; i < n; i++)
        for (unsigned long k = 0; k < conns[i].due; k++) record(t - due_at(i, conns[i].turn + k));
}

static _Noreturn void usage(void) {
    fprintf(stderr, "usage: load PORT PATH CONNECTIONS PIPELINE SECONDS [HEADERS] [--rate R] [--post FILE]\n");
    exit(2);
}

int main(int argc, char **argv) {
    char *arg[6] = {0}, *post = NULL;
    int args = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--rate")) {
            if (++i == argc || (rate = atof(argv[i])) <= 0) usage();
        } else if (!strcmp(argv[i], "--post")) {
            if (++i == argc) usage();
            post = argv[i];
        } else if (args < 6) {
            arg[args++] = argv[i];
        } else {
            usage();
        }
    }
    if (args < 5) usage();
    port = atoi(arg[0]);
    n = atoi(arg[2]);
    depth = atoi(arg[3]);
    double secs = atof(arg[4]);
    if (port <= 0 || n <= 0 || depth <= 0 || secs <= 0) usage();
    if (rate) gap = depth / rate;

    raise_files(n + 64);
    build_request(arg[1], arg[5], post);
    probe();
    open_ring();
    conns = calloc(n, sizeof *conns);
    dial_all();

    double took = run(secs);
    printf("Requests/sec: %.2f\n", done / took);
    if (rate) {
        drain();
        printf("Latency us: p50=%.0f p90=%.0f p99=%.0f p999=%.0f max=%.0f\n", percentile_us(50), percentile_us(90),
               percentile_us(99), percentile_us(99.9), worst * 1e6);
        printf("Generator lag us: max=%.0f\n", lag * 1e6);
        if (waiting) printf("Unanswered: %lu\n", waiting * depth);
    }
    int served = 0;
    for (int i = 0; i < n; i++) served += conns[i].served;
    printf("Served connections: %d\n", served);
    if (errors) printf("Socket errors: %lu\n", errors);
    if (not_200) printf("Non-2xx answers: %lu\n", not_200);
}
