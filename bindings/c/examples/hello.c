/* The smallest server: /hello, and /users/{id} with a parameter.
 *
 *     cc hello.c $(pkg-config --cflags --libs highwire) -o hello && ./hello 127.0.0.1:8080
 */
#include <highwire.h>
#include <stdio.h>
#include <string.h>

static void hello(highwire_request request, void *data) {
    const char *text = (const char *)data;
    highwire_respond(request, 200, "text/plain; charset=utf-8", text, strlen(text));
}

static void user(highwire_request request, void *data) {
    char text[128];
    highwire_string id;
    (void)data;
    if (highwire_request_param(request, "id", &id) != HIGHWIRE_OK) {
        highwire_respond(request, 400, NULL, NULL, 0);
        return;
    }
    int length = snprintf(text, sizeof text, "user %.*s\n", id.length > 64 ? 64 : (int)id.length, id.data);
    highwire_respond(request, 200, "text/plain; charset=utf-8", text, (size_t)length);
}

int main(int argc, char **argv) {
    static char text[] = "Hello, World!";
    highwire_app app;
    highwire_server server;
    if (highwire_app_new(&app) || highwire_app_route(app, "GET", "/hello", HIGHWIRE_BODY_NONE, hello, text) ||
        highwire_app_route(app, "GET", "/users/{id}", HIGHWIRE_BODY_NONE, user, NULL) ||
        highwire_server_new(app, &server) || highwire_server_listen(server, argc > 1 ? argv[1] : "127.0.0.1:8080")) {
        fprintf(stderr, "%s\n", highwire_last_error());
        return 1;
    }
    printf("http://%s\n", highwire_server_address(server, 0));
    fflush(stdout);
    /* Until SIGINT or SIGTERM. */
    if (highwire_server_run(server)) {
        fprintf(stderr, "%s\n", highwire_last_error());
        return 1;
    }
    return 0;
}
