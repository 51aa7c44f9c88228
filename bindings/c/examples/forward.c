/* Forwards uploads of any size to another server, part by part, and holds no more than the slower of the two has not taken.
 *
 *     cc forward.c $(pkg-config --cflags --libs highwire) -o forward
 *     ./forward 127.0.0.1:8080 http://127.0.0.1:9000/upload
 *     curl --data-binary @FILE 127.0.0.1:8080/
 */
#include <highwire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static highwire_client client;

/* Everything here runs on the request's worker, so it needs no lock. */
struct transfer {
    highwire_request request;
    highwire_call call;
    highwire_stream stream; /* 0 after its end */
    void *held;             /* A part that did not fit. */
    size_t held_length;
};

static void part(highwire_request request, enum highwire_result result, const void *bytes, size_t length, void *data);

/* Ends the stream once. The other server then sees a whole body, or one that is cut. */
static void end(struct transfer *transfer, int is_whole) {
    highwire_stream stream = transfer->stream;
    transfer->stream.id = 0;
    free(transfer->held);
    transfer->held = NULL;
    if (stream.id != 0 && is_whole)
        highwire_stream_end(stream);
    else if (stream.id != 0)
        highwire_stream_abort(stream);
}

/* Asks the client for the next part, or gives up. */
static void read_on(struct transfer *transfer) {
    if (highwire_request_read(transfer->request, part, transfer) != HIGHWIRE_OK)
        end(transfer, 0);
}

/* The client has sent a part. */
static void part(highwire_request request, enum highwire_result result, const void *bytes, size_t length, void *data) {
    struct transfer *transfer = (struct transfer *)data;
    (void)request;
    if (transfer->stream.id == 0)
        return; /* The call has ended. */
    if (result != HIGHWIRE_OK || length == 0) {
        end(transfer, result == HIGHWIRE_OK);
        return;
    }
    result = highwire_stream_write(transfer->stream, bytes, length);
    if (result == HIGHWIRE_AGAIN && (transfer->held = malloc(length)) != NULL) {
        memcpy(transfer->held, bytes, length);
        transfer->held_length = length;
    } else if (result == HIGHWIRE_OK) {
        read_on(transfer);
    } else {
        end(transfer, 0);
    }
}

/* The other server takes more, or nothing any more. */
static void room(highwire_stream stream, enum highwire_result result, void *data) {
    struct transfer *transfer = (struct transfer *)data;
    if (result == HIGHWIRE_OK && transfer->held != NULL)
        result = highwire_stream_write(stream, transfer->held, transfer->held_length);
    if (result == HIGHWIRE_AGAIN)
        return;
    if (result != HIGHWIRE_OK) {
        end(transfer, 0);
    } else if (transfer->held != NULL) {
        free(transfer->held);
        transfer->held = NULL;
        read_on(transfer);
    }
}

/* The call has ended, maybe before the upload. */
static void done(enum highwire_result result, highwire_reply reply, void *data) {
    struct transfer *transfer = (struct transfer *)data;
    highwire_string body;
    uint32_t status;
    end(transfer, 0);
    if (result == HIGHWIRE_OK && highwire_reply_status(reply, &status) == HIGHWIRE_OK &&
        highwire_reply_body(reply, &body) == HIGHWIRE_OK) {
        highwire_respond(transfer->request, status, "application/octet-stream", body.data, body.length);
        highwire_reply_free(reply);
    } else {
        highwire_respond(transfer->request, result == HIGHWIRE_TIMED_OUT ? 504 : 502, NULL, NULL, 0);
    }
    free(transfer);
}

static void forward(highwire_request request, void *data) {
    struct transfer *transfer = (struct transfer *)calloc(1, sizeof *transfer);
    const char *url = (const char *)data;
    if (transfer == NULL || highwire_call_new(client, "POST", url, &transfer->call) != HIGHWIRE_OK) {
        free(transfer);
        highwire_respond(request, 500, NULL, NULL, 0);
        return;
    }
    transfer->request = request;
    /* Its parts come after the handler has returned. */
    if (highwire_request_defer(request) != HIGHWIRE_OK ||
        highwire_call_stream(transfer->call, -1, room, transfer, &transfer->stream) != HIGHWIRE_OK ||
        highwire_call_send(transfer->call, done, transfer) != HIGHWIRE_OK) {
        highwire_call_free(transfer->call);
        end(transfer, 0);
        free(transfer);
        highwire_respond(request, 500, NULL, NULL, 0);
        return;
    }
    read_on(transfer);
}

int main(int argc, char **argv) {
    highwire_app app;
    highwire_server server;
    if (argc < 3) {
        fprintf(stderr, "usage: %s ADDRESS URL\n", argv[0]);
        return 2;
    }
    if (highwire_client_new(&client) || highwire_client_set(client, HIGHWIRE_CLIENT_TIMEOUT_MS, 3600000) ||
        highwire_app_new(&app) || highwire_app_route(app, "POST", "/", HIGHWIRE_BODY_PARTS, forward, argv[2]) ||
        highwire_app_set(app, HIGHWIRE_HANDLER_MS, 3700000) || highwire_server_new(app, &server) ||
        highwire_server_listen(server, argv[1])) {
        fprintf(stderr, "%s\n", highwire_last_error());
        return 1;
    }
    printf("http://%s\n", highwire_server_address(server, 0));
    fflush(stdout);
    int result = highwire_server_run(server) == HIGHWIRE_OK ? 0 : 1;
    highwire_server_free(server);
    highwire_client_free(client);
    return result;
}
