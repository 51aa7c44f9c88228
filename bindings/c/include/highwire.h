/* highwire.h: the HTTP server Highwire for C and C++. See docs/c-abi.md.
 *
 * Made from the Rust sources by `cargo run -p highwire-c --example write_header`. Do not edit it.
 * Licensed under MIT or Apache-2.0, as you choose.
 */

#ifndef HIGHWIRE_H
#define HIGHWIRE_H

#include <stddef.h>
#include <stdint.h>

// The sections of this file:
//   1. Results and errors
//   2. Handles and strings
//   3. Apps: routes and settings
//   4. Servers: addresses, start and stop
//   5. Requests
//   6. Answers
//   7. Bodies in parts
//   8. Multipart forms
//   9. WebSockets
//   10. Topics: messages to many WebSockets
//   11. Calls to other servers
//   12. A server in the program's own event loop
//   13. The process: log and memory

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// ---- 1. Results and errors ------------------------------------------------------------------------------------------

// The result of a function. Every value but `HIGHWIRE_OK` is an error; `HIGHWIRE_AGAIN` and `HIGHWIRE_NOT_FOUND` may
// be expected ones. `highwire_last_error` has the details.
typedef enum highwire_result {
    // The function succeeded.
    HIGHWIRE_OK = 0,
    // A pointer is NULL, but must not be.
    HIGHWIRE_NULL = 1,
    // The handle is invalid, or its object is gone: a server that was freed, a request that was answered. Until its
    // handler returns, an answered request can still be read, and a second answer returns `HIGHWIRE_WRONG_STATE`.
    HIGHWIRE_INVALID_HANDLE = 2,
    // An argument is invalid: a header with a line end, a path without a slash, a status outside 100 to 999.
    HIGHWIRE_INVALID_ARGUMENT = 3,
    // The function must not be called on this thread.
    HIGHWIRE_WRONG_THREAD = 4,
    // The function must not be called now: for example to set an option of a client after its first call, or to answer
    // twice in a handler.
    HIGHWIRE_WRONG_STATE = 5,
    // The queue is full. Try again after the callback for room.
    HIGHWIRE_AGAIN = 6,
    // The client has disconnected, or the request was aborted, so no response is sent.
    HIGHWIRE_GONE = 7,
    // There is no such header, parameter, …
    HIGHWIRE_NOT_FOUND = 8,
    // The operating system refused an operation.
    HIGHWIRE_SYSTEM = 9,
    // The settings are invalid or contradict each other.
    HIGHWIRE_SETTING = 10,
    // This build of the library does not have the feature.
    HIGHWIRE_UNSUPPORTED = 11,
    // A fault of the library. Please report it.
    HIGHWIRE_INTERNAL = 12,
    // A time limit of a call to another server has passed.
    HIGHWIRE_TIMED_OUT = 13,
    // A call to another server has failed: the server could not be reached, or its response is invalid.
    HIGHWIRE_FAILED = 14,
    // The library has refused the request, and has answered it.
    HIGHWIRE_REFUSED = 15,
} highwire_result;

// Returns the text of this thread's last error, with a NUL at its end. The text is valid until the next function of
// the library fails on this thread. It may quote what a client has sent: escape it before you put it into JSON or
// HTML.
const char *highwire_last_error(void);

// Returns the name of a result, such as `"HIGHWIRE_GONE"`. The text is constant.
const char *highwire_result_name(int32_t result);

// Returns the version of the library, such as `"0.1.0"`. The text is constant.
const char *highwire_version(void);

// ---- 2. Handles and strings -----------------------------------------------------------------------------------------

// An app: routes and settings.
typedef struct highwire_app {
    // Its number; 0 is none.
    uint64_t id;
} highwire_app;

// A request: a number that is never used again.
typedef struct highwire_request {
    // Its number; 0 is none.
    uint64_t id;
} highwire_request;

// A client of other servers: settings, and outgoing connections that its calls share.
typedef struct highwire_client {
    // Its number; 0 is none.
    uint64_t id;
} highwire_client;

// A call: a request to another server, until its result is there.
typedef struct highwire_call {
    // Its number; 0 is none.
    uint64_t id;
} highwire_call;

// A body that is being written.
typedef struct highwire_stream {
    // Its number; 0 is none.
    uint64_t id;
} highwire_stream;

// The response of another server.
typedef struct highwire_reply {
    // Its number; 0 is none.
    uint64_t id;
} highwire_reply;

// A server.
typedef struct highwire_server {
    // Its number; 0 is none.
    uint64_t id;
} highwire_server;

// A server that the program's own event loop drives. It belongs to the thread that made it.
typedef struct highwire_loop {
    // Its number; 0 is none.
    uint64_t id;
} highwire_loop;

// A response that is being made.
typedef struct highwire_response {
    // Its number; 0 is none.
    uint64_t id;
} highwire_response;

// Bytes that the library owns. They do not end with a NUL, and decoded strings may contain one. Print them with `%.*s`
// and `(int)string.length`, if `data` is not NULL.
typedef struct highwire_string {
    // The first byte, or NULL if there is nothing.
    const char *data;
    // The number of bytes.
    size_t length;
} highwire_string;

// TLS settings of a server.
typedef struct highwire_tls {
    // Its number; 0 is none.
    uint64_t id;
} highwire_tls;

// A set of topics.
typedef struct highwire_topics {
    // Its number; 0 is none.
    uint64_t id;
} highwire_topics;

// A WebSocket: a number that is never used again.
typedef struct highwire_websocket {
    // Its number; 0 is none.
    uint64_t id;
} highwire_websocket;

// ---- 3. Apps: routes and settings -----------------------------------------------------------------------------------

// How a route takes the body of a request.
typedef enum highwire_body_use {
    // The handler takes no body. The library reads and drops one.
    HIGHWIRE_BODY_NONE = 0,
    // The whole body is received before the handler is called: `highwire_request_body`.
    HIGHWIRE_BODY_WHOLE = 1,
    // The handler asks for parts of the body: `highwire_request_read`.
    HIGHWIRE_BODY_PARTS = 2,
    // A flag, added to one of the others: the library defers each request before it calls the handler, as
    // `highwire_request_defer` does. For languages whose callbacks run on another thread.
    HIGHWIRE_DEFERRED = 16,
} highwire_body_use;

