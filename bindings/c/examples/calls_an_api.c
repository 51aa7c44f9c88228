/* A handler that asks another server and waits for no thread: /weather/{city} asks API/CITY, and answers with what it says.
 *
 *     cc calls_an_api.c $(pkg-config --cflags --libs highwire) -o calls_an_api
 *     ./calls_an_api 127.0.0.1:8080 http://127.0.0.1:9000/
 */
#include <highwire.h>
#include <stdio.h>
#include <stdlib.h>

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

static void weather(highwire_request request, void *data) {
    highwire_string city;
    highwire_call call = 0;
    char url[512];
    highwire_request *kept = (highwire_request *)malloc(sizeof *kept);
    const char *api = (const char *)data;
    /* The path is percent-encoded already, unlike the parameter. */
    if (kept != NULL && highwire_request_path(request, &city) == HIGHWIRE_OK && city.length < 256 &&
        (size_t)snprintf(url, sizeof url, "%s%.*s", api, (int)city.length - 9, city.data + 9) < sizeof url) {
        *kept = request;
        if (highwire_call_new(client, "GET", url, &call) == HIGHWIRE_OK &&
            highwire_call_header(call, "Accept", "text/plain") == HIGHWIRE_OK &&
            highwire_call_send(call, answer, kept) == HIGHWIRE_OK)
            return; /* The request is answered later. */
    }
    highwire_respond(request, 500, NULL, NULL, 0);
    free(kept);
}

int main(int argc, char **argv) {
    highwire_app app;
    highwire_server server;
    if (highwire_client_new(&client) || highwire_client_set(client, HIGHWIRE_CLIENT_TIMEOUT_MS, 5000) ||
        highwire_app_new(&app) ||
        highwire_app_route(app, "GET", "/weather/{city}", HIGHWIRE_BODY_NONE, weather,
                           argc > 2 ? argv[2] : (char *)"http://127.0.0.1:9000/") ||
        highwire_server_new(app, &server) || highwire_server_listen(server, argc > 1 ? argv[1] : "127.0.0.1:8080")) {
        fprintf(stderr, "%s\n", highwire_last_error());
        return 1;
    }
    printf("http://%s\n", highwire_server_address(server, 0));
    fflush(stdout);
    int result = highwire_server_run(server) == HIGHWIRE_OK ? 0 : 1;
    highwire_client_free(client);
    return result;
}
