/* haywire.h: programs that were written for Haywire run on Highwire.
 *
 * The names, numbers and meanings are those of Haywire's interface; the server is Highwire's. See docs/haywire.md for what
 * differs. New programs should use highwire.h. The two headers can be used in one program, but this one has names without a
 * prefix (configuration, http_request, OK).
 *
 * Licensed under MIT or Apache-2.0, as you choose.
 */
#ifndef HAYWIRE_H
#define HAYWIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HAYWIRE_EXTERN extern
#define HAYWIRE_CALLING_CONVENTION

/* The values of hw_set_response_status_code: the code and the reason. */
#define HTTP_STATUS_100 "100 Continue"
#define HTTP_STATUS_101 "101 Switching Protocols"
#define HTTP_STATUS_102 "102 Processing"
#define HTTP_STATUS_200 "200 OK"
#define HTTP_STATUS_201 "201 Created"
#define HTTP_STATUS_202 "202 Accepted"
#define HTTP_STATUS_203 "203 Non-Authoritative Information"
#define HTTP_STATUS_204 "204 No Content"
#define HTTP_STATUS_205 "205 Reset Content"
#define HTTP_STATUS_206 "206 Partial Content"
#define HTTP_STATUS_207 "207 Multi-Status"
#define HTTP_STATUS_300 "300 Multiple Choices"
#define HTTP_STATUS_301 "301 Moved Permanently"
#define HTTP_STATUS_302 "302 Moved Temporarily"
#define HTTP_STATUS_303 "303 See Other"
#define HTTP_STATUS_304 "304 Not Modified"
#define HTTP_STATUS_305 "305 Use Proxy"
#define HTTP_STATUS_307 "307 Temporary Redirect"
#define HTTP_STATUS_400 "400 Bad Request"
#define HTTP_STATUS_401 "401 Unauthorized"
#define HTTP_STATUS_402 "402 Payment Required"
#define HTTP_STATUS_403 "403 Forbidden"
#define HTTP_STATUS_404 "404 Not Found"
#define HTTP_STATUS_405 "405 Method Not Allowed"
#define HTTP_STATUS_406 "406 Not Acceptable"
#define HTTP_STATUS_407 "407 Proxy Authentication Required"
#define HTTP_STATUS_408 "408 Request Time-out"
#define HTTP_STATUS_409 "409 Conflict"
#define HTTP_STATUS_410 "410 Gone"
#define HTTP_STATUS_411 "411 Length Required"
#define HTTP_STATUS_412 "412 Precondition Failed"
#define HTTP_STATUS_413 "413 Request Entity Too Large"
#define HTTP_STATUS_414 "414 Request-URI Too Large"
#define HTTP_STATUS_415 "415 Unsupported Media Type"
#define HTTP_STATUS_416 "416 Requested Range Not Satisfiable"
#define HTTP_STATUS_417 "417 Expectation Failed"
#define HTTP_STATUS_418 "418 I'm a teapot"
#define HTTP_STATUS_422 "422 Unprocessable Entity"
#define HTTP_STATUS_423 "423 Locked"
#define HTTP_STATUS_424 "424 Failed Dependency"
#define HTTP_STATUS_425 "425 Unordered Collection"
#define HTTP_STATUS_426 "426 Upgrade Required"
#define HTTP_STATUS_428 "428 Precondition Required"
#define HTTP_STATUS_429 "429 Too Many Requests"
#define HTTP_STATUS_431 "431 Request Header Fields Too Large"
#define HTTP_STATUS_500 "500 Internal Server Error"
#define HTTP_STATUS_501 "501 Not Implemented"
#define HTTP_STATUS_502 "502 Bad Gateway"
#define HTTP_STATUS_503 "503 Service Unavailable"
#define HTTP_STATUS_504 "504 Gateway Time-out"
#define HTTP_STATUS_505 "505 HTTP Version Not Supported"
#define HTTP_STATUS_506 "506 Variant Also Negotiates"
#define HTTP_STATUS_507 "507 Insufficient Storage"
#define HTTP_STATUS_509 "509 Bandwidth Limit Exceeded"
#define HTTP_STATUS_510 "510 Not Extended"
#define HTTP_STATUS_511 "511 Network Authentication Required"

/* The methods, with their numbers in http_request. */
#define HW_HTTP_METHOD_MAP(XX) \
    XX(0, DELETE, DELETE) \
    XX(1, GET, GET) \
    XX(2, HEAD, HEAD) \
    XX(3, POST, POST) \
    XX(4, PUT, PUT) \
    XX(5, CONNECT, CONNECT) \
    XX(6, OPTIONS, OPTIONS) \
    XX(7, TRACE, TRACE) \
    XX(8, COPY, COPY) \
    XX(9, LOCK, LOCK) \
    XX(10, MKCOL, MKCOL) \
    XX(11, MOVE, MOVE) \
    XX(12, PROPFIND, PROPFIND) \
    XX(13, PROPPATCH, PROPPATCH) \
    XX(14, SEARCH, SEARCH) \
    XX(15, UNLOCK, UNLOCK) \
    XX(16, REPORT, REPORT) \
    XX(17, MKACTIVITY, MKACTIVITY) \
    XX(18, CHECKOUT, CHECKOUT) \
    XX(19, MERGE, MERGE) \
    XX(20, MSEARCH, M-SEARCH) \
    XX(21, NOTIFY, NOTIFY) \
    XX(22, SUBSCRIBE, SUBSCRIBE) \
    XX(23, UNSUBSCRIBE, UNSUBSCRIBE) \
    XX(24, PATCH, PATCH) \
    XX(25, PURGE, PURGE)

