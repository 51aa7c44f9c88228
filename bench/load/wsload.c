// A light closed-loop WebSocket echo load generator through io_uring.
// wsload PORT PATH CONNECTIONS BYTES SECONDS: each connection keeps one masked frame of BYTES in flight, text or, from 16 KiB, binary, and counts
// echoes by length. wsload PORT PATH CONNECTIONS BYTES SECONDS fan: the first connection sends a frame, which the server sends to
// all; when all have it, the next one follows. Counts the frames that are received.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <liburing.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
enum { NBUF = 1024, BSZ = 8192 };
static struct io_uring ring;
static struct io_uring_sqe *sqe(void) { struct io_uring_sqe *s; while (!(s = io_uring_get_sqe(&ring))) io_uring_submit(&ring); return s; }
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static const char *path;
static int tcp(int port) {
  int on = 1, c = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (connect(c, (void *)&a, sizeof a)) { perror("connect"); exit(1); }
  setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return c;
}
static int dial(int port) {
  int c = tcp(port); char b[4096]; size_t have = 0;
  int n = snprintf(b, sizeof b, "GET %s HTTP/1.1\r\nHost: localhost:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n", path, port);
  send(c, b, n, 0);
  for (;;) {
    ssize_t r = recv(c, b + have, 1, 0); if (r <= 0) { fprintf(stderr, "no handshake\n"); exit(1); }
    have += r; b[have] = 0; if (have >= 4 && !memcmp(b + have - 4, "\r\n\r\n", 4)) break;
  }
  if (strncmp(b, "HTTP/1.1 101", 12)) { fprintf(stderr, "not 101: %.30s\n", b); exit(1); }
  return c;
}
struct conn { int fd; size_t got; };
int main(int argc, char **argv) {
  int port = atoi(argv[1]), n = atoi(argv[3]), depth = atoi(argv[4]); double secs = atof(argv[5]); path = argv[2];
  int size = depth, fan = argc > 6, waiting = n; depth = 1;
  char *req = malloc(size + 14); size_t h = 0; req[h++] = (char)(size < 16384 ? 0x81 : 0x82);
  if (size < 126) req[h++] = (char)(0x80 | size);
  else if (size < 65536) { req[h++] = (char)(0x80 | 126); req[h++] = (char)(size >> 8); req[h++] = (char)size; }
  else { req[h++] = (char)(0x80 | 127); for (int i = 7; i >= 0; i--) req[h++] = (char)((unsigned long)size >> (8 * i)); }
  size_t want = h + size; const unsigned char key[4] = {0x12, 0x34, 0x56, 0x78};
  memcpy(req + h, key, 4); h += 4;
  for (int i = 0; i < size; i++) req[h + i] = (char)('a' + i % 26) ^ key[i & 3];
  size_t req_len = h + size;
  struct io_uring_params p = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE, .cq_entries = 8192};
  if (io_uring_queue_init_params(2048, &ring, &p)) return 2;
  struct io_uring_buf_ring *br; posix_memalign((void **)&br, 4096, NBUF * sizeof(struct io_uring_buf));
  struct io_uring_buf_reg reg = {.ring_addr = (unsigned long)br, .ring_entries = NBUF, .bgid = 0};
  if (io_uring_register_buf_ring(&ring, &reg, 0)) return 3;
  io_uring_buf_ring_init(br);
  char *bufs = malloc(NBUF * BSZ);
  for (int i = 0; i < NBUF; i++) io_uring_buf_ring_add(br, bufs + i * BSZ, BSZ, i, NBUF - 1, i);
  io_uring_buf_ring_advance(br, NBUF);
  struct conn *cs = calloc(n, sizeof *cs);
#define ARM(i) do { struct io_uring_sqe *s = sqe(); io_uring_prep_recv_multishot(s, cs[i].fd, NULL, 0, 0); s->flags |= IOSQE_BUFFER_SELECT; s->buf_group = 0; io_uring_sqe_set_data64(s, (unsigned)(i)); } while (0)
#define SEND(i) do { struct io_uring_sqe *s = sqe(); io_uring_prep_send(s, cs[i].fd, req, req_len, MSG_NOSIGNAL | MSG_WAITALL); s->flags |= IOSQE_CQE_SKIP_SUCCESS; io_uring_sqe_set_data64(s, 1ull << 40 | (unsigned)(i)); } while (0)
  for (int i = 0; i < n; i++) { cs[i].fd = dial(port); ARM(i); if (!fan) SEND(i); }
  if (fan) SEND(0);
  printf("Connections: %d\n", n); fflush(stdout);
  unsigned long done = 0, errs = 0; double t0 = now(), t = t0;
  while ((t = now()) - t0 < secs) {
    struct __kernel_timespec ts = {.tv_nsec = 200000000}; struct io_uring_cqe *c;
    io_uring_submit_and_wait_timeout(&ring, &c, 1, &ts, NULL);
    unsigned head, k = 0; int given = 0;
    io_uring_for_each_cqe(&ring, head, c) {
      k++; unsigned long long d = c->user_data; if (d == LIBURING_UDATA_TIMEOUT) continue;
      if (d >> 40) { errs++; continue; }
      int i = (int)d;
      if (c->res > 0) {
        int id = c->flags >> IORING_CQE_BUFFER_SHIFT;
        io_uring_buf_ring_add(br, bufs + id * BSZ, BSZ, id, NBUF - 1, given++);
        cs[i].got += c->res;
        if (cs[i].got >= want * depth) { cs[i].got -= want * depth; done += depth; if (!fan) SEND(i); else if (!--waiting) { waiting = n; SEND(0); } }
        if (!(c->flags & IORING_CQE_F_MORE)) ARM(i);
      } else if (c->res == -ENOBUFS) ARM(i);
      else { errs++; close(cs[i].fd); cs[i].fd = dial(port); cs[i].got = 0; ARM(i); SEND(i); }
    }
    io_uring_cq_advance(&ring, k); io_uring_buf_ring_advance(br, given);
  }
  printf("Requests/sec: %.2f\n", done / (t - t0)); if (errs) printf("Socket errors: %lu\n", errs);
}
