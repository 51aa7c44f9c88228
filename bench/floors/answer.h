// The canned answer: 126 bytes, the same from both floors and both model servers, so that figures compare like with like.
#ifndef HIGHWIRE_BENCH_ANSWER_H
#define HIGHWIRE_BENCH_ANSWER_H
static const char answer[] =
    "HTTP/1.1 200 OK\r\n"
    "Server: f\r\n"
    "Date: Fri, 20 Nov 2026 08:00:00 GMT\r\n"
    "Content-Type: text/plain\r\n"
    "Content-Length: 13\r\n"
    "\r\n"
    "Hello, World!";
#endif
