#include "spank_step.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Prime, so that the steps of one job walk through any range of ports. */
#define SPANK_STEP_STRIDE 7919u

void spank_step_id(const struct spank_step *step, const char *prefix,
                   char out[SPANK_STEP_ID_BYTES]) {
    char task[16] = "";
    char number[16] = "";
    uint32_t job = step->job;
    if (step->array_job != SPANK_STEP_NONE && step->array_task != SPANK_STEP_NONE) {
        job = step->array_job;
        (void)snprintf(task, sizeof(task), "_%" PRIu32, step->array_task);
    }
    if (step->step > 0) {
        (void)snprintf(number, sizeof(number), ".%" PRIu32, step->step);
    }
    (void)snprintf(out, SPANK_STEP_ID_BYTES, "%.*s%" PRIu32 "%s%s", (int)SPANK_CONFIG_MAX_PREFIX,
                   prefix, job, task, number);
}

void spank_step_socket(const struct spank_step *step, uint64_t salt,
                       char out[SPANK_STEP_SOCKET_BYTES]) {
    (void)snprintf(out, SPANK_STEP_SOCKET_BYTES,
                   "@deft-%" PRIu32 ".%" PRIu32 "-%" PRIu32 "-%016" PRIx64, step->job, step->step,
                   step->node, salt);
}

uint16_t spank_step_port(const struct spank_step *step, uint16_t first, uint16_t last) {
    uint32_t n_ports = (uint32_t)last - first + 1;
    uint64_t at = step->job + (uint64_t)SPANK_STEP_STRIDE * step->step;
    return (uint16_t)(first + at % n_ports);
}

int spank_step_first_node(const char *nodes, char *out, size_t capacity_bytes) {
    size_t n = 0;
    int in_brackets = 0;
    int is_over = 0; /* the first number in the brackets */
    for (; *nodes != '\0' && (in_brackets || *nodes != ','); nodes++) {
        if (*nodes == '[' || *nodes == ']') {
            in_brackets = *nodes == '[';
            is_over = 0;
            continue;
        }
        is_over |= in_brackets && (*nodes == '-' || *nodes == ',');
        if (is_over) {
            continue;
        }
        if (n + 1 >= capacity_bytes) {
            return -1;
        }
        out[n++] = *nodes;
    }
    if (n == 0) {
        return -1;
    }
    out[n] = '\0';
    return 0;
}

static void spank_step_add(struct spank_words *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void spank_step_add(struct spank_words *out, const char *format, ...) {
    size_t room = sizeof(out->text) - out->n_text;
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(out->text + out->n_text, room, format, arguments);
    va_end(arguments);
    if (n < 0 || (size_t)n >= room || out->n_words == SPANK_STEP_MAX_WORDS) {
        out->is_full = 1;
        return;
    }
    out->words[out->n_words++] = out->text + out->n_text;
    out->words[out->n_words] = NULL;
    out->n_text += (size_t)n + 1;
}

static void spank_step_add_option(struct spank_words *out, const char *option, const char *value) {
    if (value[0] != '\0') {
        spank_step_add(out, "--%s", option);
        spank_step_add(out, "%s", value);
    }
}

void spank_step_agent_words(const struct spank_told *told, int fd, struct spank_words *out) {
    const struct spank_config_values *settled = &told->config->settled;
    const char *log_dir = settled->text[SPANK_CONFIG_LOG_DIR];
    char id[SPANK_STEP_ID_BYTES];
    spank_step_id(told->step, settled->text[SPANK_CONFIG_PREFIX], id);
    spank_step_add(out, "%s", settled->text[SPANK_CONFIG_AGENT]);
    spank_step_add_option(out, "socket", told->socket);
    spank_step_add_option(out, "controller", settled->text[SPANK_CONFIG_CONTROLLER]);
    spank_step_add_option(out, "job", id);
    spank_step_add_option(out, "mode", spank_config_mode_name(told->config->mode));
    spank_step_add(out, "--ready-fd=%d", fd);
    spank_step_add(out, "--exit-with-fd=%d", fd);
    /* scancel signals it together with the tasks, whose last words it is there for. */
    spank_step_add(out, "--after-ranks");
    if (log_dir[0] != '\0') {
        spank_step_add(out, "--log");
        spank_step_add(out, "%s/deft-agent-%s-%s.log", log_dir, id, told->node_name);
    }
    spank_step_add_option(out, "max-merge", settled->text[SPANK_CONFIG_MERGE]);
    spank_step_add_option(out, "max-delay", settled->text[SPANK_CONFIG_DELAY]);
    spank_step_add_option(out, "epsilon", settled->text[SPANK_CONFIG_EPSILON]);
    spank_step_add_option(out, "ca-file", settled->text[SPANK_CONFIG_CA_FILE]);
}

/* The value of `name`; NULL when it is not there. */
static const char *spank_step_find(char *const *environment, const char *name) {
    size_t length = strlen(name);
    for (; environment != NULL && *environment != NULL; environment++) {
        if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=') {
            return *environment + length + 1;
        }
    }
    return NULL;
}

