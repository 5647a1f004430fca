#include "wire_admission.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "json_out.h"
#include "json_scan.h"
#include "wire.h"

/* Ids of users are 32 bits, and the last one means none. */
#define ADMISSION_MAX_USER 4294967294.0

struct wire_admission {
    cJSON *root;
    const cJSON *request;
    const cJSON *metadata; /* of the pod; NULL: none */
    const cJSON *spec;     /* likewise */
};

static const cJSON *admission_member(const cJSON *node, const char *key) {
    return cJSON_IsObject(node) ? cJSON_GetObjectItemCaseSensitive(node, key) : NULL;
}

static const char *admission_text(const cJSON *node, const char *key) {
    const cJSON *member = admission_member(node, key);
    return cJSON_IsString(member) ? member->valuestring : NULL;
}

static const char *admission_text_or_none(const cJSON *node, const char *key) {
    const char *text = admission_text(node, key);
    return text != NULL ? text : "";
}

static enum deft_status admission_find(struct wire_admission *review, struct deft_error *error) {
    const char *version = admission_text(review->root, "apiVersion");
    const char *kind = admission_text(review->root, "kind");
    review->request = admission_member(review->root, "request");
    if (kind == NULL || strcmp(kind, "AdmissionReview") != 0) {
        return deft_fail(error, DEFT_INVALID, 0, "kind: 'AdmissionReview' was expected");
    }
    if (version == NULL || strcmp(version, "admission.k8s.io/v1") != 0) {
        return deft_fail(error, DEFT_INVALID, 0, "apiVersion: 'admission.k8s.io/v1' was expected");
    }
    if (!cJSON_IsObject(review->request)) {
        return deft_fail(error, DEFT_INVALID, 0, "request: an object was expected");
    }
    const char *uid = admission_text(review->request, "uid");
    if (uid == NULL || uid[0] == '\0' || strlen(uid) >= WIRE_ID_BYTES) {
        return deft_fail(error, DEFT_INVALID, 0, "request.uid: 1 to %u bytes of text were expected",
                         WIRE_ID_BYTES - 1);
    }
    const cJSON *object = admission_member(review->request, "object");
    review->metadata = admission_member(object, "metadata");
    review->spec = admission_member(object, "spec");
    return DEFT_OK;
}

enum deft_status wire_admission_decode(const char *text, size_t n_bytes,
                                       struct wire_admission **out, struct deft_error *error) {
    if (n_bytes > WIRE_ADMISSION_BYTES) {
        return deft_fail(error, DEFT_LIMIT, 0, "the review has %zu bytes, at most %zu are allowed",
                         n_bytes, WIRE_ADMISSION_BYTES);
    }
    const struct json_scan_limits limits = {WIRE_MAX_DEPTH, WIRE_MAX_VALUES};
    enum deft_status status = json_scan(text, n_bytes, &limits, error);
    if (status != DEFT_OK) {
        return status;
    }
    struct wire_admission *review = calloc(1, sizeof(*review));
    if (review != NULL) {
        review->root = cJSON_ParseWithLength(text, n_bytes);
    }
    if (review == NULL || review->root == NULL) {
        free(review);
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to read the review");
    }
    status = admission_find(review, error);
    if (status != DEFT_OK) {
        wire_admission_close(review);
        return status;
    }
    *out = review;
    return DEFT_OK;
}

void wire_admission_close(struct wire_admission *review) {
    if (review != NULL) {
        cJSON_Delete(review->root);
        free(review);
    }
}

const char *wire_admission_uid(const struct wire_admission *review) {
    return admission_text_or_none(review->request, "uid");
}

const char *wire_admission_namespace(const struct wire_admission *review) {
    return admission_text_or_none(review->request, "namespace");
}

int wire_admission_makes_pod(const struct wire_admission *review) {
    const cJSON *kind = admission_member(review->request, "kind");
    return strcmp(admission_text_or_none(review->request, "operation"), "CREATE") == 0 &&
           admission_text_or_none(review->request, "subResource")[0] == '\0' &&
           admission_text_or_none(kind, "group")[0] == '\0' &&
           strcmp(admission_text_or_none(kind, "version"), "v1") == 0 &&
           strcmp(admission_text_or_none(kind, "kind"), "Pod") == 0 &&
           cJSON_IsObject(review->metadata) && cJSON_IsObject(review->spec);
}

int wire_admission_is_dry_run(const struct wire_admission *review) {
    return cJSON_IsTrue(admission_member(review->request, "dryRun"));
}

const char *wire_admission_label(const struct wire_admission *review, const char *key) {
    return admission_text(admission_member(review->metadata, "labels"), key);
}

const char *wire_admission_annotation(const struct wire_admission *review, const char *key) {
    return admission_text(admission_member(review->metadata, "annotations"), key);
}

