#include "link/nccl_api.h"

#include <stdlib.h>

#define NCCL_API_SYMBOL(symbol, member)                                                            \
    { symbol, offsetof(struct nccl_api, member) }

/* The first with communicators that do not block and limits of their own. */
#define NCCL_API_OLDEST NCCL_VERSION(2, 17, 1)

enum deft_status nccl_api_load(struct nccl_api *out, struct deft_error *error) {
    static const char *const names[] = {"libnccl.so.2", NULL};
    static const struct library_symbol symbols[] = {
        NCCL_API_SYMBOL("ncclGetVersion", get_version),
        NCCL_API_SYMBOL("ncclGetErrorString", get_error_string),
        NCCL_API_SYMBOL("ncclGetLastError", get_last_error),
        NCCL_API_SYMBOL("ncclGetUniqueId", get_unique_id),
        NCCL_API_SYMBOL("ncclCommInitRankConfig", comm_init_rank_config),
        NCCL_API_SYMBOL("ncclCommGetAsyncError", comm_get_async_error),
        NCCL_API_SYMBOL("ncclCommAbort", comm_abort),
        NCCL_API_SYMBOL("ncclCommFinalize", comm_finalize),
        NCCL_API_SYMBOL("ncclCommDestroy", comm_destroy),
        NCCL_API_SYMBOL("ncclAllReduce", all_reduce),
    };
    struct library library;
    struct nccl_api api = {.version = 0};
    enum deft_status status = library_open("NCCL", "DEFT_NCCL", names, &library, error);
    if (status == DEFT_OK) {
        status = library_bind(&library, symbols, sizeof(symbols) / sizeof(symbols[0]), &api, error);
    }
    if (status != DEFT_OK) {
        return status;
    }
    ncclResult_t result = api.get_version(&api.version);
    if (result != ncclSuccess) {
        return deft_fail(error, DEFT_UNSUPPORTED, (int32_t)result,
                         "NCCL does not tell its version: %s", api.get_error_string(result));
    }
    if (api.version < NCCL_API_OLDEST) {
        return deft_fail(error, DEFT_UNSUPPORTED, api.version,
                         "NCCL has version %d.%d.%d, expected 2.17.1 or newer", api.version / 10000,
                         api.version / 100 % 100, api.version % 100);
    }
    *out = api;
    return DEFT_OK;
}

static enum deft_status nccl_api_number(const char *name, long least, long most, int *out,
                                        struct deft_error *error) {
    const char *text = getenv(name);
    char *end = NULL;
    if (text == NULL || text[0] == '\0') {
        return DEFT_OK;
    }
    long value = strtol(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || value < least || value > most) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "environment variable %s is '%.40s', expected a number from %ld to %ld",
                         name, text, least, most);
    }
    *out = (int)value;
    return DEFT_OK;
}

enum deft_status nccl_api_configure(const char *net, ncclConfig_t *out, struct deft_error *error) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (net != NULL && net[0] != '\0') {
        config.netName = net;
    }
    enum deft_status status = nccl_api_number("DEFT_NCCL_MIN_CTAS", 1, 64, &config.minCTAs, error);
    if (status == DEFT_OK) {
        status = nccl_api_number("DEFT_NCCL_MAX_CTAS", 1, 64, &config.maxCTAs, error);
    }
    if (status == DEFT_OK) {
        status = nccl_api_number("DEFT_NCCL_CGA_CLUSTER_SIZE", 0, 8, &config.cgaClusterSize, error);
    }
    if (status == DEFT_OK && config.minCTAs != NCCL_CONFIG_UNDEF_INT &&
        config.maxCTAs != NCCL_CONFIG_UNDEF_INT && config.minCTAs > config.maxCTAs) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "DEFT_NCCL_MIN_CTAS is %d, expected at most DEFT_NCCL_MAX_CTAS, %d",
                         config.minCTAs, config.maxCTAs);
    }
    if (status == DEFT_OK) {
        *out = config;
    }
    return status;
}