void spank_step_agent_environment(const struct spank_told *told, char *const *job,
                                  struct spank_words *out) {
    static const char *const names[] = {"HOME", "LANG",         "LC_ALL",         "LOGNAME",
                                        "PATH", "SSL_CERT_DIR", "SSL_CERT_FILE",  "TMPDIR",
                                        "TZ",   "USER",         "XDG_STATE_HOME", "DEFT_TOKEN"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = spank_step_find(job, names[i]);
        if (value != NULL) {
            spank_step_add(out, "%s=%s", names[i], value);
        }
    }
    if (told->config->settled.text[SPANK_CONFIG_TOKEN_FILE][0] != '\0') {
        spank_step_add(out, "DEFT_TOKEN_FILE=%s",
                       told->config->settled.text[SPANK_CONFIG_TOKEN_FILE]);
    }
}

static void spank_step_add_variable(struct spank_words *out, const char *name, const char *value) {
    if (value[0] != '\0') {
        spank_step_add(out, "%s=%s", name, value);
    }
}

/* What is left of a step around this one, or of one that submitted the job, is not this one's. */
static void spank_step_add_or_unset(struct spank_words *out, const char *name, const char *value) {
    spank_step_add(out, "%s%s%s", name, value[0] != '\0' ? "=" : "", value);
}

void spank_step_task_environment(const struct spank_told *told, uint32_t rank, uint32_t local_rank,
                                 struct spank_words *out) {
    const struct spank_config_values *settled = &told->config->settled;
    char id[SPANK_STEP_ID_BYTES];
    spank_step_id(told->step, settled->text[SPANK_CONFIG_PREFIX], id);
    spank_step_add(out, "DEFT_RANK=%" PRIu32, rank);
    spank_step_add(out, "DEFT_WORLD_SIZE=%" PRIu32, told->step->n_tasks);
    spank_step_add(out, "DEFT_LOCAL_RANK=%" PRIu32, local_rank);
    spank_step_add(out, "DEFT_JOB_ID=%s", id);
    spank_step_add(out, "DEFT_RESTART_COUNT=%" PRIu32, told->step->restarts);
    spank_step_add(out, "DEFT_MASTER_PORT=%u", told->port);
    spank_step_add_or_unset(out, "DEFT_MASTER_ADDR", told->master);
    spank_step_add_or_unset(out, "DEFT_AGENT_SOCKET", told->socket);
    spank_step_add_variable(out, "DEFT_JOB_NAME", told->title);
    spank_step_add_variable(out, "DEFT_LINKS", settled->text[SPANK_CONFIG_LINKS]);
    spank_step_add_variable(out, "DEFT_CONTROLLER", settled->text[SPANK_CONFIG_CONTROLLER]);
    spank_step_add_variable(out, "DEFT_TOKEN_FILE", settled->text[SPANK_CONFIG_TOKEN_FILE]);
    spank_step_add_variable(out, "DEFT_CA_FILE", settled->text[SPANK_CONFIG_CA_FILE]);
}