enum hw_http_method {
#define XX(number, name, string) HW_HTTP_##name = number,
    HW_HTTP_METHOD_MAP(XX)
#undef XX
    /* Not in the map, as in Haywire. */
    HW_HTTP_MKCALENDAR = 26
};

/* The length of a string literal, and hw_string from a literal: two statements. */
#define STRLENOF(string) (sizeof(string) - 1)
#define SETSTRING(string, literal) \
    (string).value = (char*)(literal); \
    (string).length = STRLENOF(literal)
/* Appends a literal to a string (hw_string*) whose buffer has room for it. */
#define APPENDSTRING(string, literal) \
    memcpy((string)->value + (string)->length, (literal), STRLENOF(literal)); \
    (string)->length += STRLENOF(literal)

/* A response that is being made. Handlers get a pointer to one. */
typedef void* hw_http_response;

/* Bytes with a length. They need not end with a NUL. */
typedef struct {
    char* value;
    size_t length;
} hw_string;

/* The settings. Texts may be NULL, and numbers 0, for the default. */
typedef struct {
    char* http_listen_address;      /* all addresses, 0.0.0.0, by default */
    unsigned int http_listen_port;  /* 0: any free port; without hw_init_*, 8000 */
    unsigned int thread_count;      /* 0: the server runs in the thread that calls hw_http_open */
    char* balancer;                 /* "ipc": one thread accepts; "reuseport": each thread does */
    char* parser;                   /* ignored */
    bool tcp_nodelay;               /* ignored: it is always on */
    unsigned int listen_backlog;
    unsigned int max_request_size;  /* the longest body in bytes; a longer one gets 413 */
} configuration;

/* A request, which is valid until its handler returns. */
typedef struct {
    unsigned short http_major;
    unsigned short http_minor;
    unsigned char method;           /* an hw_http_method */
    int keep_alive;
    hw_string* url;                 /* with the query */
    void* headers;
    hw_string* body;
    size_t body_length;
    enum { OK, SIZE_EXCEEDED, BAD_REQUEST, INTERNAL_ERROR } state;
} http_request;

/* Handles a request. */
typedef void(HAYWIRE_CALLING_CONVENTION* http_request_callback)(http_request* request, hw_http_response* response,
                                                                 void* user_data);
/* Is called on the handler's thread after a response was handed to the connection. */
typedef void(HAYWIRE_CALLING_CONVENTION* http_response_complete_callback)(void* user_data);

/* Reads the settings from a file: `key = value` lines, after `[http]`. Returns 0, or 1 if the file cannot be read. */
HAYWIRE_EXTERN int hw_init_from_config(char* configuration_filename);
/* Copies the settings. Returns 0, or 1 for NULL. */
HAYWIRE_EXTERN int hw_init_with_config(configuration* config);
/* Listens and serves until the process ends. Returns 0, or 1 if it cannot listen. Older programs pass the number of threads,
 * which replaces the one of the settings unless it is 0. */
HAYWIRE_EXTERN int hw_http_open(void);
HAYWIRE_EXTERN int hw_http_open_with(int threads);
#define hw_http_open(...) hw_http_open_with((__VA_ARGS__ + 0))
/* Adds a route, before hw_http_open. A segment that begins with `*` matches any one segment. Exact segments come first, and of
 * equal routes the last one counts. */
HAYWIRE_EXTERN void hw_http_add_route(char* route, http_request_callback callback, void* user_data);
/* Returns the value of the last header field of that name, which must be in lower case, or NULL. */
HAYWIRE_EXTERN hw_string* hw_get_header(http_request* request, hw_string* key);

/* Frees a response without sending it. Its client gets 500. */
HAYWIRE_EXTERN void hw_free_http_response(hw_http_response* response);
/* Has no effect: the connection determines the version. */
HAYWIRE_EXTERN void hw_set_http_version(hw_http_response* response, unsigned short major, unsigned short minor);
/* The bytes of these strings must live until hw_http_response_send returns. */
HAYWIRE_EXTERN void hw_set_response_status_code(hw_http_response* response, hw_string* status_code);
HAYWIRE_EXTERN void hw_set_response_header(hw_http_response* response, hw_string* name, hw_string* value);
HAYWIRE_EXTERN void hw_set_body(hw_http_response* response, hw_string* body);
/* Sends a response and frees it. The callback may be NULL. */
HAYWIRE_EXTERN void hw_http_response_send(hw_http_response* response, void* user_data,
                                          http_response_complete_callback callback);

/* Print to the standard output. */
HAYWIRE_EXTERN void hw_print_request_headers(http_request* request);
HAYWIRE_EXTERN void hw_print_body(http_request* request);

#ifdef __cplusplus
}
#endif

#endif
