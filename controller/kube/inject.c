#include "inject.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"

#define INJECT_MAX_RANKS 65536u
#define INJECT_TEXT      256u /* of an annotation that is handed on */
#define INJECT_MAX_USER  UINT64_C(4294967294)

#define INJECT_JOBSET   "jobset.sigs.k8s.io/jobset-name"
#define INJECT_REPLICAS "jobset.sigs.k8s.io/replicatedjob-replicas"
#define INJECT_ATTEMPT  "jobset.sigs.k8s.io/restart-attempt"
#define INJECT_INDEX    "batch.kubernetes.io/job-completion-index"

static void inject_warn(struct inject_verdict *verdict, const char *format, ...) DEFT_PRINTF(2, 3);

static void inject_warn(struct inject_verdict *verdict, const char *format, ...) {
    va_list arguments;
    if (verdict->n_warnings == INJECT_MAX_WARNINGS) {
        return;
    }
    char *out = verdict->warnings[verdict->n_warnings++];
    int n = snprintf(out, WIRE_ADMISSION_WARNING_BYTES, "DeFT: ");
    va_start(arguments, format);
    (void)vsnprintf(out + n, WIRE_ADMISSION_WARNING_BYTES - (size_t)n, format, arguments);
    va_end(arguments);
}

/* Lower-case letters, digits and dashes, and dots where `more` has one. */
static int inject_is_name(const char *text, const char *more) {
    if (text[0] == '\0') {
        return 0;
    }
    for (const char *at = text; *at != '\0'; at++) {
        if (!(*at >= 'a' && *at <= 'z') && !(*at >= '0' && *at <= '9') && *at != '-' &&
            strchr(more, *at) == NULL) {
            return 0;
        }
    }
    return 1;
}

/* The API server vouches for the namespace alone; labels and owners are the word of whoever may
 * make pods in it. A namespace has no dots, so no name reaches into another one. */
static int inject_name_job(const struct wire_admission *review, struct inject_verdict *out) {
    struct wire_admission_owner owner = {"", "", ""};
    const char *jobset = wire_admission_label(review, INJECT_JOBSET);
    const char *kind = NULL;
    int is_owned = wire_admission_owner(review, &owner);
    const char *name = jobset != NULL ? jobset : owner.name;
    if (jobset != NULL) {
        kind = "jobset";
    } else if (strcmp(owner.kind, "PyTorchJob") == 0 &&
               strncmp(owner.api_version, "kubeflow.org/", 13) == 0) {
        kind = "pytorchjob";
    } else if (strcmp(owner.kind, "Job") == 0 && strncmp(owner.api_version, "batch/", 6) == 0) {
        kind = "job";
    } else {
        inject_warn(out, "the pod stays as it is: %s%.60s, expected a Job, JobSet or PyTorchJob",
                    is_owned ? "its owner is a " : "it has no owner", owner.kind);
        return 0;
    }
    const char *namespace = wire_admission_namespace(review);
    int n = snprintf(out->job, sizeof(out->job), "%s.%s.%s", namespace, kind, name);
    if (!inject_is_name(namespace, "") || !inject_is_name(name, ".") || n < 0 ||
        (size_t)n >= sizeof(out->job)) {
        inject_warn(out, "the pod stays as it is: '%.140s' is no name of a job of at most %u bytes",
                    out->job, WIRE_ID_BYTES - 1);
        return 0;
    }
    (void)snprintf(out->name, sizeof(out->name), "%s", name);
    return 1;
}

/* --- annotations ------------------------------------------------------------------------------ */

static enum deft_status inject_check_mode(const char *name, const char *text,
                                          struct deft_error *error) {
    static const char *const modes[] = {"off", "observe", "auto", NULL};
    size_t i = 0;
    return parse_word(name, text, modes, &i, error);
}

static enum deft_status inject_check_merge(const char *name, const char *text,
                                           struct deft_error *error) {
    uint64_t value = 0;
    return parse_u64(name, text, 1, DSCHED_MAX_MERGE, &value, error);
}

