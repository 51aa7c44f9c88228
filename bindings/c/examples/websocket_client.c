/* A client of WebSockets: sends each line of its standard input, of at most 4,094 bytes, as a message, and prints each message that
 * comes.
 *
 *     cc websocket_client.c $(pkg-config --cflags --libs highwire) -lpthread -o websocket_client
 *     ./websocket_client ws://127.0.0.1:8080/chat?name=ann
 */
#include <highwire.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int is_over, result;

/* Runs on the client's thread. */
static void happened(highwire_websocket socket, int32_t event, uint32_t code, const void *bytes, size_t length, void *data) {
    (void)socket;
    (void)data;
    switch (event) {
    case HIGHWIRE_WEBSOCKET_TEXT:
        fwrite(bytes, 1, length, stdout);
        putchar('\n');
        fflush(stdout);
        break;
    case HIGHWIRE_WEBSOCKET_BINARY:
        printf("%lu bytes\n", (unsigned long)length);
        fflush(stdout);
        break;
    case HIGHWIRE_WEBSOCKET_END:
        fprintf(stderr, "ended with %u: %.*s\n", (unsigned)code, (int)length, length > 0 ? (const char *)bytes : "");
        /* fall through */
    case HIGHWIRE_WEBSOCKET_ROOM:
        pthread_mutex_lock(&lock);
        if (event == HIGHWIRE_WEBSOCKET_END) {
            is_over = 1;
            result = code == 1000 ? 0 : 1;
        }
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&lock);
        break;
    default:
        break;
    }
}

/* Sends a message, and waits while too many bytes wait for the server. Returns 0 if the connection has ended. */
static int send_line(highwire_websocket socket, const char *text, size_t length) {
    enum highwire_result sent;
    pthread_mutex_lock(&lock);
    /* The callback needs the lock to tell of room, so its signal cannot come before the wait. */
    while ((sent = highwire_websocket_send(socket, HIGHWIRE_WEBSOCKET_TEXT, text, length)) == HIGHWIRE_AGAIN && !is_over)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    if (sent == HIGHWIRE_INVALID_ARGUMENT)
        fprintf(stderr, "%s\n", highwire_last_error());
    return sent == HIGHWIRE_OK || sent == HIGHWIRE_INVALID_ARGUMENT;
}

int main(int argc, char **argv) {
    highwire_client client;
    highwire_call call;
    highwire_websocket socket;
    char text[4096];
    if (argc != 2) {
        fprintf(stderr, "usage: websocket_client URL\n");
        return 2;
    }
    if (highwire_client_new(&client) || highwire_call_new(client, "GET", argv[1], &call) ||
        highwire_call_websocket(call, NULL, happened, NULL, &socket)) {
        fprintf(stderr, "%s\n", highwire_last_error());
        return 1;
    }
    while (fgets(text, sizeof text, stdin) != NULL) {
        size_t length = strlen(text);
        if (length > 0 && text[length - 1] == '\n')
            length--;
        if (!send_line(socket, text, length))
            break;
    }
    highwire_websocket_close(socket, 1000, NULL); /* Behind what was sent. It fails if the connection has ended. */
    pthread_mutex_lock(&lock);
    while (!is_over)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    highwire_client_free(client);
    return result;
}
