/* slurmstepd, once per step and node: starts the agent before the tasks, tells the tasks where it
 * is, and lets it flush after the last of them. Nothing here fails or holds a step. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <slurm/slurm.h>

#include "core/spank_agent.h"
#include "core/spank_config.h"
#include "core/spank_step.h"
#include "spank_contexts.h"
#include "spank_flags.h"
#include "spank_host.h"

/* Callbacks of Slurm carry no context. One thread calls them; tasks inherit a copy. */
static struct {
    struct spank_config_values plugstack;
    struct spank_config config;
    struct spank_step step;
    struct spank_agent agent;
    char socket[SPANK_STEP_SOCKET_BYTES];
    char master[SPANK_STEP_HOST_BYTES];
    char node_name[SPANK_STEP_HOST_BYTES];
    char title[SPANK_CONFIG_VALUE_BYTES];
    char why[SPANK_CONFIG_WHY_BYTES]; /* it is off, although it was asked for; "": it is not */
    uint16_t port;
    int is_decided;
    int is_on;  /* asked for, and nothing is in its way so far */
    int is_het; /* its components are steps of their own */
    uint32_t n_ended;
} spank_remote_state = {.agent = {.fd = -1, .agent_fd = -1, .pidfd = -1}};

static void spank_remote_init(spank_t spank, int argc, char **argv) {
    (void)spank_flags_register(spank); /* without options the environment still counts */
    if (spank_config_plugstack(&spank_remote_state.plugstack, argc, argv, spank_remote_state.why) !=
        0) {
        slurm_error("deft: %s; nothing is tuned", spank_remote_state.why);
    }
}

static uint32_t spank_remote_item(spank_t spank, spank_item_t item, uint32_t otherwise) {
    uint32_t value = 0;
    return spank_get_item(spank, item, &value) == ESPANK_SUCCESS ? value : otherwise;
}

static int spank_remote_identify(spank_t spank, struct spank_step *out) {
    struct spank_step step = {
        .job = spank_remote_item(spank, S_JOB_ID, 0),
        .step = spank_remote_item(spank, S_JOB_STEPID, SPANK_STEP_NONE),
        .array_job = spank_remote_item(spank, S_JOB_ARRAY_ID, 0),
        .array_task = spank_remote_item(spank, S_JOB_ARRAY_TASK_ID, NO_VAL),
        .restarts = spank_remote_item(spank, S_SLURM_RESTART_COUNT, 0),
        .node = spank_remote_item(spank, S_JOB_NODEID, 0),
        .n_nodes = spank_remote_item(spank, S_JOB_NNODES, 1),
        .n_tasks = spank_remote_item(spank, S_JOB_TOTAL_TASK_COUNT, 0),
        .n_local_tasks = spank_remote_item(spank, S_JOB_LOCAL_TASK_COUNT, 0),
    };
    if (step.array_job == 0 || step.array_task == NO_VAL) {
        step.array_job = SPANK_STEP_NONE;
        step.array_task = SPANK_STEP_NONE;
    }
    if (step.restarts == NO_VAL) {
        step.restarts = 0;
    }
    if (spank_get_item(spank, S_JOB_UID, &step.user) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_GID, &step.group) != ESPANK_SUCCESS) {
        return -1;
    }
    *out = step;
    return 0;
}

/* "" when it is not set. Returns -1 when it does not fit. */
static int spank_remote_variable(spank_t spank, const char *name, char *out, size_t capacity) {
    spank_err_t result = spank_getenv(spank, name, out, (int)capacity);
    if (result != ESPANK_SUCCESS) {
        out[0] = '\0';
    }
    return result == ESPANK_NOSPACE ? -1 : 0;
}

static int spank_remote_environment(spank_t spank, struct spank_config_values *out, char *why) {
    char rank[16];
    for (int key = 0; key < SPANK_CONFIG_N_KEYS; key++) {
        const char *name = spank_config_names[key].variable;
        if (name != NULL &&
            spank_remote_variable(spank, name, out->text[key], sizeof(out->text[key])) != 0) {
            (void)snprintf(why, SPANK_CONFIG_WHY_BYTES, "%s has more than %u characters", name,
                           SPANK_CONFIG_VALUE_BYTES - 1);
            return -1;
        }
    }
    /* A rank in the job's environment is of a step around this one, or of one that submitted the
     * job: where those meet is not where these do. */
    if (spank_remote_variable(spank, "DEFT_RANK", rank, sizeof(rank)) != 0 || rank[0] != '\0') {
        out->text[SPANK_CONFIG_MASTER][0] = '\0';
        out->text[SPANK_CONFIG_PORT][0] = '\0';
    }
    return 0;
}