static enum deft_status inject_check_delay(const char *name, const char *text,
                                           struct deft_error *error) {
    uint64_t value = 0;
    return parse_u64(name, text, 1, DSCHED_MAX_DELAY, &value, error);
}

static enum deft_status inject_check_epsilon(const char *name, const char *text,
                                             struct deft_error *error) {
    double value = 0;
    return parse_real(name, text, 0, 1, &value, error);
}

static enum deft_status inject_check_world(const char *name, const char *text,
                                           struct deft_error *error) {
    uint64_t value = 0;
    return parse_u64(name, text, 1, INJECT_MAX_RANKS, &value, error);
}

static enum deft_status inject_check_user(const char *name, const char *text,
                                          struct deft_error *error) {
    uint64_t value = 0;
    return parse_u64(name, text, 0, INJECT_MAX_USER, &value, error);
}

static enum deft_status inject_check_text(const char *name, const char *text,
                                          struct deft_error *error) {
    size_t n = strlen(text);
    for (size_t i = 0; i < n && n < INJECT_TEXT; i++) {
        if (text[i] <= ' ' || text[i] > '~' || text[i] == '$') {
            n = 0; /* variables are Kubernetes's to expand, not ours */
        }
    }
    if (n == 0 || n >= INJECT_TEXT) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "%s: 1 to %u printable characters without blanks or $ were expected", name,
                         INJECT_TEXT - 1);
    }
    return DEFT_OK;
}

/* Wrong ones would end the agent, over and over. */
static const struct {
    const char *key;
    enum deft_status (*check)(const char *name, const char *text, struct deft_error *error);
    const char *of_agent; /* the variable of the sidecar; NULL: none */
    const char *of_ranks; /* the variable of the training containers; NULL: none */
} inject_notes[] = {
    {"deft.dev/mode", inject_check_mode, "DEFT_AGENT_MODE", NULL},
    {"deft.dev/max-merge", inject_check_merge, "DEFT_AGENT_MAX_MERGE", NULL},
    {"deft.dev/max-delay", inject_check_delay, "DEFT_AGENT_MAX_DELAY", NULL},
    {"deft.dev/epsilon", inject_check_epsilon, "DEFT_AGENT_EPSILON", NULL},
    {"deft.dev/links", inject_check_text, NULL, "DEFT_LINKS"},
    {"deft.dev/master-addr", inject_check_text, NULL, "DEFT_MASTER_ADDR"},
    {"deft.dev/world-size", inject_check_world, NULL, "DEFT_WORLD_SIZE"},
    {"deft.dev/user", inject_check_user, NULL, NULL},
};
#define INJECT_N_NOTES (sizeof(inject_notes) / sizeof(inject_notes[0]))

static int inject_check_notes(const struct wire_admission *review, struct inject_verdict *out) {
    for (size_t i = 0; i < INJECT_N_NOTES; i++) {
        struct deft_error error = {0};
        const char *text = wire_admission_annotation(review, inject_notes[i].key);
        if (text != NULL && inject_notes[i].check(inject_notes[i].key, text, &error) != DEFT_OK) {
            inject_warn(out, "the pod stays as it is: annotation %.180s", error.text);
            return 0;
        }
    }
    return 1;
}

/* Rank and world of launchers are their own; only a plain indexed Job has nobody to set them. */
static int inject_find_index(const struct wire_admission *review, struct inject_verdict *out) {
    const char *replicas = wire_admission_label(review, INJECT_REPLICAS);
    out->has_attempt = wire_admission_label(review, INJECT_ATTEMPT) != NULL;
    if (wire_admission_annotation(review, "deft.dev/world-size") == NULL) {
        return 1;
    }
    out->has_index = wire_admission_annotation(review, INJECT_INDEX) != NULL;
    if (!out->has_index || (replicas != NULL && strcmp(replicas, "1") != 0)) {
        inject_warn(out,
                    "the pod stays as it is: annotation deft.dev/world-size is for the pods of "
                    "one indexed Job, whose index is the rank");
        return 0;
    }
    return 1;
}

