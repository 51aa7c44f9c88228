// The WebSocket echo floor for long messages, on epoll: accepts any handshake with a canned 101 for the load generator's fixed key, then
// unmasks each received part of a frame in place and sends it on at once. It never has a whole message, and checks nothing.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
static const char one[] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
enum { SIZE = 256 * 1024, FRONT = 16, MOST = 4096 };
static struct { int open; size_t left; unsigned char key[8]; unsigned at; unsigned char head[14]; size_t have; } conns[MOST];
static unsigned char buf[FRONT + SIZE + 8];
static void all(int fd, const void *bytes, size_t n) {
  for (size_t at = 0; at < n;) { ssize_t k = send(fd, (const char *)bytes + at, n - at, MSG_NOSIGNAL); if (k <= 0) return; at += k; }
}
// Unmasks with the key turned so that it begins at the frame's position.
static void unmask(unsigned char *p, size_t n, const unsigned char *key, unsigned at) {
  unsigned char k[8]; for (int i = 0; i < 8; i++) k[i] = key[(at + i) & 3];
  unsigned long w, v; memcpy(&w, k, 8); size_t i = 0;
  for (; i + 8 <= n; i += 8) { memcpy(&v, p + i, 8); v ^= w; memcpy(p + i, &v, 8); }
  for (; i < n; i++) p[i] ^= k[i & 7];
}
int main(int argc, char **argv) {
  (void)argc;
  int on = 1, l = socket(AF_INET, SOCK_STREAM, 0), e = epoll_create1(0);
  setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (bind(l, (void *)&a, sizeof a) || listen(l, 4096)) return 1;
  struct epoll_event ev = {.events = EPOLLIN, .data.fd = l}, evs[256];
  epoll_ctl(e, EPOLL_CTL_ADD, l, &ev);
  for (;;) {
    int n = epoll_wait(e, evs, 256, -1);
    for (int i = 0; i < n; i++) {
      int fd = evs[i].data.fd;
      if (fd == l) {
        int c = accept(l, NULL, NULL); if (c < 0 || c >= MOST) continue;
        setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        memset(&conns[c], 0, sizeof conns[c]); ev.data.fd = c; epoll_ctl(e, EPOLL_CTL_ADD, c, &ev); continue;
      }
      unsigned char *p = buf + FRONT; ssize_t got = recv(fd, p, SIZE, MSG_DONTWAIT);
      if (got <= 0) { if (got == 0) close(fd); continue; }
      if (!conns[fd].open) { conns[fd].open = 1; all(fd, one, sizeof one - 1); continue; }
      while (got > 0) {
        unsigned char *out = p; size_t front = 0;
        if (!conns[fd].left) {
          // Collects a header, which may be split.
          unsigned char *h = conns[fd].head; size_t need = 2;
          for (;;) {
            if (conns[fd].have >= 2) need = 6 + ((h[1] & 127) == 126 ? 2 : (h[1] & 127) == 127 ? 8 : 0);
            if (conns[fd].have == need || got == 0) break;
            h[conns[fd].have++] = *p++; got--;
          }
          if (conns[fd].have < need || need == 2) break;
          size_t len = h[1] & 127; front = need - 4;
          if (len >= 126) { len = 0; for (size_t b = 2; b < front; b++) len = len << 8 | h[b]; }
          memcpy(conns[fd].key, h + front, 4); conns[fd].left = len; conns[fd].at = 0; conns[fd].have = 0;
          // The header without the key directly before the payload.
          out = p - front; memcpy(out, h, front); out[1] &= 127;
        }
        size_t part = (size_t)got < conns[fd].left ? (size_t)got : conns[fd].left;
        unmask(p, part, conns[fd].key, conns[fd].at);
        conns[fd].at = (conns[fd].at + part) & 3; conns[fd].left -= part;
        all(fd, out, front + part);
        p += part; got -= part;
      }
    }
  }
}