/* Steps do not hear of it from slurmctld, but from the batch script's environment. */
static void spank_remote_restarts(spank_t spank) {
    char text[16];
    if (spank_remote_state.step.restarts == 0 &&
        spank_remote_variable(spank, "SLURM_RESTART_COUNT", text, sizeof(text)) == 0) {
        spank_remote_state.step.restarts = (uint32_t)strtoul(text, NULL, 10);
    }
}

static void spank_remote_names(spank_t spank) {
    if (spank_remote_variable(spank, "SLURMD_NODENAME", spank_remote_state.node_name,
                              sizeof(spank_remote_state.node_name)) != 0 ||
        spank_remote_state.node_name[0] == '\0') {
        (void)gethostname(spank_remote_state.node_name, sizeof(spank_remote_state.node_name) - 1);
    }
    if (spank_remote_variable(spank, "DEFT_JOB_NAME", spank_remote_state.title,
                              sizeof(spank_remote_state.title)) != 0 ||
        spank_remote_state.title[0] == '\0') {
        (void)spank_remote_variable(spank, "SLURM_JOB_NAME", spank_remote_state.title,
                                    sizeof(spank_remote_state.title));
    }
}

/* Ranks of one node meet on it; else at the address the user gave, or on the step's first node. */
static void spank_remote_meeting(spank_t spank) {
    const struct spank_config *config = &spank_remote_state.config;
    const char *given = config->settled.text[SPANK_CONFIG_MASTER];
    char nodes[1024] = "";
    char name[SPANK_STEP_HOST_BYTES];
    spank_remote_state.port =
        config->port != 0
            ? config->port
            : spank_step_port(&spank_remote_state.step, config->first_port, config->last_port);
    if (given[0] != '\0' || spank_remote_state.step.n_nodes <= 1) {
        (void)snprintf(spank_remote_state.master, sizeof(spank_remote_state.master), "%.255s",
                       given[0] != '\0' ? given : "127.0.0.1");
        return;
    }
    /* Of a list that does not fit only the front is looked at anyway. */
    (void)spank_getenv(spank, "SLURM_STEP_NODELIST", nodes, sizeof(nodes));
    if (spank_step_first_node(nodes, name, sizeof(name)) != 0 ||
        spank_host_find(name, spank_remote_state.master, sizeof(spank_remote_state.master)) != 0) {
        spank_remote_state.master[0] = '\0';
    }
}

/* Why a step that asks for it is not tuned at all; 0 if it is. */
static int spank_remote_is_out(spank_t spank, char *why) {
    char size[16];
    (void)spank_remote_variable(spank, "SLURM_HET_SIZE", size, sizeof(size));
    if (strtoul(size, NULL, 10) > 1) {
        spank_remote_state.is_het = 1;
        (void)snprintf(why, SPANK_CONFIG_WHY_BYTES, "heterogeneous jobs are not tuned yet");
        return 1;
    }
    if (spank_remote_state.step.user == 0) {
        (void)snprintf(why, SPANK_CONFIG_WHY_BYTES, "jobs of root are not tuned");
        return 1;
    }
    return 0;
}

