/* httpserver.h: programs that were written for the single-header library of that name run on Highwire.
 *
 * The names and meanings are those of versions 0.7 and 0.9 of that interface; the server is Highwire's, in libhighwire. With
 * HTTPSERVER_IMPL the header includes the system's headers that the original includes there; there is nothing to
 * implement. Any file may include it, more than once, in C99 and in C++11. See docs/httpserver.md for what differs. New
 * programs should use highwire.h.
 *
 * Licensed under MIT or Apache-2.0, as you choose.
 */
/* The original includes these headers in its implementation, and programs rely on them. */
#if defined(HTTPSERVER_IMPL) && !defined(HTTPSERVER_IMPL_HEADERS)
#define HTTPSERVER_IMPL_HEADERS
/* As the original requires: without it, -std=c99 hides sigaction, nanosleep and kill. It has no effect after another header. */
#if !defined(_POSIX_C_SOURCE) && !defined(_GNU_SOURCE) && !defined(_DEFAULT_SOURCE) && defined(__STRICT_ANSI__)
#define _POSIX_C_SOURCE 199309L
#define _DEFAULT_SOURCE 1
#endif
#include <arpa/inet.h>
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/epoll.h>
#include <sys/timerfd.h>
typedef void (*epoll_cb_t)(struct epoll_event *);
#else
struct kevent;
typedef void (*ev_cb_t)(struct kevent *);
#endif
#endif

#ifndef HTTPSERVER_H
#define HTTPSERVER_H