// A setting for `highwire_app_set`. Times are in milliseconds; 0 turns the limit off, but for `HIGHWIRE_LINGER_MS` and
// `HIGHWIRE_SHUTDOWN_MS` it means no waiting. Sizes are in bytes. docs/limits.md has the reasons for the defaults.
typedef enum highwire_option {
    // The number of workers; 0, the default, means one for each CPU.
    HIGHWIRE_WORKERS = 1,
    // 1 pins each worker to a CPU; 0 by default.
    HIGHWIRE_PIN = 2,
    // The interface to the kernel: 0, the default, for io_uring, or epoll if that is unavailable; 1 for io_uring only;
    // 2 for epoll; 3 for a thread per connection.
    HIGHWIRE_ENGINE = 3,
    // How connections reach the workers: 0, the default, for a listening socket per worker (SO_REUSEPORT); 1 for one
    // thread that accepts for all workers.
    HIGHWIRE_BALANCE = 4,
    // The length of the queue of each listening socket; 4,096 by default.
    HIGHWIRE_BACKLOG = 5,
    // 1 serves HTTP/1; the default.
    HIGHWIRE_HTTP1 = 6,
    // 1 serves HTTP/2 without TLS; the default.
    HIGHWIRE_HTTP2_CLEARTEXT = 7,
    // 1 offers HTTP/2 under TLS; the default.
    HIGHWIRE_HTTP2_TLS = 8,
    // The most bytes that the server holds for all clients, at least 65,536. By default, half of the memory that the
    // process may use, or a quarter if that memory is less than 128 MiB.
    HIGHWIRE_MEMORY = 9,
    // The most open connections. By default, the process's limit of open files minus 32.
    HIGHWIRE_CONNECTIONS = 10,
    // The most open connections from one IP address; 16,384 by default.
    HIGHWIRE_CONNECTIONS_A_PEER = 11,
    // The most requests on one connection; 0, the default, means no limit.
    HIGHWIRE_REQUESTS_A_CONNECTION = 12,
    // The longest body that a handler takes whole; 1 MiB by default.
    HIGHWIRE_BODY_BYTES = 13,
    // The longest body that a handler takes in parts; 1 TiB by default.
    HIGHWIRE_STREAMED_BODY_BYTES = 14,
    // The longest head of a request, at most 65,535; 32,768 by default.
    HIGHWIRE_HEAD_BYTES = 15,
    // 1 logs each request, as a line of level 3: see `highwire_set_log` and docs/operating.md. 0 by default.
    HIGHWIRE_ACCESS_LOG = 16,
    // The time for the TLS handshake; 10 seconds by default.
    HIGHWIRE_HANDSHAKE_MS = 20,
    // The time for the head of a request; 15 seconds by default.
    HIGHWIRE_HEAD_MS = 21,
    // The period over which the rate of a request's body is measured; 30 seconds by default.
    HIGHWIRE_BODY_MS = 22,
    // The lowest rate of a request's body, in bytes per second; 500 by default.
    HIGHWIRE_BODY_RATE = 23,
    // The time after which a connection without a request closes; 75 seconds by default.
    HIGHWIRE_IDLE_MS = 24,
    // The time after which the server disconnects a client that reads nothing of its response; 60 seconds by default.
    HIGHWIRE_WRITE_MS = 25,
    // The time in which the program must answer a deferred request, and write each part of a stream; 60 seconds by
    // default.
    HIGHWIRE_HANDLER_MS = 26,
    // The longest time for which a closing connection reads what its client still sends; 2 seconds by default.
    HIGHWIRE_LINGER_MS = 27,
    // The longest time that a graceful shutdown waits; 30 seconds by default.
    HIGHWIRE_SHUTDOWN_MS = 28,
    // 1 lets several processes with this setting listen on one port; the kernel spreads its connections. 0 by default.
    HIGHWIRE_SHARE_PORT = 29,
    // 1 compresses responses with Brotli, zstd or gzip if the client accepts it and the media type gains by it. 0 by
    // default.
    HIGHWIRE_COMPRESS = 30,
} highwire_option;

// Handles a request. `data` is the pointer that was given with the route. The handler answers with `highwire_respond`
// or another function, or it returns and answers later on the same thread, or it calls `highwire_request_defer` and
// answers later from any thread.
typedef void (*highwire_handler)(struct highwire_request request, void *data);

// Called around a wait of a worker's thread; see `highwire_app_on_wait`.
typedef void (*highwire_wait_hook)(void *data);

// Gets a response before it is sent, and may change its status, its header fields and its body. The callback may read
// the head of `request`, but not its body, and cannot answer it. Both handles are valid until the callback returns.
typedef void (*highwire_response_hook)(struct highwire_request request, struct highwire_response response, void *data);

// Fills in the response to an error outside of handlers. `text` is a short reason, which ends with a NUL. `response`
// has the status `status`, such as 404, which the callback cannot change, and is valid until the callback returns.
typedef void (*highwire_error_hook)(uint32_t status, const char *text, struct highwire_response response, void *data);

// Makes an app without routes.
enum highwire_result highwire_app_new(struct highwire_app *out);

// Frees an app for which no server was made.
enum highwire_result highwire_app_free(struct highwire_app app);

// Adds a route: a method, or `*` for all methods, and a path such as `/users/{id}` or `/files/{*rest}`. `body` is a
// `highwire_body_use`. The handler may be called on every worker's thread at the same time, and `data` must be valid
// until the server has ended. A GET route also answers HEAD.
enum highwire_result highwire_app_route(struct highwire_app app,
                                        const char *method,
                                        const char *path,
                                        int32_t body,
                                        highwire_handler handler,
                                        void *data);

// Sets the handler of requests that match no route. Without it, they get 404.
enum highwire_result highwire_app_fallback(struct highwire_app app, int32_t body, highwire_handler handler, void *data);

// Changes a setting: see `highwire_option`. `highwire_server_new` reports settings that contradict each other.
enum highwire_result highwire_app_set(struct highwire_app app, int32_t option, uint64_t value);

// Sets the value of the `Server` field; NULL means no such field.
enum highwire_result highwire_app_server_name(struct highwire_app app, const char *name);

// Serves the files of a folder below a path: with conditional requests, ranges, precompressed files and `index.html`.
// If `lists` is not 0, a folder without an `index.html` gets a listing.
enum highwire_result highwire_app_files(struct highwire_app app, const char *prefix, const char *folder, int32_t lists);

// Adds a hook that is called with each request before its handler, and also with requests that then get 404, 405 or
// the app's response to OPTIONS; let OPTIONS pass if the app serves other origins (CORS). The hook may read the
// request, but not its body, keep a value for the handler (`highwire_request_set_data`), and answer the request at
// once; then no later hook and no handler is called. It cannot defer the request. Hooks are called in the order in
// which they were added, on several workers' threads at the same time.
enum highwire_result highwire_app_on_request(struct highwire_app app, highwire_handler hook, void *data);

