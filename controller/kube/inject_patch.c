/* The JSON patch (RFC 6902). Lists that the pod lacks are made first; members are named by their
 * place, so no name of the pod's is ever a part of a path. */
#include <stdio.h>

#include "inject.h"
#include "wire/json_out.h"

#define PATCH_PATH_BYTES 64u
#define PATCH_STATE_DIR  "/var/lib/deft"
#define PATCH_CA_DIR     "/etc/deft-agent"
#define PATCH_CA_NOTE    "deft.dev/controller-ca"

/* The kubelet expands $(DEFT_POD_UID), which precedes it. An abstract socket needs no volume, and
 * the pod's uid keeps pods of one host's network apart. */
#define PATCH_SOCKET "@deft-$(DEFT_POD_UID)"

struct patch {
    struct json_out json;
    const struct wire_admission *review;
    const struct inject_verdict *verdict;
    const struct inject_options *options;
};

/* --- operations ------------------------------------------------------------------------------- */

static void patch_begin(struct patch *patch, const char *path) {
    json_out_begin_object(&patch->json, NULL);
    json_out_text(&patch->json, "op", "add");
    json_out_text(&patch->json, "path", path);
}

static void patch_end(struct patch *patch) {
    json_out_end_object(&patch->json);
}

static void patch_empty_list(struct patch *patch, const char *path) {
    patch_begin(patch, path);
    json_out_begin_array(&patch->json, "value");
    json_out_end_array(&patch->json);
    patch_end(patch);
}

/* --- variables -------------------------------------------------------------------------------- */

/* `key` is "value" inside an operation, NULL inside a list. */
static void patch_value(struct patch *patch, const char *key, const char *name, const char *value) {
    json_out_begin_object(&patch->json, key);
    json_out_text(&patch->json, "name", name);
    json_out_text(&patch->json, "value", value);
    json_out_end_object(&patch->json);
}

static void patch_field(struct patch *patch, const char *key, const char *name, const char *field) {
    json_out_begin_object(&patch->json, key);
    json_out_text(&patch->json, "name", name);
    json_out_begin_object(&patch->json, "valueFrom");
    json_out_begin_object(&patch->json, "fieldRef");
    json_out_text(&patch->json, "apiVersion", "v1"); /* what the API server would fill in */
    json_out_text(&patch->json, "fieldPath", field);
    json_out_end_object(&patch->json);
    json_out_end_object(&patch->json);
    json_out_end_object(&patch->json);
}

/* What the program has set itself is its own. */
struct patch_place {
    size_t container;
    char path[PATCH_PATH_BYTES];
};

static int patch_is_new(const struct patch *patch, const struct patch_place *place,
                        const char *name) {
    return !wire_admission_has_variable(patch->review, place->container, name);
}

static void patch_set(struct patch *patch, const struct patch_place *place, const char *name,
                      const char *value) {
    if (value != NULL && patch_is_new(patch, place, name)) {
        patch_begin(patch, place->path);
        patch_value(patch, "value", name, value);
        patch_end(patch);
    }
}

static void patch_refer(struct patch *patch, const struct patch_place *place, const char *name,
                        const char *field) {
    if (patch_is_new(patch, place, name)) {
        patch_begin(patch, place->path);
        patch_field(patch, "value", name, field);
        patch_end(patch);
    }
}

static void patch_ranks(struct patch *patch, size_t container) {
    const struct wire_admission *review = patch->review;
    const struct inject_verdict *verdict = patch->verdict;
    struct patch_place place = {.container = container};
    if (!wire_admission_has_env(review, container)) {
        (void)snprintf(place.path, sizeof(place.path), "/spec/containers/%zu/env", container);
        patch_empty_list(patch, place.path);
    }
    (void)snprintf(place.path, sizeof(place.path), "/spec/containers/%zu/env/-", container);
    patch_refer(patch, &place, "DEFT_POD_UID", "metadata.uid");
    patch_set(patch, &place, "DEFT_AGENT_SOCKET", PATCH_SOCKET);
    patch_set(patch, &place, "DEFT_JOB_ID", verdict->job);
    patch_set(patch, &place, "DEFT_JOB_NAME", verdict->name);
    patch_set(patch, &place, "DEFT_LINKS", wire_admission_annotation(review, "deft.dev/links"));
    patch_set(patch, &place, "DEFT_MASTER_ADDR",
              wire_admission_annotation(review, "deft.dev/master-addr"));
    if (verdict->has_index) {
        patch_set(patch, &place, "DEFT_WORLD_SIZE",
                  wire_admission_annotation(review, "deft.dev/world-size"));
        patch_refer(patch, &place, "DEFT_RANK",
                    "metadata.annotations['batch.kubernetes.io/job-completion-index']");
    }
    if (verdict->has_attempt) {
        patch_refer(patch, &place, "DEFT_RESTART_COUNT",
                    "metadata.labels['jobset.sigs.k8s.io/restart-attempt']");
    }
}