/* Fills `why` when the step asks for tuning and cannot have it. */
static void spank_remote_decide(spank_t spank, const struct spank_config_values *environment) {
    const struct spank_config_values *flags = spank_flags_given();
    char *why = spank_remote_state.why;
    uint64_t salt = 0;
    if (!spank_config_is_asked(flags, environment, &spank_remote_state.plugstack)) {
        why[0] = '\0';
        return;
    }
    if (why[0] == '\0') { /* else plugstack.conf is wrong */
        (void)snprintf(why, SPANK_CONFIG_WHY_BYTES, "%s", spank_flags_wrong());
    }
    if (why[0] != '\0' ||
        spank_config_settle(flags, environment, &spank_remote_state.plugstack, DEFT_SLURM_AGENT,
                            &spank_remote_state.config, why) != 0 ||
        spank_remote_is_out(spank, why)) {
        return;
    }
    spank_remote_meeting(spank);
    if (getrandom(&salt, sizeof(salt), GRND_NONBLOCK) != (ssize_t)sizeof(salt)) {
        salt = (uint64_t)getpid(); /* the agent is as safe, but its name may be taken */
    }
    spank_step_socket(&spank_remote_state.step, salt, spank_remote_state.socket);
    spank_remote_state.is_on = spank_agent_open(&spank_remote_state.agent, why) == 0;
}

/* Called twice by some releases. */
static void spank_remote_post_opt(spank_t spank) {
    struct spank_config_values *environment = NULL;
    if (spank_remote_state.is_decided) {
        return;
    }
    spank_remote_state.is_decided = 1;
    /* The batch script, interactive shells and the like inherit the options of their job. */
    if (spank_remote_identify(spank, &spank_remote_state.step) != 0 ||
        spank_remote_state.step.step >= SLURM_MAX_NORMAL_STEP_ID) {
        spank_remote_state.why[0] = '\0';
        return;
    }
    environment = calloc(1, sizeof(*environment));
    if (environment == NULL) {
        return;
    }
    spank_remote_restarts(spank);
    spank_remote_names(spank);
    /* A variable that does not fit only matters to a step that asks: then `why` is filled. */
    (void)spank_remote_environment(spank, environment, spank_remote_state.why);
    spank_remote_decide(spank, environment);
    free(environment);
}

static void spank_remote_tell(struct spank_told *out) {
    *out = (struct spank_told){.config = &spank_remote_state.config,
                               .step = &spank_remote_state.step,
                               .node_name = spank_remote_state.node_name,
                               .socket = spank_remote_state.socket,
                               .master = spank_remote_state.master,
                               .port = spank_remote_state.port,
                               .title = spank_remote_state.title};
}

/* The agent for this node; -1 and why there is none. */
static int spank_remote_start(spank_t spank, char *why) {
    struct spank_told told;
    struct spank_words *argv = calloc(1, sizeof(*argv));
    struct spank_words *environment = calloc(1, sizeof(*environment));
    char **job = NULL;
    int result = -1;
    (void)snprintf(why, SPANK_CONFIG_WHY_BYTES, "no memory for the agent's arguments");
    if (argv != NULL && environment != NULL) {
        spank_remote_tell(&told);
        if (spank_get_item(spank, S_JOB_ENV, &job) != ESPANK_SUCCESS) {
            job = NULL;
        }
        spank_step_agent_words(&told, SPANK_AGENT_FD, argv);
        spank_step_agent_environment(&told, job, environment);
        const struct spank_agent_start start = {.argv = argv->words,
                                                .environment = environment->words,
                                                .user = spank_remote_state.step.user,
                                                .group = spank_remote_state.step.group};
        if (argv->is_full || environment->is_full) {
            (void)snprintf(why, SPANK_CONFIG_WHY_BYTES,
                           "arguments and environment of the agent have more than %zu characters",
                           sizeof(argv->text));
        } else {
            result = spank_agent_run(&spank_remote_state.agent, &start, SPANK_AGENT_READY_NS, why);
        }
    }
    free(argv);
    free(environment);
    return result;
}

/* The one line of a step that is tuned. */
static void spank_remote_announce(void) {
    const struct spank_config *config = &spank_remote_state.config;
    const struct spank_step *step = &spank_remote_state.step;
    char id[SPANK_STEP_ID_BYTES];
    spank_step_id(step, config->settled.text[SPANK_CONFIG_PREFIX], id);
    slurm_spank_log("deft: job %s: %s, %" PRIu32 " rank%s on %" PRIu32
                    " node%s, meeting at %s:%u, controller %s",
                    id, spank_config_mode_name(config->mode), step->n_tasks,
                    step->n_tasks == 1 ? "" : "s", step->n_nodes, step->n_nodes == 1 ? "" : "s",
                    spank_remote_state.master[0] != '\0' ? spank_remote_state.master
                                                         : "MASTER_ADDR",
                    spank_remote_state.port, config->settled.text[SPANK_CONFIG_CONTROLLER]);
}

