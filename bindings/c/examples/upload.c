/* Counts the bytes of an upload as they arrive, and never holds more than one part. Set HIGHWIRE_STREAMED_BODY_BYTES for larger
 * ones than its default.
 *
 *     cc upload.c $(pkg-config --cflags --libs highwire) -o upload && ./upload 127.0.0.1:8080
 *     curl --data-binary @FILE 127.0.0.1:8080/upload
 */
#include <highwire.h>
#include <stdio.h>
#include <stdlib.h>

static void part(highwire_request request, enum highwire_result result, const void *bytes, size_t length, void *data) {
    unsigned long long *count = (unsigned long long *)data;
    (void)bytes;
    if (result != HIGHWIRE_OK) {
        /* The body does not come whole. The answer frees the request; the client gets one if it is still there. */
        highwire_respond(request, 400, NULL, NULL, 0);
        free(count);
        return;
    }
    *count += length;
    if (length > 0) {
        if (highwire_request_read(request, part, count) != HIGHWIRE_OK) {
            highwire_respond(request, 500, NULL, NULL, 0);
            free(count);
        }
        return;
    }
    char text[64];
    int written = snprintf(text, sizeof text, "%llu bytes\n", *count);
    free(count);
    highwire_respond(request, 200, "text/plain", text, (size_t)written);
}

static void upload(highwire_request request, void *data) {
    unsigned long long *count = (unsigned long long *)calloc(1, sizeof *count);
    (void)data;
    if (count == NULL || highwire_request_read(request, part, count) != HIGHWIRE_OK) {
        free(count);
        highwire_respond(request, 500, NULL, NULL, 0);
    }
}

int main(int argc, char **argv) {
    highwire_app app;
    highwire_server server;
    if (highwire_app_new(&app) || highwire_app_route(app, "POST", "/upload", HIGHWIRE_BODY_PARTS, upload, NULL) ||
        highwire_server_new(app, &server) || highwire_server_listen(server, argc > 1 ? argv[1] : "127.0.0.1:8080")) {
        fprintf(stderr, "%s\n", highwire_last_error());
        return 1;
    }
    printf("http://%s\n", highwire_server_address(server, 0));
    fflush(stdout);
    return highwire_server_run(server) == HIGHWIRE_OK ? 0 : 1;
}