// Sets functions that are called just before and just after a worker's thread blocks until something happens, on that
// thread. They are not called when the worker only looks whether something has. A program whose handlers need a lock, such
// as that of an interpreter, lets it go in `before` and takes it again in `after`. Later calls replace earlier ones.
enum highwire_result highwire_app_on_wait(struct highwire_app app,
                                          highwire_wait_hook before,
                                          highwire_wait_hook after,
                                          void *data);

// Adds a hook that is called with each response: of handlers, of later hooks, of files, and to requests without a
// route. It does not get the engine's own responses: to malformed requests, 413, time limits. Add header fields to
// these in `highwire_app_on_error`, too. The hook must not free the response, and cannot add trailers. The hook that
// was added last is called first, and all hooks before the response is compressed.
enum highwire_result highwire_app_on_response(struct highwire_app app, highwire_response_hook hook, void *data);

// Sets the hook that fills in the responses to errors outside of handlers: requests without a route, malformed
// requests, bodies that are too long, time limits. Without it, these responses are short texts.
enum highwire_result highwire_app_on_error(struct highwire_app app, highwire_error_hook hook, void *data);

// ---- 4. Servers: addresses, start and stop --------------------------------------------------------------------------

// The counts of a server since its start.
typedef struct highwire_stats {
    // The number of connections that are open.
    uint64_t connections;
    // The number of connections that were accepted.
    uint64_t accepted;
    // The number of connections that were refused, because there were too many.
    uint64_t refused;
    // The number of requests and connections that a deadline has ended.
    uint64_t cut;
    // The number of requests.
    uint64_t requests;
    // The number of those requests that came over HTTP/2.
    uint64_t streams;
    // The number of TLS handshakes that were completed.
    uint64_t handshakes;
    // The number of TLS handshakes that failed.
    uint64_t handshakes_failed;
} highwire_stats;

// Makes a server from an app. The app's handle is then invalid, even on failure.
enum highwire_result highwire_server_new(struct highwire_app app, struct highwire_server *out);

// Listens on an address: `127.0.0.1:8080`, `[::1]:8080`, `:8080` for all addresses, port 0 for any free port,
// `unix:/path`, `fd:3` for an inherited listening socket. A server may have several addresses. If this function fails,
// free the server.
enum highwire_result highwire_server_listen(struct highwire_server server, const char *address);

// Listens on an address with TLS. The files are in PEM format, and the server reloads them when they change. If both
// are NULL, the server makes a certificate for `localhost`, which no client trusts.
enum highwire_result highwire_server_listen_tls(struct highwire_server server,
                                                const char *address,
                                                const char *certificate_file,
                                                const char *key_file);

// Listens on an address with these TLS settings, and frees the settings, even on failure.
enum highwire_result highwire_server_listen_tls_with(struct highwire_server server,
                                                     const char *address,
                                                     struct highwire_tls tls);

// Returns the address with this index, from 0 on, with the port that was chosen, or NULL after the last. The text is
// valid until the server is freed or gets another address.
const char *highwire_server_address(struct highwire_server server, size_t index);

// Starts the server in threads of its own, and returns. It installs no signal handlers.
enum highwire_result highwire_server_start(struct highwire_server server);

// Runs the server until SIGINT, SIGTERM or SIGQUIT, for which it installs handlers, or until
// `highwire_server_shutdown`. The first signal begins a graceful shutdown, the second closes all connections at once.
// The signal handlers stay installed after the end.
enum highwire_result highwire_server_run(struct highwire_server server);

// Runs the server until `highwire_server_shutdown`, which another thread or a handler calls. Installs no signal handlers.
enum highwire_result highwire_server_serve(struct highwire_server server);

// Begins a graceful shutdown: the server accepts no connections any more, and ends after the requests in progress. Any
// thread and any handler may call this, but not a signal handler.
enum highwire_result highwire_server_shutdown(struct highwire_server server);

// Closes all connections at once, and stops the server.
enum highwire_result highwire_server_abort(struct highwire_server server);

// Waits for the end of a server that `highwire_server_start` has started. A handler must not call this: its worker
// would wait for itself.
enum highwire_result highwire_server_join(struct highwire_server server);

// Gives the counts of a running server.
enum highwire_result highwire_server_stats(struct highwire_server server, struct highwire_stats *out);

// Frees a server. If it runs, first closes its connections and waits for its end, so a handler cannot free it.
enum highwire_result highwire_server_free(struct highwire_server server);

// Makes TLS settings without a certificate. Give them to a server with `highwire_server_listen_tls_with`.
enum highwire_result highwire_tls_new(struct highwire_tls *out);

// Adds a certificate: its chain and its private key, which may be in the same file, in the format PEM. The files are
// read when the server listens, and again when they change. A server may have several certificates, and each serves
// the names in it; a client that asks for none of these names gets the first certificate.
enum highwire_result highwire_tls_certificate(struct highwire_tls tls,
                                              const char *certificate_file,
                                              const char *key_file);

// Adds a self-signed certificate for a name or an address, for development: no client trusts it.
enum highwire_result highwire_tls_self_signed(struct highwire_tls tls, const char *name);

// Asks clients for a certificate that one of the authorities in this PEM file has issued. If `is_required` is 0, a
// client may send none; otherwise, the handshake of such a client fails.
enum highwire_result highwire_tls_client_roots(struct highwire_tls tls, const char *root_file, int32_t is_required);

// Frees TLS settings that were not given to a server.
enum highwire_result highwire_tls_free(struct highwire_tls tls);

// ---- 5. Requests ----------------------------------------------------------------------------------------------------

// Frees the value that a program keeps for a request. It may be called on any thread.
typedef void (*highwire_request_data_callback)(void *value);

// Gets a name and a value, which are valid until the callback returns. Returns 0 to go on with the next one; another
// value ends the iteration, and the function returns `HIGHWIRE_OK`.
typedef int32_t (*highwire_pair_callback)(struct highwire_string name, struct highwire_string value, void *data);

// Keeps a value for a request: for example what a hook has found out for the handlers. `release` may be NULL; the
// library calls it once with the value, when another value replaces it or when the request has ended, even if its
// client has disconnected. If this function fails, the program still owns the value.
enum highwire_result highwire_request_set_data(struct highwire_request request,
                                               void *value,
                                               highwire_request_data_callback release);

// Gives the value that was kept for a request, or `HIGHWIRE_NOT_FOUND`.
enum highwire_result highwire_request_data(struct highwire_request request, void **out);

// Gives the method, such as `GET`. Strings are valid until the request's handler returns; those that are given
// after `highwire_request_defer`, or after the handler has returned, are valid until the request is answered.
enum highwire_result highwire_request_method(struct highwire_request request, struct highwire_string *out);

// Gives the whole target as it was sent.
enum highwire_result highwire_request_target(struct highwire_request request, struct highwire_string *out);