#ifdef __cplusplus
extern "C" {
#endif

/* The knobs. Define them before the first include. Times are in seconds, sizes in bytes. 0 and negative
 * sizes mean the default; a negative time turns its timeout off. */
#ifndef HTTP_REQUEST_BUF_SIZE
#define HTTP_REQUEST_BUF_SIZE 1024 /* Has no effect: buffers grow as needed. */
#endif
#ifndef HTTP_RESPONSE_BUF_SIZE
#define HTTP_RESPONSE_BUF_SIZE 1024 /* Has no effect. */
#endif
#ifndef HTTP_REQUEST_TIMEOUT
#define HTTP_REQUEST_TIMEOUT 20 /* For a head, for progress of a body, and for the answer. */
#endif
#ifndef HTTP_KEEP_ALIVE_TIMEOUT
#define HTTP_KEEP_ALIVE_TIMEOUT 120
#endif
#ifndef HTTP_MAX_TOTAL_EST_MEM_USAGE
#define HTTP_MAX_TOTAL_EST_MEM_USAGE 4294967296
#endif
#ifndef HTTP_MAX_TOKEN_LENGTH
#define HTTP_MAX_TOKEN_LENGTH 8192 /* The longest target, and the longest header field. */
#endif
#ifndef HTTP_MAX_REQUEST_BUF_SIZE
#define HTTP_MAX_REQUEST_BUF_SIZE 8388608 /* A longer body is streamed. */
#endif

#define HTTP_KEEP_ALIVE 1
#define HTTP_CLOSE 0
#define HTTP_AUTOMATIC 0x8
#define HTTP_FLG_STREAMED 0x1

/* Bytes without a NUL at their end: print them with %.*s. Only the body of a request that is not streamed has a NUL after it. */
struct http_string_s {
    char const *buf;
    int len;
};

struct http_server_s;
struct http_request_s;
struct http_response_s;

typedef struct http_string_s http_string_t;
typedef struct http_server_s http_server_t;
typedef struct http_request_s http_request_t;
typedef struct http_response_s http_response_t;

/* How the knobs reach the library. */
struct http_server_knobs {
    int request_timeout;
    int keep_alive_timeout;
    long long max_total_est_mem_usage;
    long long max_token_length;
    long long max_request_buf_size;
};
struct http_server_s *http_server_init_with(int port, void (*handler)(struct http_request_s *),
                                            struct http_server_knobs knobs);

/* Makes a server for a port. The handler is called for each request. The program may free the pointer. */
struct http_server_s *http_server_init(int port, void (*handler)(struct http_request_s *));

/* Returns an epoll descriptor. Programs register their own descriptors on it, with a data.ptr to a struct whose first member is
 * `void (*handler)(struct epoll_event *)`. */
int http_server_loop(struct http_server_s *server);

/* Listen on all addresses, or on one, and serve for ever. Return -1 if they cannot listen. */
int http_server_listen(struct http_server_s *server);
int http_server_listen_addr(struct http_server_s *server, char const *ipaddr);
/* Listen and return 0, or -1. http_server_poll serves. */
int http_server_listen_poll(struct http_server_s *server);
int http_server_listen_addr_poll(struct http_server_s *server, char const *ipaddr);
/* Handles at most one event, without waiting. Returns 1 if there was one, 0 if not, -1 after an error. */
int http_server_poll(struct http_server_s *server);

/* A value of the program for the server, NULL at first. */
void http_server_set_userdata(struct http_server_s *server, void *data);
void *http_request_server_userdata(struct http_request_s *request);
/* A value of the program for the connection, NULL at first. All requests of a connection have the same pointer. */
void http_request_set_userdata(struct http_request_s *request, void *data);
void *http_request_userdata(struct http_request_s *request);

/* The parts of a request are valid until it is answered, even if the client has disconnected: answer each request. A
 * request whose streamed body or response is cut short ends without an answer: the waiting callback is not called. */
struct http_string_s http_request_method(struct http_request_s *request);
struct http_string_s http_request_target(struct http_request_s *request);
struct http_string_s http_request_body(struct http_request_s *request);
struct http_string_s http_request_header(struct http_request_s *request, char const *key);
int http_request_iterate_headers(struct http_request_s *request, struct http_string_s *key, struct http_string_s *val,
                                 int *iter);

/* A streamed body is read in chunks. The callback is called once for each call, after that has returned; an empty chunk
 * is the end. */
int http_request_has_flag(struct http_request_s *request, int flag);
void http_request_read_chunk(struct http_request_s *request, void (*chunk_cb)(struct http_request_s *));
#define http_request_read_body http_request_read_chunk
struct http_string_s http_request_chunk(struct http_request_s *request);
void http_request_free_buffer(struct http_request_s *request);

/* HTTP_KEEP_ALIVE or HTTP_CLOSE, in place of what the request says. */
void http_request_connection(struct http_request_s *request, int directive);

/* Sending a response frees it. The program may then free the bytes that it points to. */
struct http_response_s *http_response_init(void);
void http_response_status(struct http_response_s *response, int status);
void http_response_header(struct http_response_s *response, char const *key, char const *value);
void http_response_body(struct http_response_s *response, char const *body, int length);
void http_respond(struct http_request_s *request, struct http_response_s *response);
/* In chunks: the first response has the status and the header fields, the last one the trailers. notify_done is called when the
 * next chunk may be sent. */
void http_respond_chunk(struct http_request_s *request, struct http_response_s *response,
                        void (*notify_done)(struct http_request_s *));
void http_respond_chunk_end(struct http_request_s *request, struct http_response_s *response);

/* A server with the knobs of this program. */
static inline struct http_server_s *httpserver_init_here(int port, void (*handler)(struct http_request_s *)) {
    struct http_server_knobs knobs;
    knobs.request_timeout = HTTP_REQUEST_TIMEOUT;
    knobs.keep_alive_timeout = HTTP_KEEP_ALIVE_TIMEOUT;
    knobs.max_total_est_mem_usage = HTTP_MAX_TOTAL_EST_MEM_USAGE;
    knobs.max_token_length = HTTP_MAX_TOKEN_LENGTH;
    knobs.max_request_buf_size = HTTP_MAX_REQUEST_BUF_SIZE;
    return http_server_init_with(port, handler, knobs);
}
#define http_server_init(port, handler) httpserver_init_here((port), (handler))

#ifdef __cplusplus
}
#endif

#endif
