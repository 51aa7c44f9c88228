// The fixed answer of both floors and both model servers: 126 bytes, so that their figures can be compared.
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
