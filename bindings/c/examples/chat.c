/* A chat: a page, and a WebSocket whose messages all clients get, on all workers. Late clients get the last 20 messages.
 *
 *     cc chat.c $(pkg-config --cflags --libs highwire) -o chat && ./chat 127.0.0.1:8080
 */
#include <highwire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static highwire_topics topics;

static const char PAGE[] =
    "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    "<title>Chat</title><style>body{font:16px sans-serif;max-width:40em;margin:1em auto;padding:0 1em}"
    "li{overflow-wrap:anywhere}form{display:flex;gap:.5em}input{flex:1;font:inherit;min-width:0}</style>"
    "<h1>Chat</h1><form><input aria-label=Message autofocus><button>Send</button></form><ul></ul><script>\n"
    "const list = document.querySelector('ul'), input = document.querySelector('input');\n"
    "const name = new URLSearchParams(location.search).get('name') || 'guest';\n"
    "const socket = new WebSocket(location.origin.replace('http', 'ws') + '/chat?name=' + encodeURIComponent(name));\n"
    "socket.onmessage = event => {\n"
    "    const item = document.createElement('li');\n"
    "    item.textContent = event.data;\n"
    "    list.prepend(item);\n"
    "};\n"
    "document.querySelector('form').onsubmit = event => {\n"
    "    event.preventDefault();\n"
    "    if (input.value) socket.send(input.value);\n"
    "    input.value = '';\n"
    "};\n"
    "</script></html>";

static void page(highwire_request request, void *data) {
    (void)data;
    highwire_respond(request, 200, "text/html; charset=utf-8", PAGE, sizeof PAGE - 1);
}

/* Publishes a line "name: text". */
static void publish(const char *name, const void *text, size_t length) {
    size_t before = strlen(name);
    char *line = (char *)malloc(before + 2 + length);
    if (line == NULL)
        return;
    memcpy(line, name, before);
    memcpy(line + before, ": ", 2);
    if (length > 0)
        memcpy(line + before + 2, text, length);
    highwire_topics_publish(topics, "chat/lobby", HIGHWIRE_WEBSOCKET_TEXT, line, before + 2 + length);
    free(line);
}

static void chat(highwire_websocket socket, int32_t event, uint32_t code, const void *bytes, size_t length, void *data) {
    char *name = (char *)data;
    (void)code;
    switch (event) {
    case HIGHWIRE_WEBSOCKET_OPEN:
        if (highwire_websocket_subscribe(socket, topics, "chat/lobby", 20) != HIGHWIRE_OK)
            highwire_websocket_close(socket, 1011, "no subscription");
        break;
    case HIGHWIRE_WEBSOCKET_TEXT:
        publish(name, bytes, length);
        break;
    case HIGHWIRE_WEBSOCKET_END:
        free(name);
        break;
    default:
        break;
    }
}

static void open_chat(highwire_request request, void *data) {
    highwire_string given;
    const struct highwire_websocket_settings settings = {NULL, NULL, 4096, 0, 0};
    (void)data;
    if (highwire_request_query_param(request, "name", &given) != HIGHWIRE_OK || given.length == 0 || given.length > 40 ||
        memchr(given.data, 0, given.length) != NULL) {
        highwire_respond(request, 400, "text/plain", "a name has 1 to 40 bytes\n", 25);
        return;
    }
    char *name = (char *)malloc(given.length + 1);
    if (name == NULL) {
        highwire_respond(request, 500, NULL, NULL, 0);
        return;
    }
    memcpy(name, given.data, given.length);
    name[given.length] = 0;
    /* If it fails because the request opens no WebSocket, the library has answered it. The callback is then never called. */
    if (highwire_respond_websocket(request, &settings, chat, name, NULL) != HIGHWIRE_OK)
        free(name);
}

int main(int argc, char **argv) {
    highwire_app app;
    highwire_server server;
    if (highwire_topics_new(20, &topics) || highwire_app_new(&app) ||
        highwire_app_route(app, "GET", "/", HIGHWIRE_BODY_NONE, page, NULL) ||
        highwire_app_route(app, "GET", "/chat", HIGHWIRE_BODY_NONE, open_chat, NULL) || highwire_server_new(app, &server) ||
        highwire_server_listen(server, argc > 1 ? argv[1] : "127.0.0.1:8080")) {
        fprintf(stderr, "%s\n", highwire_last_error());
        return 1;
    }
    printf("http://%s\n", highwire_server_address(server, 0));
    fflush(stdout);
    int result = highwire_server_run(server) == HIGHWIRE_OK ? 0 : 1;
    highwire_server_free(server);
    highwire_topics_free(topics);
    return result;
}
