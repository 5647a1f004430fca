#include "spank_host.h"

#include <dlfcn.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <slurm/slurm.h>

/* A plug-in that needed these could not be loaded by a program of Slurm that lacks one. */
typedef int (*spank_host_load_fn)(node_info_msg_t **out, char *name, uint16_t flags);
typedef void (*spank_host_free_fn)(node_info_msg_t *message);

/* A function cannot be converted from a pointer to an object, only copied. */
static int spank_host_symbol(const char *name, void *out_function) {
    void *symbol = dlsym(RTLD_DEFAULT, name);
    memcpy(out_function, &symbol, sizeof(symbol));
    return symbol != NULL ? 0 : -1;
}

static int spank_host_resolves(const char *name) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    if (getaddrinfo(name, NULL, &hints, &found) != 0) {
        return 0;
    }
    freeaddrinfo(found);
    return 1;
}

static int spank_host_address(const char *name, char *out, size_t capacity_bytes) {
    spank_host_load_fn load = NULL;
    spank_host_free_fn release = NULL;
    node_info_msg_t *message = NULL;
    char copy[256];
    int result = -1;
    if (snprintf(copy, sizeof(copy), "%s", name) >= (int)sizeof(copy) ||
        spank_host_symbol("slurm_load_node_single", &load) != 0 ||
        spank_host_symbol("slurm_free_node_info_msg", &release) != 0 ||
        load(&message, copy, SHOW_DETAIL) != 0) {
        return -1;
    }
    if (message->record_count > 0 && message->node_array[0].node_addr != NULL &&
        message->node_array[0].node_addr[0] != '\0') {
        int n = snprintf(out, capacity_bytes, "%s", message->node_array[0].node_addr);
        result = n > 0 && (size_t)n < capacity_bytes ? 0 : -1;
    }
    release(message);
    return result;
}

int spank_host_find(const char *name, char *out, size_t capacity_bytes) {
    if (!spank_host_resolves(name)) {
        return spank_host_address(name, out, capacity_bytes);
    }
    int n = snprintf(out, capacity_bytes, "%s", name);
    return n > 0 && (size_t)n < capacity_bytes ? 0 : -1;
}
