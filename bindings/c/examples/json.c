/* A list of notes as JSON, with cJSON (Debian: libcjson-dev).
 *
 *     cc json.c $(pkg-config --cflags --libs highwire libcjson) -o json && ./json 127.0.0.1:8080
 *     curl -d '{"text": "buy milk"}' 127.0.0.1:8080/notes
 *     curl 127.0.0.1:8080/notes
 */
#include <cjson/cJSON.h>
#include <highwire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_NOTES 100

/* One worker runs all handlers, so the notes need no lock. */
static cJSON *notes;

/* Answers with a value, which stays with the caller. */
static void answer(highwire_request request, uint32_t status, const cJSON *value) {
    char *text = cJSON_PrintUnformatted(value);
    if (text == NULL) {
        highwire_respond(request, 500, NULL, NULL, 0);
        return;
    }
    highwire_respond(request, status, "application/json", text, strlen(text));
    cJSON_free(text);
}

static void refuse(highwire_request request, uint32_t status, const char *why) {
    cJSON *error = cJSON_CreateObject();
    cJSON_AddStringToObject(error, "error", why);
    answer(request, status, error);
    cJSON_Delete(error);
}

static void list(highwire_request request, void *data) {
    (void)data;
    answer(request, 200, notes);
}

static void add(highwire_request request, void *data) {
    highwire_string body;
    (void)data;
    if (highwire_request_body(request, &body) != HIGHWIRE_OK) {
        highwire_respond(request, 500, NULL, NULL, 0);
        return;
    }
    cJSON *given = cJSON_ParseWithLength(body.data, body.length);
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(given, "text"));
    if (text == NULL) {
        refuse(request, 400, "the body is no JSON object with a string \"text\"");
    } else if (cJSON_GetArraySize(notes) >= MOST_NOTES) {
        refuse(request, 409, "there are 100 notes already");
    } else {
        cJSON *note = cJSON_CreateObject();
        cJSON_AddNumberToObject(note, "id", cJSON_GetArraySize(notes) + 1);
        cJSON_AddStringToObject(note, "text", text);
        if (cJSON_AddItemToArray(notes, note)) {
            answer(request, 201, note);
        } else {
            cJSON_Delete(note);
            refuse(request, 500, "there is no memory");
        }
    }
    cJSON_Delete(given);
}

int main(int argc, char **argv) {
    highwire_app app;
    highwire_server server;
    notes = cJSON_CreateArray();
    if (notes == NULL)
        return 1;
    if (highwire_app_new(&app) || highwire_app_set(app, HIGHWIRE_WORKERS, 1) ||
        highwire_app_route(app, "GET", "/notes", HIGHWIRE_BODY_NONE, list, NULL) ||
        highwire_app_route(app, "POST", "/notes", HIGHWIRE_BODY_WHOLE, add, NULL) || highwire_server_new(app, &server) ||
        highwire_server_listen(server, argc > 1 ? argv[1] : "127.0.0.1:8080")) {
        fprintf(stderr, "%s\n", highwire_last_error());
        return 1;
    }
    printf("http://%s\n", highwire_server_address(server, 0));
    fflush(stdout);
    int result = highwire_server_run(server) == HIGHWIRE_OK ? 0 : 1;
    highwire_server_free(server);
    cJSON_Delete(notes);
    return result;
}