/* --- the sidecar ------------------------------------------------------------------------------ */

static void patch_sidecar_env(struct patch *patch, const char *token) {
    static const char *const wishes[][2] = {
        {"DEFT_AGENT_MODE", "deft.dev/mode"},
        {"DEFT_AGENT_MAX_MERGE", "deft.dev/max-merge"},
        {"DEFT_AGENT_MAX_DELAY", "deft.dev/max-delay"},
        {"DEFT_AGENT_EPSILON", "deft.dev/epsilon"},
    };
    json_out_begin_array(&patch->json, "env");
    patch_field(patch, NULL, "DEFT_POD_UID", "metadata.uid");
    patch_value(patch, NULL, "DEFT_AGENT_SOCKET", PATCH_SOCKET);
    patch_value(patch, NULL, "DEFT_AGENT_CONTROLLER", patch->options->controller);
    patch_value(patch, NULL, "DEFT_AGENT_JOB", patch->verdict->job);
    patch_value(patch, NULL, "DEFT_AGENT_SPOOL_DIR", PATCH_STATE_DIR "/spool");
    for (size_t i = 0; i < sizeof(wishes) / sizeof(wishes[0]); i++) {
        const char *text = wire_admission_annotation(patch->review, wishes[i][1]);
        if (text != NULL) {
            patch_value(patch, NULL, wishes[i][0], text);
        }
    }
    if (token != NULL) {
        patch_value(patch, NULL, "DEFT_TOKEN", token);
    }
    if (patch->options->ca_pem != NULL) {
        patch_value(patch, NULL, "DEFT_CA_FILE", PATCH_CA_DIR "/ca.pem");
    }
    json_out_end_array(&patch->json);
}

/* What the restricted level of pod security asks for, and as little as it can do with. */
static void patch_sidecar_security(struct patch *patch) {
    struct json_out *json = &patch->json;
    json_out_begin_object(json, "securityContext");
    json_out_int(json, "runAsUser", patch->verdict->user);
    json_out_bool(json, "runAsNonRoot", patch->verdict->user != 0);
    json_out_bool(json, "readOnlyRootFilesystem", 1);
    json_out_bool(json, "allowPrivilegeEscalation", 0);
    json_out_begin_object(json, "capabilities");
    json_out_begin_array(json, "drop");
    json_out_text(json, NULL, "ALL");
    json_out_end_array(json);
    json_out_end_object(json);
    json_out_begin_object(json, "seccompProfile");
    json_out_text(json, "type", "RuntimeDefault");
    json_out_end_object(json);
    json_out_end_object(json);
}

/* Requests and limits are the same, so that a pod that is Guaranteed stays so. */
static void patch_sidecar_resources(struct patch *patch) {
    static const char *const kinds[] = {"requests", "limits"};
    json_out_begin_object(&patch->json, "resources");
    for (size_t i = 0; i < 2; i++) {
        json_out_begin_object(&patch->json, kinds[i]);
        json_out_text(&patch->json, "cpu", "100m");
        json_out_text(&patch->json, "memory", "128Mi");
        json_out_end_object(&patch->json);
    }
    json_out_end_object(&patch->json);
}

static void patch_mount(struct patch *patch, const char *name, const char *path, int is_read_only) {
    json_out_begin_object(&patch->json, NULL);
    json_out_text(&patch->json, "name", name);
    json_out_text(&patch->json, "mountPath", path);
    if (is_read_only) {
        json_out_bool(&patch->json, "readOnly", 1);
    }
    json_out_end_object(&patch->json);
}