// Gives the path as it was sent, without the query. It may be percent-encoded.
enum highwire_result highwire_request_path(struct highwire_request request, struct highwire_string *out);

// Gives the query as it was sent, without the question mark, or `HIGHWIRE_NOT_FOUND`.
enum highwire_result highwire_request_query(struct highwire_request request, struct highwire_string *out);

// Gives the host that the request is for, such as `example.com:8080`. It is empty if the request names none.
enum highwire_result highwire_request_authority(struct highwire_request request, struct highwire_string *out);

// Gives the value of the first header field of that name, or `HIGHWIRE_NOT_FOUND`. The case of the name does not matter.
enum highwire_result highwire_request_header(struct highwire_request request,
                                             const char *name,
                                             struct highwire_string *out);

// Gives the name, as it was sent, and the value of the header field with this index, from 0 on, or
// `HIGHWIRE_NOT_FOUND` after the last one. Fields have the order in which they were sent.
enum highwire_result highwire_request_header_at(struct highwire_request request,
                                                size_t index,
                                                struct highwire_string *name,
                                                struct highwire_string *value);

// Gives the body of a request, which may be empty. Returns `HIGHWIRE_WRONG_STATE` if the route does not take the body
// whole.
enum highwire_result highwire_request_body(struct highwire_request request, struct highwire_string *out);

// Gives the address of the peer, such as `192.0.2.1:5000`, or `unix` for a unix socket. The peer is the client or a proxy.
enum highwire_result highwire_request_peer(struct highwire_request request,
                                           struct highwire_string *out);

// Gives the version of HTTP: 10, 11 or 20.
enum highwire_result highwire_request_version(struct highwire_request request, uint32_t *out);

// Gives 1 if the request arrived over TLS, and 0 otherwise.
enum highwire_result highwire_request_is_secure(struct highwire_request request, int32_t *out);

// Defers the request: any thread may then answer it later. Call it in the handler before another thread gets the
// handle. Strings that the request has given before are valid only until the handler returns; those that it gives
// later, until it is answered.
//
// The program must answer each deferred request, even if its client is gone, because the answer frees the request.
enum highwire_result highwire_request_defer(struct highwire_request request);

// Returns `HIGHWIRE_OK` if the client still waits for the answer, `HIGHWIRE_GONE` if it is gone or a deadline has
// passed. Over HTTP/1, a client that shuts down its sending side counts as gone after a second.
enum highwire_result highwire_request_is_wanted(struct highwire_request request);

// Gives the client's certificate, which the server has verified, in DER format, or `HIGHWIRE_NOT_FOUND`: see
// `highwire_tls_client_roots`.
enum highwire_result highwire_request_client_certificate(struct highwire_request request, struct highwire_string *out);

// Gives the subject of the client's certificate in the notation of RFC 4514, such as `CN=alice,O=Example`, or `HIGHWIRE_NOT_FOUND`.
enum highwire_result highwire_request_client_subject(struct highwire_request request,
                                                     struct highwire_string *out);

// Gives the decoded value of a parameter of the route's path, such as `id` of `/users/{id}`, or `HIGHWIRE_NOT_FOUND`.
enum highwire_result highwire_request_param(struct highwire_request request,
                                            const char *name,
                                            struct highwire_string *out);

// Gives a parameter of the route's path as a number: digits, maybe after a minus sign. Returns `HIGHWIRE_NOT_FOUND` if
// there is no such parameter, and `HIGHWIRE_INVALID_ARGUMENT` if it is no number or has more than 64 bits.
enum highwire_result highwire_request_param_int(struct highwire_request request, const char *name, int64_t *out);

// Writes the decoded value of the first query parameter of that name to `out`. Returns `HIGHWIRE_NOT_FOUND` if there is none, or
// if its value is not UTF-8. A name without a value has an empty one.
enum highwire_result highwire_request_query_param(struct highwire_request request,
                                                  const char *name,
                                                  struct highwire_string *out);

// Gives a parameter of the query as a number: see `highwire_request_param_int`.
enum highwire_result highwire_request_query_int(struct highwire_request request, const char *name, int64_t *out);

// Calls the callback with each parameter of the query, decoded, in the order in which they were sent; a name may come
// several times. Parameters that are not UTF-8 are left out.
enum highwire_result highwire_request_each_query_param(struct highwire_request request,
                                                       highwire_pair_callback callback,
                                                       void *data);

// Gives the decoded value of the first field of that name in a body of `application/x-www-form-urlencoded`, or
// `HIGHWIRE_NOT_FOUND`, also if the value is not UTF-8. Returns `HIGHWIRE_WRONG_STATE` if the route does not take the body whole.
enum highwire_result highwire_request_form_param(struct highwire_request request,
                                                 const char *name,
                                                 struct highwire_string *out);

// Gives a field of a form as a number: see `highwire_request_param_int`.
enum highwire_result highwire_request_form_int(struct highwire_request request, const char *name, int64_t *out);

// Calls the callback with each field of a form, as `highwire_request_each_query_param` does with a query. Returns
// `HIGHWIRE_NOT_FOUND` if the body is no form.
enum highwire_result highwire_request_each_form_param(struct highwire_request request,
                                                      highwire_pair_callback callback,
                                                      void *data);

// Gives the value of a cookie, without the quotes around it, or `HIGHWIRE_NOT_FOUND`.
enum highwire_result highwire_request_cookie(struct highwire_request request,
                                             const char *name,
                                             struct highwire_string *out);

// ---- 6. Answers -----------------------------------------------------------------------------------------------------

// Answers a request: with this status, media type and body. `content_type` may be NULL. The bytes are copied.
enum highwire_result highwire_respond(struct highwire_request request,
                                      uint32_t status,
                                      const char *content_type,
                                      const void *body,
                                      size_t length);

// Makes a response with this status, 200 to 999. Give it to a request with `highwire_respond_with`, or free it with
// `highwire_response_free`.
enum highwire_result highwire_response_new(uint32_t status, struct highwire_response *out);

// Changes the status.
enum highwire_result highwire_response_status(struct highwire_response response, uint32_t status);

// Adds a header field. The library itself writes `Content-Length`, `Transfer-Encoding` and `Connection`, and ignores
// such fields here, but `Connection: close` closes the connection after the response. A `Date` replaces the library's.
enum highwire_result highwire_response_header(struct highwire_response response, const char *name, const char *value);

// Sets a header field in place of all fields of that name. NULL as the value removes them.
enum highwire_result highwire_response_set_header(struct highwire_response response,
                                                  const char *name,
                                                  const char *value);

// Gives the status of a response.
enum highwire_result highwire_response_get_status(struct highwire_response response, uint32_t *out);

