/* JSON pointers (RFC 6901) and the additions of JSON patches (RFC 6902) over cJSON, for tests. */
#ifndef JSON_PATCH_H
#define JSON_PATCH_H

#include <cjson/cJSON.h>

/* The value at a pointer below `root`, or NULL. */
cJSON *json_patch_get(cJSON *root, const char *pointer);
/* Applies every operation. Non-zero: one is no addition, or has no place. */
int json_patch_apply(cJSON *root, const cJSON *operations);

#endif
