// Shared by both model servers: the listening socket, the search for the end of a head, the fixed answer, the limits.
#ifndef HIGHWIRE_BENCH_MODEL_H
#define HIGHWIRE_BENCH_MODEL_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../floors/answer.h"

enum {
    MAX_FILES = 65536,     // Six times the largest scenario; also the size of arrays indexed by descriptor.
    MAX_WORKERS = 256,
    BACKLOG = 4096,        // The default of net.core.somaxconn: a burst of 10,000 connects loses few SYNs.
    READ = 65536,          // As in the floor: one recv takes any pipelined batch of the scenarios.
    ANSWER = sizeof answer - 1,
    COPIES = 4096,         // The most answers in one send.
};

static char *answers;      // COPIES answers in a row.

static void prepare_answers(void) {
    answers = malloc((size_t)ANSWER * COPIES);
    for (int i = 0; i < COPIES; i++) memcpy(answers + i * ANSWER, answer, ANSWER);
}

// Returns the next of `owed` bytes of answers. The answers repeat, so the number of bytes left gives the position.
static const char *owed_bytes(size_t owed, size_t *len) {
    size_t at = (ANSWER - owed % ANSWER) % ANSWER, whole = (size_t)ANSWER * COPIES - at;
    *len = owed < whole ? owed : whole;
    return answers + at;
}

// Returns the number of heads that end in these bytes. `matched` (0 to 3) is the number of bytes of CRLF CRLF at the
// end of the connection's last read, so that a head may be split anywhere.
static size_t head_ends(const char *p, size_t len, unsigned char *matched) {
    static const char mark[] = "\r\n\r\n";
    const char *end = p + len, *q;
    size_t heads = 0;
    unsigned m = *matched;
    for (; m && p < end; p++) {
        m = *p == mark[m] ? m + 1 : *p == '\r';
        if (m == 4) heads++, m = 0;
    }
    if (!m) {    // From here the same as in the floors.
        while ((q = memmem(p, end - p, mark, 4))) heads++, p = q + 4;
        if (end - p > 3) p = end - 3;
        for (; p < end; p++) m = *p == mark[m] ? m + 1 : *p == '\r';
    }
    *matched = m;
    return heads;
}

static void raise_files(void) {
    struct rlimit l;
    getrlimit(RLIMIT_NOFILE, &l);
    if (l.rlim_max > MAX_FILES) l.rlim_max = MAX_FILES;    // Descriptors must stay below the size of the arrays.
    l.rlim_cur = l.rlim_max;
    setrlimit(RLIMIT_NOFILE, &l);
}

static int listen_on(int port, int flags) {
    int on = 1, l = socket(AF_INET, SOCK_STREAM | flags, 0);
    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(l, (void *)&a, sizeof a) || listen(l, BACKLOG)) {
        perror("listen");
        exit(1);
    }
    return l;
}

static void arguments(int argc, char **argv, int *port, int *workers) {
    *port = argc == 3 ? atoi(argv[1]) : 0;
    *workers = argc == 3 ? atoi(argv[2]) : 0;
    if (*port > 0 && *port < 65536 && *workers > 0 && *workers <= MAX_WORKERS) return;
    fprintf(stderr, "usage: %s PORT WORKERS\n", argv[0]);
    exit(2);
}

static void leave(int signal) {
    (void)signal;
    _exit(0);
}
#endif