/* --- containers ------------------------------------------------------------------------------- */

/* 1 when `list`, with commas between, has the name. */
static int inject_lists(const char *list, const char *name) {
    size_t n_name = strlen(name);
    for (const char *at = list;; at++) {
        size_t n = strcspn(at, ",");
        if (n == n_name && strncmp(at, name, n) == 0) {
            return 1;
        }
        at += n;
        if (*at == '\0') {
            return 0;
        }
    }
}

static int64_t inject_user_of(const struct wire_admission *review, size_t i) {
    const char *text = wire_admission_annotation(review, "deft.dev/user");
    int64_t user = wire_admission_user(review, i);
    uint64_t noted = 0;
    if (user < 0 && text != NULL &&
        parse_u64("user", text, 0, INJECT_MAX_USER, &noted, NULL) == DEFT_OK) {
        user = (int64_t)noted;
    }
    return user;
}

static int inject_find_containers(const struct wire_admission *review, struct inject_verdict *out) {
    const char *wanted = wire_admission_annotation(review, "deft.dev/containers");
    size_t n = wire_admission_count(review, WIRE_ADMISSION_CONTAINERS);
    size_t n_taken = 0;
    if (n == 0 || n > INJECT_MAX_CONTAINERS) {
        inject_warn(out, "the pod stays as it is: it has %zu containers, expected 1 to %u", n,
                    INJECT_MAX_CONTAINERS);
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        const char *name = wire_admission_container(review, i);
        if (wanted != NULL && !inject_lists(wanted, name)) {
            continue;
        }
        int64_t user = inject_user_of(review, i);
        if (user < 0) {
            inject_warn(out,
                        "the pod stays as it is: securityContext.runAsUser of container '%.63s' or "
                        "annotation deft.dev/user must say who its ranks are, since the agent runs "
                        "as the same user",
                        name);
            return 0;
        }
        if (n_taken > 0 && user != out->user) {
            inject_warn(out, "container '%.63s' has no agent: its user is not that of the first",
                        name);
            continue;
        }
        out->user = user;
        out->takes[i] = 1;
        n_taken++;
    }
    if (n_taken == 0) {
        inject_warn(out, "the pod stays as it is: annotation deft.dev/containers names none of its "
                         "containers");
    }
    return n_taken > 0;
}

/* A second volume or container of the name would make the pod illegal. */
static int inject_is_free(const struct wire_admission *review, struct inject_verdict *out) {
    if (wire_admission_has_named(review, WIRE_ADMISSION_CONTAINERS, INJECT_NAME) ||
        wire_admission_has_named(review, WIRE_ADMISSION_VOLUMES, INJECT_NAME) ||
        wire_admission_has_named(review, WIRE_ADMISSION_VOLUMES, INJECT_NAME "-ca")) {
        inject_warn(out, "the pod stays as it is: it has a container or volume named " INJECT_NAME);
        return 0;
    }
    if (strcmp(wire_admission_os(review), "windows") == 0) {
        inject_warn(out, "the pod stays as it is: agents are for Linux");
        return 0;
    }
    return 1;
}

void inject_judge(const struct wire_admission *review, struct inject_verdict *out) {
    memset(out, 0, sizeof(*out));
    const char *wish =
        wire_admission_makes_pod(review) ? wire_admission_label(review, "deft.dev/inject") : NULL;
    if (wish == NULL || strcmp(wish, "true") != 0 ||
        wire_admission_has_named(review, WIRE_ADMISSION_INIT, INJECT_NAME)) {
        return;
    }
    out->injects = inject_is_free(review, out) && inject_name_job(review, out) &&
                   inject_check_notes(review, out) && inject_find_index(review, out) &&
                   inject_find_containers(review, out);
}