int wire_admission_has_annotations(const struct wire_admission *review) {
    return cJSON_IsObject(admission_member(review->metadata, "annotations"));
}

int wire_admission_owner(const struct wire_admission *review, struct wire_admission_owner *out) {
    const cJSON *owner = NULL;
    cJSON_ArrayForEach(owner, admission_member(review->metadata, "ownerReferences")) {
        if (cJSON_IsTrue(admission_member(owner, "controller"))) {
            out->api_version = admission_text_or_none(owner, "apiVersion");
            out->kind = admission_text_or_none(owner, "kind");
            out->name = admission_text_or_none(owner, "name");
            return 1;
        }
    }
    return 0;
}

static const cJSON *admission_list(const struct wire_admission *review,
                                   enum wire_admission_list list) {
    static const char *const keys[] = {"containers", "initContainers", "volumes"};
    const cJSON *node = admission_member(review->spec, keys[list]);
    return cJSON_IsArray(node) ? node : NULL;
}

int wire_admission_has_list(const struct wire_admission *review, enum wire_admission_list list) {
    return admission_list(review, list) != NULL;
}

size_t wire_admission_count(const struct wire_admission *review, enum wire_admission_list list) {
    const cJSON *node = admission_list(review, list);
    return node != NULL ? (size_t)cJSON_GetArraySize(node) : 0;
}

static int admission_names(const cJSON *list, const char *name) {
    const cJSON *member = NULL;
    cJSON_ArrayForEach(member, list) {
        if (strcmp(admission_text_or_none(member, "name"), name) == 0) {
            return 1;
        }
    }
    return 0;
}

int wire_admission_has_named(const struct wire_admission *review, enum wire_admission_list list,
                             const char *name) {
    return admission_names(admission_list(review, list), name);
}

static const cJSON *admission_container(const struct wire_admission *review, size_t i) {
    return cJSON_GetArrayItem(admission_list(review, WIRE_ADMISSION_CONTAINERS), (int)i);
}

const char *wire_admission_container(const struct wire_admission *review, size_t i) {
    return admission_text_or_none(admission_container(review, i), "name");
}

int wire_admission_has_env(const struct wire_admission *review, size_t i) {
    return cJSON_IsArray(admission_member(admission_container(review, i), "env"));
}

int wire_admission_has_variable(const struct wire_admission *review, size_t i, const char *name) {
    const cJSON *env = admission_member(admission_container(review, i), "env");
    return cJSON_IsArray(env) && admission_names(env, name);
}

static int64_t admission_user_of(const cJSON *node) {
    const cJSON *user = admission_member(admission_member(node, "securityContext"), "runAsUser");
    double value = cJSON_IsNumber(user) ? user->valuedouble : -1;
    int is_user = value >= 0 && value <= ADMISSION_MAX_USER && value == floor(value);
    return is_user ? (int64_t)value : -1;
}

int64_t wire_admission_user(const struct wire_admission *review, size_t i) {
    int64_t own = admission_user_of(admission_container(review, i));
    return own >= 0 ? own : admission_user_of(review->spec);
}

const char *wire_admission_os(const struct wire_admission *review) {
    return admission_text_or_none(admission_member(review->spec, "os"), "name");
}

static void admission_warning(const char *text, char out[WIRE_ADMISSION_WARNING_BYTES + 1]) {
    size_t n = strnlen(text, WIRE_ADMISSION_WARNING_BYTES);
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        out[i] = '?';
        if (c >= ' ' && c <= '~') {
            out[i] = c;
        }
    }
    out[n] = '\0';
}

enum deft_status wire_admission_answer(const char *uid, const char *patch,
                                       const char *const *warnings, size_t n_warnings, char **out,
                                       struct deft_error *error) {
    struct json_out json = {0};
    char warning[WIRE_ADMISSION_WARNING_BYTES + 1];
    json_out_begin_object(&json, NULL);
    json_out_text(&json, "apiVersion", "admission.k8s.io/v1");
    json_out_text(&json, "kind", "AdmissionReview");
    json_out_begin_object(&json, "response");
    json_out_text(&json, "uid", uid);
    json_out_bool(&json, "allowed", 1);
    if (patch != NULL) {
        json_out_text(&json, "patchType", "JSONPatch");
        json_out_text(&json, "patch", patch);
    }
    if (n_warnings > 0) {
        json_out_begin_array(&json, "warnings");
        for (size_t i = 0; i < n_warnings; i++) {
            admission_warning(warnings[i], warning);
            json_out_text(&json, NULL, warning);
        }
        json_out_end_array(&json);
    }
    json_out_end_object(&json);
    json_out_end_object(&json);
    return json_out_finish(&json, out, error);
}
