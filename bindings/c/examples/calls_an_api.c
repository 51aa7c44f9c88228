/* A handler that asks another server and waits for no thread: /weather/{city} asks API/CITY, and answers with what it says.
 *
 *     cc calls_an_api.c $(pkg-config --cflags --libs highwire) -o calls_an_api
 *     ./calls_an_api 127.0.0.1:8080 http://127.0.0.1:9000/
 */
#include <highwire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static highwire_client client;

/* Runs on the request's worker, when the other server has responded. */
static void answer(enum highwire_result result, highwire_reply reply, void *data) {
    highwire_request *request = (highwire_request *)data;
    highwire_string body;
    uint32_t status = 0;
    if (result == HIGHWIRE_OK)
        highwire_reply_status(reply, &status);
    if (status == 200 && highwire_reply_body(reply, &body) == HIGHWIRE_OK)
        highwire_respond(*request, 200, "text/plain", body.data, body.length);
    else
        highwire_respond(*request, result == HIGHWIRE_TIMED_OUT ? 504 : 502, "text/plain", "no weather today\n", 17);
    if (result == HIGHWIRE_OK)
        highwire_reply_free(reply);
    free(request);
}

/* Writes a text as a segment of a path, with a NUL. Returns 0 if it does not fit. */
static int encode(char *out, size_t room, const char *text, size_t length) {
    static const char PLAIN[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_~";
    size_t used = 0;
    for (size_t at = 0; at < length; at++) {
        if (used + 4 > room)
            return 0;
        if (text[at] != 0 && strchr(PLAIN, text[at]) != NULL)
            out[used++] = text[at];
        else
            used += (size_t)snprintf(out + used, 4, "%%%02X", (unsigned)(unsigned char)text[at]);
    }
    out[used] = 0;
    return used > 0;
}

static void weather(highwire_request request, void *data) {
    highwire_string city;
    highwire_call call = {0};
    char path[512];
    highwire_request *kept = (highwire_request *)malloc(sizeof *kept);
    (void)data;
    /* The encoded city can neither leave the API's folder nor name another host. */
    if (kept != NULL && highwire_request_param(request, "city", &city) == HIGHWIRE_OK &&
        encode(path, sizeof path, city.data, city.length) && highwire_call_new(client, "GET", path, &call) == HIGHWIRE_OK) {
        *kept = request;
        if (highwire_call_header(call, "Accept", "text/plain") == HIGHWIRE_OK) {
            if (highwire_call_send(call, answer, kept) == HIGHWIRE_OK)
                return; /* The request is answered later. */
        } else {
            highwire_call_free(call);
        }
    }
    highwire_respond(request, 500, NULL, NULL, 0);
    free(kept);
}

int main(int argc, char **argv) {
    highwire_app app;
    highwire_server server;
    if (highwire_client_new(&client) || highwire_client_set(client, HIGHWIRE_CLIENT_TIMEOUT_MS, 5000) ||
        highwire_client_set_text(client, HIGHWIRE_CLIENT_BASE_URL, argc > 2 ? argv[2] : "http://127.0.0.1:9000/") ||
        highwire_app_new(&app) || highwire_app_route(app, "GET", "/weather/{city}", HIGHWIRE_BODY_NONE, weather, NULL) ||
        highwire_server_new(app, &server) || highwire_server_listen(server, argc > 1 ? argv[1] : "127.0.0.1:8080")) {
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
