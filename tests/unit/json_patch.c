#include "json_patch.h"

#include <stdlib.h>
#include <string.h>

#define PATCH_TOKEN_BYTES 256u

/* Takes the next token off the pointer, unescaped; NULL: there is none. */
static const char *patch_token(const char *pointer, char out[PATCH_TOKEN_BYTES]) {
    size_t n = 0;
    if (*pointer != '/') {
        return NULL;
    }
    for (pointer++; *pointer != '\0' && *pointer != '/' && n + 1 < PATCH_TOKEN_BYTES; pointer++) {
        if (*pointer == '~') {
            pointer++;
            out[n++] = *pointer == '0' ? '~' : '/';
        } else {
            out[n++] = *pointer;
        }
    }
    out[n] = '\0';
    return pointer;
}

/* -1: the token is no place of a list. */
static int patch_index(const char *token) {
    char *end = NULL;
    long value = strtol(token, &end, 10);
    int is_plain =
        *token >= '0' && *token <= '9' && *end == '\0' && (*token != '0' || end == token + 1);
    return is_plain ? (int)value : -1;
}

static cJSON *patch_step(cJSON *node, const char *token) {
    return cJSON_IsArray(node)    ? cJSON_GetArrayItem(node, patch_index(token))
           : cJSON_IsObject(node) ? cJSON_GetObjectItemCaseSensitive(node, token)
                                  : NULL;
}

cJSON *json_patch_get(cJSON *root, const char *pointer) {
    char token[PATCH_TOKEN_BYTES];
    cJSON *node = root;
    while (node != NULL && (pointer = patch_token(pointer, token)) != NULL) {
        node = patch_step(node, token);
        if (*pointer == '\0') {
            break;
        }
    }
    return node;
}

static int patch_add(cJSON *parent, const char *token, cJSON *value) {
    int n = cJSON_IsArray(parent) ? cJSON_GetArraySize(parent) : 0;
    int i = strcmp(token, "-") == 0 ? n : patch_index(token);
    if (cJSON_IsObject(parent)) {
        cJSON_DeleteItemFromObjectCaseSensitive(parent, token);
        return cJSON_AddItemToObject(parent, token, value);
    }
    return cJSON_IsArray(parent) && i >= 0 && i <= n &&
           (i == n ? cJSON_AddItemToArray(parent, value)
                   : cJSON_InsertItemInArray(parent, i, value));
}

int json_patch_apply(cJSON *root, const cJSON *operations) {
    char token[PATCH_TOKEN_BYTES];
    const cJSON *operation = NULL;
    cJSON_ArrayForEach(operation, operations) {
        const cJSON *op = cJSON_GetObjectItemCaseSensitive(operation, "op");
        const cJSON *path = cJSON_GetObjectItemCaseSensitive(operation, "path");
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(operation, "value");
        cJSON *parent = root;
        if (!cJSON_IsString(op) || strcmp(op->valuestring, "add") != 0 || !cJSON_IsString(path) ||
            value == NULL) {
            return -1;
        }
        const char *rest = patch_token(path->valuestring, token);
        while (rest != NULL && *rest != '\0') {
            parent = patch_step(parent, token);
            rest = patch_token(rest, token);
        }
        cJSON *copy = cJSON_Duplicate(value, 1);
        if (rest == NULL || copy == NULL || !patch_add(parent, token, copy)) {
            cJSON_Delete(copy);
            return -1;
        }
    }
    return cJSON_IsArray(operations) ? 0 : -1;
}