// Gives the value of the first header field of that name, or `HIGHWIRE_NOT_FOUND`. The case of the name does not matter. The string is
// valid until the response is changed, freed or given to a request, or until the hook that got the response returns.
enum highwire_result highwire_response_get_header(struct highwire_response response,
                                                  const char *name,
                                                  struct highwire_string *out);

// Adds a trailer field, which follows a body that is sent in parts. The hooks of an app cannot add one.
enum highwire_result highwire_response_trailer(struct highwire_response response, const char *name, const char *value);

// Sets the body. The bytes are copied.
enum highwire_result highwire_response_body(struct highwire_response response, const void *body, size_t length);

// Answers a request with a response, and frees the response, even on failure.
enum highwire_result highwire_respond_with(struct highwire_request request, struct highwire_response response);

// Frees a response that was not given to a request.
enum highwire_result highwire_response_free(struct highwire_response response);

// ---- 7. Bodies in parts ---------------------------------------------------------------------------------------------

// Gets `HIGHWIRE_OK` when there is room for more bytes again, and `HIGHWIRE_GONE` once, when the peer has disconnected
// or the call to another server has ended. The callback runs on the thread of the worker, or of that call; never if
// the call is not sent, and never after the program has ended the stream. If another thread ends the stream, the
// callback may still be running, so do not free `data` before it has returned; ending the stream in the callback
// avoids that.
typedef void (*highwire_stream_callback)(struct highwire_stream stream, enum highwire_result result, void *data);

// Gets a part of a request's body, which is valid until the callback returns. After the last part `length` is 0. If
// the body ends early, `result` is `HIGHWIRE_GONE`, and `highwire_last_error` has the reason.
typedef void (*highwire_part_callback)(struct highwire_request request,
                                       enum highwire_result result,
                                       const void *part,
                                       size_t length,
                                       void *data);

// Asks for the next part of a request's body. The route must take the body in parts. The callback is called once,
// later, on the worker's thread, unless the program first answers the request or ends the response's stream. For
// another part, call this again, in the callback or later. Until you do, the library buffers a limited amount, and then
// receives nothing more from the client.
//
// The request is deferred, so it must be answered later. It may be answered by `highwire_respond_stream` before its body has ended; the
// rest of the body can then be read until the stream has ended.
enum highwire_result highwire_request_read(struct highwire_request request,
                                           highwire_part_callback callback,
                                           void *data);

// Answers a request with a response whose body follows in parts, with `highwire_stream_write`. Frees the response,
// even on failure. `length` is the length of the body, or -1 if it is not known. `callback` may be NULL.
//
// The program must end the stream with `highwire_stream_end` or `highwire_stream_abort`, even after the client is
// gone.
//
// If the route takes the request's body in parts, `highwire_request_read` can read it until the stream has ended. The
// client may wait until the body is read: if you want no more of it, end the stream soon.
enum highwire_result highwire_respond_stream(struct highwire_request request,
                                             struct highwire_response response,
                                             int64_t length,
                                             highwire_stream_callback callback,
                                             void *data,
                                             struct highwire_stream *out);

// Sends a part of the body. The bytes are copied. Any thread may call this, but not two at the same time: the order
// would be undefined.
//
// Returns `HIGHWIRE_INVALID_ARGUMENT` if the body would be longer than announced. Returns `HIGHWIRE_AGAIN`, and takes
// nothing, if the part does not fit into the 256 KiB that may wait for the peer; the callback is called when there is
// room, maybe before this function has returned. A part of any length fits if nothing waits. Returns `HIGHWIRE_GONE`
// if the peer is gone, or the call to another server has ended.
enum highwire_result highwire_stream_write(struct highwire_stream stream, const void *part, size_t length);

// Ends the body. The handle is invalid from now on. Returns `HIGHWIRE_INVALID_ARGUMENT` if the body is shorter than
// announced; it is then cut short, as by `highwire_stream_abort`.
enum highwire_result highwire_stream_end(struct highwire_stream stream);

// Cuts the body short: the client of a response sees that it is incomplete; a call to another server fails. The handle
// is invalid from now on.
enum highwire_result highwire_stream_abort(struct highwire_stream stream);

// ---- 8. Multipart forms ---------------------------------------------------------------------------------------------

// A field of a form. Its strings are valid until the callback returns.
typedef struct highwire_field {
    // The name.
    struct highwire_string name;
    // The name of the file as the client has sent it, which may be a path; `data` is NULL if the field is no file.
    struct highwire_string file_name;
    // A name under which the file can be stored: without folders and without characters that are special on some
    // system. `data` is NULL if the field is no file, or if nothing is left of its name. Two files may have the same
    // name.
    struct highwire_string safe_file_name;
    // The media type that the client has sent, or NULL.
    struct highwire_string content_type;
} highwire_field;

// Gets a part of a field, on the worker's thread. Its bytes are valid until the callback returns. At the end of each
// field `length` is 0. After the last field, `field` is NULL and `result` is `HIGHWIRE_OK`. If the form is malformed,
// or a limit is exceeded, `field` is NULL and `result` is `HIGHWIRE_INVALID_ARGUMENT`; if the body ends early, it is
// `HIGHWIRE_GONE`; `highwire_last_error` has the reason. The callback returns 0 to go on; after another value it is
// not called again. A callback that writes to a disk keeps the worker's other connections waiting; give the bytes to
// another thread if the disk is slow. A form cannot be paused.
typedef int32_t (*highwire_field_callback)(struct highwire_request request,
                                           enum highwire_result result,
                                           const struct highwire_field *field,
                                           const void *part,
                                           size_t length,
                                           void *data);

// Reads the body of a request as `multipart/form-data`, and passes its fields to the callback, later. The route must
// take the body whole or in parts; in parts, the body may have any length. Only the thread of the request's worker may
// call this. A form has at most 1,000 fields.
//
// Returns `HIGHWIRE_INVALID_ARGUMENT` if the body is no such form. The request is deferred: answer it when the
// callback gets NULL as `field`, or returns another value than 0.
enum highwire_result highwire_request_multipart(struct highwire_request request,
                                                highwire_field_callback callback,
                                                void *data);

// ---- 9. WebSockets --------------------------------------------------------------------------------------------------

