/* The library allocates by functions of this program, which check each call. The argument is 1 to give `resize`. */
#include <highwire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Before the memory that the library gets. */
struct before {
    size_t size, alignment, padding;
    void *start;
};

static unsigned long allocated, resized, released;

static void *allocate(size_t size, size_t alignment, void *data) {
    char *start, *memory;
    if (data != &allocated || size == 0 || alignment == 0 || (alignment & (alignment - 1)) != 0)
        abort();
    __atomic_fetch_add(&allocated, 1, __ATOMIC_RELAXED);
    start = (char *)malloc(size + alignment + sizeof(struct before));
    if (start == NULL)
        return NULL;
    memory = start + sizeof(struct before);
    memory += (alignment - (size_t)memory % alignment) % alignment;
    struct before before = {size, alignment, 0, start};
    memcpy(memory - sizeof before, &before, sizeof before);
    memset(memory, 0xa5, size);
    return memory;
}

static void release(void *memory, size_t size, size_t alignment, void *data) {
    struct before before;
    if (data != &allocated || memory == NULL)
        abort();
    memcpy(&before, (char *)memory - sizeof before, sizeof before);
    if (before.size != size || before.alignment != alignment)
        abort();
    __atomic_fetch_add(&released, 1, __ATOMIC_RELAXED);
    memset(memory, 0x5a, size);
    free(before.start);
}

static void *resize(void *memory, size_t old_size, size_t new_size, size_t alignment, void *data) {
    void *resized_memory = allocate(new_size, alignment, data);
    if (resized_memory != NULL) {
        memcpy(resized_memory, memory, old_size < new_size ? old_size : new_size);
        release(memory, old_size, alignment, data);
        __atomic_fetch_add(&resized, 1, __ATOMIC_RELAXED);
    }
    return resized_memory;
}

static highwire_server server;

static void show(highwire_request request, void *data) {
    highwire_string name;
    (void)data;
    if (highwire_request_param(request, "name", &name) != HIGHWIRE_OK)
        abort();
    if (name.length == 4 && memcmp(name.data, "stop", 4) == 0)
        highwire_server_shutdown(server);
    highwire_respond(request, 200, "text/plain", name.data, name.length);
}

int main(int argc, char **argv) {
    highwire_app app;
    highwire_allocator allocator = {allocate, NULL, release, &allocated};
    if (argc > 1 && argv[1][0] == '1')
        allocator.resize = resize;
    highwire_allocator wrong = {allocate, NULL, NULL, NULL};
    if (highwire_set_allocator(NULL) != HIGHWIRE_NULL || highwire_set_allocator(&wrong) != HIGHWIRE_NULL ||
        highwire_set_allocator(&allocator) != HIGHWIRE_OK || highwire_set_allocator(&allocator) != HIGHWIRE_WRONG_STATE)
        return 1;
    if (highwire_app_new(&app) || highwire_app_route(app, "GET", "/{name}", HIGHWIRE_BODY_NONE, show, NULL) ||
        highwire_server_new(app, &server) || highwire_server_listen(server, "127.0.0.1:0")) {
        fprintf(stderr, "%s\n", highwire_last_error());
        return 1;
    }
    printf("http://%s\n", highwire_server_address(server, 0));
    fflush(stdout);
    highwire_result ended = argc > 2 ? highwire_server_run(server) : highwire_server_serve(server);
    if (ended || highwire_server_free(server))
        return 1;
    if (allocated < 100 || released < 50 || released > allocated || (resized > 0) != (allocator.resize != NULL)) {
        fprintf(stderr, "%lu allocated, %lu resized, %lu released\n", allocated, resized, released);
        return 1;
    }
    return 0;
}
