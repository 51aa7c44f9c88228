/* An application for Haywire whose responses are made by a pool of threads. The handler copies what they need, because the request
 * ends with it. Run it with a port and a number of threads of the server. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "haywire.h"

struct job {
    struct job *next;
    hw_http_response *response;
    char url[256], text[300];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t is_there = PTHREAD_COND_INITIALIZER;
static struct job *first, **last = &first;

static void sent(void *job) {
    free(job);
}

static void *work(void *unused) {
    (void)unused;
    for (;;) {
        struct job *job;
        hw_string status, body;
        pthread_mutex_lock(&mutex);
        while (first == NULL)
            pthread_cond_wait(&is_there, &mutex);
        job = first;
        first = job->next;
        if (first == NULL)
            last = &first;
        pthread_mutex_unlock(&mutex);
        snprintf(job->text, sizeof job->text, "done: %s", job->url);
        SETSTRING(status, HTTP_STATUS_200);
        hw_set_response_status_code(job->response, &status);
        body.value = job->text;
        body.length = strlen(job->text);
        hw_set_body(job->response, &body);
        hw_http_response_send(job->response, job, sent);
    }
    return NULL;
}

static void enqueue(http_request *request, hw_http_response *response, void *user_data) {
    struct job *job = (struct job *)calloc(1, sizeof *job);
    size_t length = request->url->length < 255 ? request->url->length : 255;
    (void)user_data;
    if (job == NULL)
        abort();
    job->response = response;
    memcpy(job->url, request->url->value, length);
    pthread_mutex_lock(&mutex);
    *last = job;
    last = &job->next;
    pthread_cond_signal(&is_there);
    pthread_mutex_unlock(&mutex);
}

int main(int argc, char **argv) {
    char route[] = "/work/*", address[] = "127.0.0.1";
    configuration config;
    pthread_t threads[4];
    int at;
    memset(&config, 0, sizeof config);
    config.http_listen_address = address;
    config.http_listen_port = (unsigned int)(argc > 1 ? atoi(argv[1]) : 8000);
    hw_init_with_config(&config);
    hw_http_add_route(route, enqueue, NULL);
    for (at = 0; at < 4; at++)
        if (pthread_create(&threads[at], NULL, work, NULL) != 0)
            return 1;
    return hw_http_open(argc > 2 ? atoi(argv[2]) : 1);
}