// The events that a WebSocket's callback gets, and the kinds of messages.
typedef enum highwire_websocket_event {
    // The connection is open. This is the first event, unless `HIGHWIRE_WEBSOCKET_END` is the only one.
    HIGHWIRE_WEBSOCKET_OPEN = 0,
    // A message of text. It is UTF-8.
    HIGHWIRE_WEBSOCKET_TEXT = 1,
    // A message of bytes.
    HIGHWIRE_WEBSOCKET_BINARY = 2,
    // A Ping frame with at most 125 bytes. The library answers it.
    HIGHWIRE_WEBSOCKET_PING = 9,
    // A Pong frame with at most 125 bytes.
    HIGHWIRE_WEBSOCKET_PONG = 10,
    // There is room again after `highwire_websocket_send` has returned `HIGHWIRE_AGAIN`.
    HIGHWIRE_WEBSOCKET_ROOM = 16,
    // The connection has ended. `code` is that of the peer's Close frame, 1005 if it has none, that of the library's
    // own Close frame if the peer has broken the protocol or a limit, or 1006 if there was no Close frame; the bytes
    // are the reason. This is the last event; the handle is then invalid.
    HIGHWIRE_WEBSOCKET_END = 17,
} highwire_websocket_event;

// The settings of a WebSocket. A value of 0 or NULL is the default.
typedef struct highwire_websocket_settings {
    // The subprotocols that the program speaks, in its order of preference, with commas between them.
    const char *protocols;
    // The origins of pages that may open the connection, with commas between them, such as `https://app.example`, or `*` for
    // all. By default, only pages of the request's own host may.
    const char *origins;
    // The most bytes of a received message; 1 MiB by default. A longer one ends the connection.
    uint64_t message_bytes;
    // The time in milliseconds after which a silent peer gets a Ping frame; 30,000 by default.
    uint64_t ping_ms;
    // 1 compresses messages if the peer agrees.
    int32_t compress;
} highwire_websocket_settings;

// Is called on the thread of the connection's worker: see `highwire_websocket_event`. `code` is 0 except for
// `HIGHWIRE_WEBSOCKET_END`. The bytes are valid until the callback returns.
typedef void (*highwire_websocket_callback)(struct highwire_websocket socket,
                                            int32_t event,
                                            uint32_t code,
                                            const void *bytes,
                                            size_t length,
                                            void *data);

// Answers a request with a WebSocket, over HTTP/1 and HTTP/2. The route's method must be GET, and its handler must
// call this function. `settings` and `out` may be NULL. The callback also gets the handle, each time; it is first
// called after the handler has returned.
//
// If the request does not ask for a WebSocket, or comes from a page of a foreign origin, the library answers it with
// an error, and returns `HIGHWIRE_REFUSED`. After any other error, the program must still answer the request. After an
// error, the callback is never called; after `HIGHWIRE_OK`, it always gets `HIGHWIRE_WEBSOCKET_END` once. A deferred
// request cannot become a WebSocket: to look something up first, open it, and to refuse the client, close it with a
// code of your own, such as 4401.
enum highwire_result highwire_respond_websocket(struct highwire_request request,
                                                const struct highwire_websocket_settings *settings,
                                                highwire_websocket_callback callback,
                                                void *data,
                                                struct highwire_websocket *out);

// Sends a message, whose kind is `HIGHWIRE_WEBSOCKET_TEXT`, `_BINARY`, `_PING` or `_PONG`. Any thread may do that. The bytes are
// copied.
//
// Returns `HIGHWIRE_AGAIN` if 256 KiB wait for the peer already; the callback gets `HIGHWIRE_WEBSOCKET_ROOM` when
// there is room, on another thread maybe before this function has returned. Waiting messages do not count against
// `HIGHWIRE_MEMORY`.
enum highwire_result highwire_websocket_send(struct highwire_websocket socket,
                                             int32_t kind,
                                             const void *bytes,
                                             size_t length);

// Closes a connection after the messages that were sent before: `code` is 1000 for a normal end, or another code of
// RFC 6455 section 7.4; `reason` has at most 123 bytes, or is NULL. The peer's messages still arrive until it has
// closed, too.
enum highwire_result highwire_websocket_close(struct highwire_websocket socket, uint32_t code, const char *reason);

// ---- 10. Topics: messages to many WebSockets ------------------------------------------------------------------------

// Makes a set of topics. Each topic keeps its last `history` messages for late subscribers; 0 keeps none. They are
// kept in memory, at most 4 MiB per topic.
enum highwire_result highwire_topics_new(size_t history, struct highwire_topics *out);

// Frees the handle of a set of topics. WebSockets that have subscribed keep their subscriptions.
enum highwire_result highwire_topics_free(struct highwire_topics topics);

// Publishes a message, whose kind is `HIGHWIRE_WEBSOCKET_TEXT` or `HIGHWIRE_WEBSOCKET_BINARY`, to a topic such as `chat/lobby`. Any
// thread may do that. The bytes are copied, once for all subscribers.
enum highwire_result highwire_topics_publish(struct highwire_topics topics,
                                             const char *topic,
                                             int32_t kind,
                                             const void *bytes,
                                             size_t length);

// Sends the messages of a filter's topics to a WebSocket until it ends. `chat/lobby` is one topic; `chat/+` matches
// all topics one level below `chat`, and `chat/#` those any number of levels below. First sends up to `last` messages
// of the topic's history. Only the thread of the socket's worker may call this, so call it in a handler or a callback.
enum highwire_result highwire_websocket_subscribe(struct highwire_websocket socket,
                                                  struct highwire_topics topics,
                                                  const char *filter,
                                                  size_t last);

// Ends a subscription. Returns `HIGHWIRE_NOT_FOUND` if there is none to this filter.
enum highwire_result highwire_websocket_unsubscribe(struct highwire_websocket socket,
                                                    struct highwire_topics topics,
                                                    const char *filter);

// ---- 11. Calls to other servers -------------------------------------------------------------------------------------

// A setting of a client that is a number. Times are in milliseconds. The value 0 changes nothing, except for
// `HIGHWIRE_CLIENT_REDIRECTS` and `HIGHWIRE_CLIENT_RETRIES`.
typedef enum highwire_client_option {
    // The time for a whole call, from the look-up of the name to the end of the response's body. There is no limit by
    // default.
    HIGHWIRE_CLIENT_TIMEOUT_MS = 1,
    // The time to connect, without the TLS handshake; 10 seconds by default.
    HIGHWIRE_CLIENT_CONNECT_MS = 2,
    // The most bytes of a body that is received whole; 64 MiB by default.
    HIGHWIRE_CLIENT_BODY_BYTES = 3,
    // The most redirects that are followed; 10 by default. More are an error. With 0, the redirect itself is the reply.
    HIGHWIRE_CLIENT_REDIRECTS = 4,
    // The most retries after lost connections; 3 by default.
    HIGHWIRE_CLIENT_RETRIES = 5,
    // The version of HTTP: 10, 11 or 20, with and without TLS. By default, 11 without TLS, and 11 or 20 by ALPN with
    // TLS.
    HIGHWIRE_CLIENT_HTTP = 6,
    // 1 refuses URLs without TLS, also in redirects.
    HIGHWIRE_CLIENT_HTTPS_ONLY = 7,
    // The interface of the client's own thread to the kernel: 1 for io_uring, 2 for epoll. By default, io_uring, or
    // epoll if that is unavailable.
    HIGHWIRE_CLIENT_ENGINE = 8,
} highwire_client_option;