/* With the job's user, and its log as standard error. */
static void spank_remote_user_init(spank_t spank) {
    if (!spank_remote_state.is_on) {
        if (spank_remote_state.why[0] != '\0' && spank_remote_state.step.node == 0 &&
            !spank_remote_state.is_het) {
            slurm_spank_log("deft: off: %s", spank_remote_state.why);
        }
        return;
    }
    if (spank_remote_start(spank, spank_remote_state.why) != 0) {
        slurm_spank_log("deft: off on node %s: %s", spank_remote_state.node_name,
                        spank_remote_state.why);
        spank_remote_state.socket[0] = '\0';
    } else if (spank_remote_state.step.node == 0) {
        spank_remote_announce();
    }
}

/* In the task, before its program. Without an agent its ranks still meet. */
static void spank_remote_task_init(spank_t spank) {
    struct spank_told told;
    struct spank_words *words = NULL;
    char number[16];
    int local = 0;
    uint32_t rank = 0;
    /* Only the tasks of a heterogeneous job can tell which component is the first. */
    if (spank_remote_state.is_het &&
        spank_remote_variable(spank, "SLURM_PROCID", number, sizeof(number)) == 0 &&
        strcmp(number, "0") == 0) {
        slurm_spank_log("deft: off: %s", spank_remote_state.why);
    }
    if (!spank_remote_state.is_on || spank_get_item(spank, S_TASK_ID, &local) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_TASK_GLOBAL_ID, &rank) != ESPANK_SUCCESS) {
        return;
    }
    words = calloc(1, sizeof(*words));
    if (words == NULL) {
        return;
    }
    spank_remote_tell(&told);
    if (!spank_agent_is_ready(&spank_remote_state.agent)) {
        told.socket = "";
    }
    spank_step_task_environment(&told, rank, (uint32_t)local, words);
    for (size_t i = 0; i < words->n_words; i++) {
        char *value = strchr(words->words[i], '=');
        if (value == NULL) {
            (void)spank_unsetenv(spank, words->words[i]);
            continue;
        }
        *value = '\0';
        if (spank_setenv(spank, words->words[i], value + 1, 1) != ESPANK_SUCCESS) {
            slurm_error("deft: %s cannot be set for task %" PRIu32, words->words[i], rank);
        }
    }
    free(words);
}

static void spank_remote_post_fork(spank_t spank) {
    (void)spank;
    spank_agent_settle(&spank_remote_state.agent);
}

static void spank_remote_stop(void) {
    switch (spank_agent_stop(&spank_remote_state.agent, SPANK_AGENT_GRACE_NS)) {
    case SPANK_AGENT_KILLED:
        slurm_info("deft: the agent of step %" PRIu32 ".%" PRIu32 " did not end and was killed",
                   spank_remote_state.step.job, spank_remote_state.step.step);
        break;
    case SPANK_AGENT_STUCK:
        slurm_error("deft: the agent of step %" PRIu32 ".%" PRIu32
                    " did not end and cannot be killed",
                    spank_remote_state.step.job, spank_remote_state.step.step);
        break;
    case SPANK_AGENT_NONE:
    case SPANK_AGENT_ENDED:
        break;
    }
}

/* After the last task the step is still there: its processes are counted and killed only later. */
static void spank_remote_task_exit(spank_t spank) {
    (void)spank;
    if (++spank_remote_state.n_ended >= spank_remote_state.step.n_local_tasks) {
        spank_remote_stop();
    }
}

/* When tasks could not even be started. */
static void spank_remote_exit(spank_t spank) {
    (void)spank;
    spank_remote_stop();
}

const struct spank_contexts_ops spank_remote_ops = {
    .remote_init = spank_remote_init,
    .init_post_opt = spank_remote_post_opt,
    .user_init = spank_remote_user_init,
    .task_init = spank_remote_task_init,
    .task_post_fork = spank_remote_post_fork,
    .task_exit = spank_remote_task_exit,
    .exit = spank_remote_exit,
};