/* No probe: a sidecar whose probe fails keeps the pod from training, and ranks look for an agent
 * that comes late anyway. */
static void patch_sidecar(struct patch *patch, const char *token) {
    struct json_out *json = &patch->json;
    if (!wire_admission_has_list(patch->review, WIRE_ADMISSION_INIT)) {
        patch_empty_list(patch, "/spec/initContainers");
    }
    patch_begin(patch, "/spec/initContainers/0");
    json_out_begin_object(json, "value");
    json_out_text(json, "name", INJECT_NAME);
    json_out_text(json, "image", patch->options->image);
    json_out_text(json, "restartPolicy", "Always");
    json_out_begin_array(json, "command");
    json_out_text(json, NULL, "deft-agent");
    json_out_end_array(json);
    patch_sidecar_env(patch, token);
    patch_sidecar_resources(patch);
    patch_sidecar_security(patch);
    json_out_begin_array(json, "volumeMounts");
    patch_mount(patch, INJECT_NAME, PATCH_STATE_DIR, 0);
    if (patch->options->ca_pem != NULL) {
        patch_mount(patch, INJECT_NAME "-ca", PATCH_CA_DIR, 1);
    }
    json_out_end_array(json);
    json_out_end_object(json);
    patch_end(patch);
}

/* --- volumes ---------------------------------------------------------------------------------- */

static void patch_volumes(struct patch *patch) {
    struct json_out *json = &patch->json;
    if (!wire_admission_has_list(patch->review, WIRE_ADMISSION_VOLUMES)) {
        patch_empty_list(patch, "/spec/volumes");
    }
    patch_begin(patch, "/spec/volumes/-");
    json_out_begin_object(json, "value");
    json_out_text(json, "name", INJECT_NAME);
    json_out_begin_object(json, "emptyDir");
    json_out_text(json, "sizeLimit", "128Mi");
    json_out_end_object(json);
    json_out_end_object(json);
    patch_end(patch);
}

/* A certificate is no secret, and a pod may mount nothing of another namespace: it comes along as
 * an annotation. */
static void patch_ca(struct patch *patch) {
    struct json_out *json = &patch->json;
    if (!wire_admission_has_annotations(patch->review)) {
        patch_begin(patch, "/metadata/annotations");
        json_out_begin_object(json, "value");
        json_out_end_object(json);
        patch_end(patch);
    }
    patch_begin(patch, "/metadata/annotations/deft.dev~1controller-ca");
    json_out_text(json, "value", patch->options->ca_pem);
    patch_end(patch);
    patch_begin(patch, "/spec/volumes/-");
    json_out_begin_object(json, "value");
    json_out_text(json, "name", INJECT_NAME "-ca");
    json_out_begin_object(json, "downwardAPI");
    json_out_begin_array(json, "items");
    json_out_begin_object(json, NULL);
    json_out_text(json, "path", "ca.pem");
    json_out_begin_object(json, "fieldRef");
    json_out_text(json, "apiVersion", "v1");
    json_out_text(json, "fieldPath", "metadata.annotations['" PATCH_CA_NOTE "']");
    json_out_end_object(json);
    json_out_end_object(json);
    json_out_end_array(json);
    json_out_end_object(json);
    json_out_end_object(json);
    patch_end(patch);
}

enum deft_status inject_patch(const struct wire_admission *review,
                              const struct inject_verdict *verdict,
                              const struct inject_options *options, const char *token, char **out,
                              struct deft_error *error) {
    struct patch patch = {.review = review, .verdict = verdict, .options = options};
    json_out_begin_array(&patch.json, NULL);
    for (size_t i = 0; i < INJECT_MAX_CONTAINERS; i++) {
        if (verdict->takes[i]) {
            patch_ranks(&patch, i);
        }
    }
    patch_volumes(&patch);
    if (options->ca_pem != NULL) {
        patch_ca(&patch);
    }
    patch_sidecar(&patch, token);
    json_out_end_array(&patch.json);
    return json_out_finish(&patch.json, out, error);
}