// A setting of a client that is a text.
typedef enum highwire_client_text {
    // The base against which the URLs of all calls are resolved.
    HIGHWIRE_CLIENT_BASE_URL = 1,
    // The value of `User-Agent`.
    HIGHWIRE_CLIENT_USER_AGENT = 2,
    // The address of a proxy for all calls: `http://host:port` or `socks5://host:port`.
    HIGHWIRE_CLIENT_PROXY = 3,
    // The path of a unix socket to which all calls connect.
    HIGHWIRE_CLIENT_UNIX_SOCKET = 4,
    // A file in the format PEM with certificates that are trusted besides those of the system.
    HIGHWIRE_CLIENT_ROOT_FILE = 5,
    // A file in the format PEM with the certificate that the client shows to servers, its chain, and its private key.
    HIGHWIRE_CLIENT_IDENTITY_FILE = 6,
} highwire_client_text;

// Gets a part of the body of another server's response. The part is valid until the callback returns. Returns 0 to go
// on; another value ends the call with `HIGHWIRE_GONE`.
typedef int32_t (*highwire_reply_part_callback)(const void *part, size_t length, void *data);

// Gets the result of a call to another server. If `result` is `HIGHWIRE_OK`, free `reply` with `highwire_reply_free`;
// otherwise its id is 0, and `highwire_last_error` has the reason.
typedef void (*highwire_reply_callback)(enum highwire_result result, struct highwire_reply reply, void *data);

// Makes a call with a method such as `GET` and a URL. For `highwire_call_websocket`, the URL may begin with `ws:` or
// `wss:`. It may be relative to `HIGHWIRE_CLIENT_BASE_URL`; but even then a full URL, or one that begins with `//`,
// names another host: encode text that a user has typed.
enum highwire_result highwire_call_new(struct highwire_client client,
                                       const char *method,
                                       const char *url,
                                       struct highwire_call *out);

// Adds a header field. The library itself writes `Host` and the fields that frame the message.
enum highwire_result highwire_call_header(struct highwire_call call, const char *name, const char *value);

// Sets the body. The bytes are copied.
enum highwire_result highwire_call_body(struct highwire_call call, const void *body, size_t length);

// Gives a call a body in parts, which `highwire_stream_write` writes before or after the call is sent. `length` is the
// length of the body, or -1 if it is not known. `callback` may be NULL; it runs on the call's thread: see
// `highwire_call_send`.
//
// The program must end the stream with `highwire_stream_end` or `highwire_stream_abort`, even after the call has
// ended, and even if the call is never sent. At the end of the call, the callbacks of the stream (with
// `HIGHWIRE_GONE`) and of the call come in either order; if they share `data`, end the stream in the callback of the
// call, and then free `data`.
//
// After a part was sent, the library does not retry the call on a lost connection, and a redirect that needs the body
// again is itself the reply. HTTP/1.0 needs a length.
enum highwire_result highwire_call_stream(struct highwire_call call,
                                          int64_t length,
                                          highwire_stream_callback callback,
                                          void *data,
                                          struct highwire_stream *out);

// Sets the time limit of this call in milliseconds, in place of the client's. 0 restores the client's.
enum highwire_result highwire_call_timeout(struct highwire_call call, uint64_t milliseconds);

// Passes the response's body to a callback part by part, so that the body may have any length; only a compressed body
// is still limited, after decoding, to `HIGHWIRE_CLIENT_BODY_BYTES`. The reply's own body is then empty. The callback
// runs on the call's thread: see `highwire_call_send`. If parts come faster than the program can take them, see
// `highwire_call_pause`.
enum highwire_result highwire_call_on_part(struct highwire_call call,
                                           highwire_reply_part_callback callback,
                                           void *data);

// Frees a call that was not sent.
enum highwire_result highwire_call_free(struct highwire_call call);

// Cancels a call that was sent. Any thread may do that. The program still gets a result, later: `HIGHWIRE_GONE`, or
// the call's own result if it has ended meanwhile. It gets no further part of the response; but if this is not the
// call's thread, the callback for a part may still be running.
enum highwire_result highwire_call_cancel(struct highwire_call call);

// Pauses the parts of the response's body. Any thread may do that. After the current part, the callback of
// `highwire_call_on_part` gets no other until `highwire_call_resume`, and the other server must wait once a buffer
// is full. The call's time limit keeps running. If no part follows, the result arrives despite the pause; so does the
// result of a call without such a callback.
enum highwire_result highwire_call_pause(struct highwire_call call);

// Resumes a call after `highwire_call_pause`. Any thread may do that.
enum highwire_result highwire_call_resume(struct highwire_call call);

// Sends a call. The library calls the callback once, later; the call's handle is then invalid. If a handler or a
// callback on a worker's thread sends the call, the call and its callback run on that thread; otherwise on the
// client's own thread, maybe before this function has returned. If this function fails, the callback is not called,
// and the call is freed unless it was sent before.
enum highwire_result highwire_call_send(struct highwire_call call, highwire_reply_callback callback, void *data);

// Sends a call, and waits for the reply. The call's handle is then invalid. In a handler or a callback, this function
// returns `HIGHWIRE_WRONG_THREAD`, and frees the call.
//
// If the call has a stream, another thread must write and end it meanwhile, unless the program has done so before.
enum highwire_result highwire_call_wait(struct highwire_call call, struct highwire_reply *out);

// Makes a client with the default settings. Set others before its first call.
enum highwire_result highwire_client_new(struct highwire_client *out);

// Frees a client. Calls that were sent go on, and their callbacks are still called.
enum highwire_result highwire_client_free(struct highwire_client client);

// Changes a setting of a client: see `highwire_client_option`.
enum highwire_result highwire_client_set(struct highwire_client client, int32_t option, uint64_t value);

// Changes a setting of a client that is a text: see `highwire_client_text`.
enum highwire_result highwire_client_set_text(struct highwire_client client, int32_t option, const char *value);

// Gives the status of a reply.
enum highwire_result highwire_reply_status(struct highwire_reply reply, uint32_t *out);

// Gives the version of HTTP of a reply: 10, 11 or 20.
enum highwire_result highwire_reply_version(struct highwire_reply reply, uint32_t *out);

// Gives the value of the first header field of that name, or `HIGHWIRE_NOT_FOUND`. The case of the name does not matter. Strings of
// a reply are valid until it is freed.
enum highwire_result highwire_reply_header(struct highwire_reply reply,
                                           const char *name,
                                           struct highwire_string *out);

