// Counts the WebSocket messages that a server sends to many subscribers.
//
// wsdrain PORT PATH CONNECTIONS SECONDS opens the connections, waits a second, and then counts the frames that arrive.
// Prints the frames and the bytes per second, and the fewest frames that a connection has got.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct connection { int fd; size_t left; unsigned char head[10]; int have; unsigned long frames; };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

// Connects and shakes hands. A frame may follow the response directly, so the head is read byte by byte.
static int dial(int port, const char *path) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
  char b[2048];
  size_t have = 0;
  if (fd < 0 || connect(fd, (void *)&a, sizeof a)) { perror("connect"); exit(1); }
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  int n = snprintf(b, sizeof b, "GET %s HTTP/1.1\r\nHost: localhost:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                   "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n", path, port);
  if (send(fd, b, n, 0) != n) { perror("send"); exit(1); }
  while (have < 4 || memcmp(b + have - 4, "\r\n\r\n", 4)) {
    if (have == sizeof b || recv(fd, b + have, 1, 0) != 1) { fprintf(stderr, "no handshake\n"); exit(1); }
    have++;
  }
  if (strncmp(b, "HTTP/1.1 101", 12)) { fprintf(stderr, "not 101: %.30s\n", b); exit(1); }
  return fd;
}

// Counts the frames that end within these bytes.
static void count(struct connection *c, const unsigned char *b, size_t n) {
  while (n > 0) {
    if (c->left > 0) {
      size_t take = n < c->left ? n : c->left;
      c->left -= take; b += take; n -= take;
      if (c->left == 0) c->frames++;
      continue;
    }
    c->head[c->have++] = *b++; n--;
    int length = c->have > 1 ? c->head[1] & 127 : 0, size = length == 126 ? 4 : length == 127 ? 10 : 2;
    if (c->have < 2 || c->have < size) continue;
    if (size == 2) c->left = length;
    else for (int i = 2; i < size; i++) c->left = c->left << 8 | c->head[i];
    c->have = 0;
    if (c->left == 0) c->frames++;
  }
}

int main(int argc, char **argv) {
  if (argc < 5) { fprintf(stderr, "usage: wsdrain PORT PATH CONNECTIONS SECONDS\n"); return 2; }
  int port = atoi(argv[1]), n = atoi(argv[3]), poll = epoll_create1(0);
  double seconds = atof(argv[4]);
  struct connection *all = calloc(n, sizeof *all);
  static unsigned char buffer[1 << 16];
  struct epoll_event events[1024];
  for (int i = 0; i < n; i++) {
    all[i].fd = dial(port, argv[2]);
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = i};
    epoll_ctl(poll, EPOLL_CTL_ADD, all[i].fd, &e);
  }
  double begin = now() + 1, end = begin + seconds;
  unsigned long before = 0, total = 0, bytes = 0, least = -1ul;
  int is_counting = 0;
  for (double t = now(); t < end; t = now()) {
    if (!is_counting && t >= begin) {
      is_counting = 1; bytes = 0;
      for (int i = 0; i < n; i++) { before += all[i].frames; all[i].frames = 0; }
    }
    int m = epoll_wait(poll, events, 1024, 100);
    for (int k = 0; k < m; k++) {
      struct connection *c = &all[events[k].data.u32];
      ssize_t got = recv(c->fd, buffer, sizeof buffer, MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN)) { fprintf(stderr, "a connection ended\n"); return 1; }
      if (got > 0) { bytes += got; count(c, buffer, got); }
    }
  }
  for (int i = 0; i < n; i++) { total += all[i].frames; if (all[i].frames < least) least = all[i].frames; }
  printf("Messages/sec: %.2f\nBytes/sec: %.0f\nFewest: %lu\nMessages: %lu\n", total / seconds, bytes / seconds, least, total);
  return 0;
}