// Gives the name, in lower case, and the value of the header field with this index, from 0 on, or `HIGHWIRE_NOT_FOUND`
// after the last one.
enum highwire_result highwire_reply_header_at(struct highwire_reply reply,
                                              size_t index,
                                              struct highwire_string *name,
                                              struct highwire_string *value);

// Gives the body of a reply.
enum highwire_result highwire_reply_body(struct highwire_reply reply, struct highwire_string *out);

// Frees a reply.
enum highwire_result highwire_reply_free(struct highwire_reply reply);

// Sends a call as the opening handshake of a WebSocket to another server. The call's method must be GET. Its URL
// begins with `ws:`, `wss:`, `http:` or `https:`, or is relative to the client's base URL. Its header fields are part
// of the handshake, except `Host`, `Upgrade` and `Sec-WebSocket-…`. Its timeout, 30 seconds by default, is that of the
// handshake. The call's handle is then invalid, even on failure. `settings` and `out` may be NULL. `origins` is
// ignored: add a field `Origin` if the server needs one.
//
// After `HIGHWIRE_OK`, the callback gets `HIGHWIRE_WEBSOCKET_OPEN`, or, if the WebSocket cannot be opened, only
// `HIGHWIRE_WEBSOCKET_END` with the code 1006 and the reason as text. `highwire_websocket_close` before that does not
// stop the attempt: it closes the connection once that is open. The callback runs on the same thread as that of
// `highwire_call_send`; if this is another thread, maybe before this function has returned. A freed client's thread
// runs until its WebSockets are closed.
enum highwire_result highwire_call_websocket(struct highwire_call call,
                                             const struct highwire_websocket_settings *settings,
                                             highwire_websocket_callback callback,
                                             void *data,
                                             struct highwire_websocket *out);

// ---- 12. A server in the program's own event loop -------------------------------------------------------------------

// The events of a descriptor. Several are added.
typedef enum highwire_loop_event {
    // It can be read, or has ended.
    HIGHWIRE_READABLE = 1,
    // It can be written, or has ended.
    HIGHWIRE_WRITABLE = 2,
} highwire_loop_event;

// Called once when a watched descriptor is ready; see `highwire_loop_watch`. `events` has the events for which it is.
typedef void (*highwire_loop_callback)(int32_t descriptor, uint32_t events, void *data);

// Runs the server inside a loop of this thread, with one worker. `engine` is 0 for io_uring, or epoll if that is
// unavailable; 1 for io_uring only; 2 for epoll. The server's handle then serves only to get its addresses and to free
// it. `HIGHWIRE_WORKERS` and `HIGHWIRE_ENGINE` are ignored. Free the loop before the server.
//
// Wait, without a timeout, until the descriptor of `highwire_loop_descriptor` is readable, and then call
// `highwire_loop_turn`; also call it once before the first wait.
enum highwire_result highwire_loop_new(struct highwire_server server, int32_t engine, struct highwire_loop *out);

// Watches a descriptor of the program in the loop's own wait, until it is ready once for one of `events`
// (`HIGHWIRE_READABLE`, `HIGHWIRE_WRITABLE`, or both). A turn then calls `callback`, which may watch it again. A second
// watch of the same descriptor replaces the first. End the watch before you close the descriptor.
enum highwire_result highwire_loop_watch(struct highwire_loop handle,
                                         int32_t descriptor,
                                         uint32_t events,
                                         highwire_loop_callback callback,
                                         void *data);

// Ends the watch of a descriptor. Does nothing if it is not watched.
enum highwire_result highwire_loop_unwatch(struct highwire_loop handle, int32_t descriptor);

// Runs a turn that waits until something happens: for the server, for a watched descriptor, or for at most
// `milliseconds` (without a limit if negative). It is for a program whose loop this is; others wait for
// `highwire_loop_descriptor` and call `highwire_loop_turn`. A signal may end the wait early. Gives 1 if the server has
// ended after a shutdown, and 0 otherwise.
enum highwire_result highwire_loop_wait(struct highwire_loop handle, int64_t milliseconds, int32_t *has_ended);

// Gives the descriptor that becomes readable when a turn has work to do. The loop owns it: do not close it.
enum highwire_result highwire_loop_descriptor(struct highwire_loop handle, int32_t *out);

// Runs a turn: does the work that is ready, without waiting. Gives 1 if the server has ended after a shutdown, and 0
// otherwise.
enum highwire_result highwire_loop_turn(struct highwire_loop handle, int32_t *has_ended);

// Begins a graceful shutdown. Keep calling `highwire_loop_turn` until it gives 1.
enum highwire_result highwire_loop_shutdown(struct highwire_loop handle);

// Gives the counts of the server.
enum highwire_result highwire_loop_stats(struct highwire_loop handle, struct highwire_stats *out);

// Frees a loop, and closes its connections at once.
enum highwire_result highwire_loop_free(struct highwire_loop handle);

// ---- 13. The process: log and memory --------------------------------------------------------------------------------

// Functions that allocate memory. Several threads may call them at the same time. Alignments are powers of two. On
// failure, a function returns NULL; the library may then abort the process. The functions must not call the library.
typedef struct highwire_allocator {
    // Returns memory of this size, which is not 0, and this alignment.
    void *(*allocate)(size_t size, size_t alignment, void *data);
    // Changes the size of memory, and may move it. NULL: the library allocates, copies and frees.
    void *(*resize)(void *memory, size_t old_size, size_t new_size, size_t alignment, void *data);
    // Frees memory. `size` and `alignment` are those of its allocation.
    void (*release)(void *memory, size_t size, size_t alignment, void *data);
    // Passed to each function.
    void *data;
} highwire_allocator;

// Gets a line of the log, without a line end. `level` is 1 for errors, 2 for warnings, 3 for information. The text is
// valid until the callback returns. The callback may run on several threads at the same time, and must not block.
typedef void (*highwire_log_callback)(int32_t level, const char *line, void *data);

// Makes the library allocate its memory with functions of the program. Call it before any other function of the
// library, and while no other thread calls one; later it returns `HIGHWIRE_WRONG_STATE`. The library copies the
// structure. The kernel's memory for io_uring, and that of the C code for TLS and compression, does not come from
// these functions.
enum highwire_result highwire_set_allocator(const struct highwire_allocator *allocator);

// Sets the callback that gets the lines of the log up to this level, 1 to 3. It can be set once per process, before
// servers start; without it, the library logs nothing. The callback must not call functions of servers: a server that
// is starting would wait for itself.
enum highwire_result highwire_set_log(int32_t level, highwire_log_callback callback, void *data);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HIGHWIRE_H */
