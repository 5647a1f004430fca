/* deft job: one job, its plan, its figures, and every decision with its reason. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "cli_controller.h"
#include "cli_table.h"

enum { CMD_JOB_JSON = 256 };

static const struct argp_option cmd_job_table[] = {
    {"json", CMD_JOB_JSON, NULL, 0, "Print the controller's JSON", 0},
    {0},
};

struct cmd_job_input {
    struct cli_controller controller;
    const char *job;
    int json;
};

static error_t cmd_job_parse(int key, char *argument, struct argp_state *state) {
    struct cmd_job_input *input = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &input->controller;
        break;
    case CMD_JOB_JSON:
        input->json = 1;
        break;
    case ARGP_KEY_ARG:
        if (input->job != NULL) {
            argp_error(state, "one job id is expected");
        }
        input->job = argument;
        break;
    case ARGP_KEY_END:
        if (input->job == NULL) {
            argp_error(state, "a job id is expected; 'deft jobs' lists them");
        }
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static void cmd_job_duration(const char *label, int64_t ns) {
    char text[16];
    if (ns > 0) {
        cli_table_duration(ns, text);
        (void)printf("%-12s %s\n", label, text);
    }
}

static void cmd_job_ratio(const char *label, double ratio) {
    if (isfinite(ratio)) {
        (void)printf("%-12s %.2fx\n", label, ratio);
    }
}

/* What is said of a loss state (dsched/loss.h); the name itself for one of a newer controller. */
static const char *cmd_job_loss_words(const char *state) {
    static const char *const words[][2] = {
        {"absent", "none was given"},
        {"fine", "usable"},
        {"few", "too few so far"},
        {"constant", "always the same value"},
        {"sparse", "far fewer values than iterations"},
        {"missing", "none lately"},
        {"broken", "not finite lately"},
        {"unsettled", "has jumped and not come back yet"},
        {"stepped", "the same value for many iterations, not that of batches"},
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(state, words[i][0]) == 0) {
            return words[i][1];
        }
    }
    return state;
}

static void cmd_job_plan(const struct wire_job *job) {
    if (job->plan_seq == 0) {
        (void)printf("%-12s the built-in exact plan\n", "plan");
        return;
    }
    (void)printf("%-12s %s (number %llu): %s, merge %u, delay %u", "plan", job->plan,
                 (unsigned long long)job->plan_seq, job->rule, job->merge, job->delay);
    if (isfinite(job->updates_per_step)) {
        (void)printf(", %.2f updates per step", job->updates_per_step);
    }
    if (job->progress > 0 && job->progress < 1) {
        (void)printf(", costs %.1f %% more samples", 100 / job->progress - 100);
    }
    (void)printf("\n");
}

static void cmd_job_convergence(const struct wire_job *job) {
    if (isfinite(job->loss)) {
        (void)printf("%-12s %.4g, %s\n", "loss", job->loss, cmd_job_loss_words(job->loss_state));
    } else if (job->loss_state[0] != '\0') {
        (void)printf("%-12s %s\n", "loss", cmd_job_loss_words(job->loss_state));
    }
    if (isfinite(job->noise_samples)) {
        (void)printf("%-12s %.3g samples\n", "noise scale", job->noise_samples);
    }
    if (isfinite(job->disagreement)) {
        (void)printf("%-12s %.3g of the ranks' mean change\n", "disagreement", job->disagreement);
    }
    (void)printf("%-12s merge %u, delay %u", "limits", job->max_merge, job->max_delay);
    if (isfinite(job->epsilon) && isfinite(job->min_progress)) {
        (void)printf(", epsilon %g, progress %g", job->epsilon, job->min_progress);
    }
    if (isfinite(job->loss_floor)) {
        (void)printf(", loss floor %g", job->loss_floor);
    }
    (void)printf("\n");
    if (job->frozen) {
        (void)printf("%-12s frozen: no plan is looked for\n", "held");
    }
    if (job->pin[0] != '\0') {
        (void)printf("%-12s %s, and no other plan\n", "pinned", job->pin);
    }
}

static void cmd_job_print(const struct wire_job *job) {
    (void)printf("%-12s %s\n%-12s %s\n%-12s %s\n", "job", job->id, "name", job->name, "user",
                 job->user);
    (void)printf("%-12s %s, mode %s, tuner %s\n", "state", job->state, job->mode,
                 job->phase[0] != '\0' ? job->phase : "idle");
    if (job->status[0] != '\0' && strcmp(job->state, "running") == 0) {
        (void)printf("%-12s %s\n", "status", job->status);
    }
    (void)printf("%-12s %u", "ranks", job->n_ranks);
    if (strcmp(job->state, "running") == 0 && job->n_ranks_heard < job->n_ranks) {
        (void)printf(", %u heard lately, not rank %u", job->n_ranks_heard, job->first_unheard);
    }
    (void)printf("\n%-12s %llu\n", "iterations", (unsigned long long)job->iterations);
    cmd_job_plan(job);
    cmd_job_duration("step before", job->exact_step_ns);
    cmd_job_duration("step now", job->step_ns);
    cmd_job_duration("predicted", job->predicted_step_ns);
    cmd_job_ratio("gain", job->gain);
    cmd_job_ratio("predicted x", job->predicted_gain);
    if (isfinite(job->coverage)) {
        (void)printf("%-12s %.2f\n", "coverage", job->coverage);
    }
    cmd_job_convergence(job);
    (void)printf("%-12s %u, %u rolled back\n", "switches", job->n_switches, job->n_rollbacks);
    (void)printf("%-12s %s\n%-12s %s\n", "registered", job->registered_at, "updated",
                 job->updated_at);
}

static void cmd_job_print_decisions(const struct wire_decisions *decisions) {
    char before[16];
    char predicted[16];
    char measured[16];
    if (decisions->n_decisions > 0) {
        (void)printf("\ndecisions\n");
    }
    for (uint32_t i = 0; i < decisions->n_decisions; i++) {
        const struct wire_decision *decision = &decisions->decisions[i];
        cli_table_duration(decision->before_step_ns, before);
        cli_table_duration(decision->predicted_step_ns, predicted);
        cli_table_duration(decision->measured_step_ns, measured);
        (void)printf("  %s  iteration %llu  %-9s before %s, predicted %s, measured %s\n      %s\n",
                     decision->at, (unsigned long long)decision->iteration, decision->kind, before,
                     predicted, measured, decision->reason);
    }
}

static enum deft_status cmd_job_show(const struct cmd_job_input *input, struct deft_error *error) {
    struct cli_controller controller = input->controller;
    char path[CLI_CONTROLLER_PATH_BYTES];
    struct http_reply reply = {0};
    struct wire_decisions decisions = {0};
    struct wire_job job;
    enum deft_status status = cli_controller_find(&controller, error);
    if (status == DEFT_OK) {
        status = cli_controller_path("jobs", input->job, "", path, error);
    }
    if (status == DEFT_OK) {
        status = cli_controller_get(&controller, path, &reply, error);
    }
    if (status == DEFT_OK && input->json) {
        (void)printf("%s\n", reply.body);
    } else if (status == DEFT_OK) {
        status = wire_job_decode(reply.body, reply.n_bytes, &job, error);
        if (status == DEFT_OK) {
            cmd_job_print(&job);
        }
        if (status == DEFT_OK && job.incarnation[0] != '\0') {
            status = cli_controller_decisions(&controller, job.incarnation, &decisions, error);
        }
    }
    cmd_job_print_decisions(&decisions);
    wire_decisions_done(&decisions);
    http_reply_done(&reply);
    return status;
}

static int cmd_job_main(int argc, char **argv) {
    static const struct argp_child children[] = {{&cli_controller_argp, 0, NULL, 0}, {0}};
    static const struct argp parser = {
        .options = cmd_job_table,
        .parser = cmd_job_parse,
        .children = children,
        .args_doc = "ID",
        .doc = "Shows one job: state, plan, step times, gain, what its losses and gradients say, "
               "its limits, and every decision with its reason."};
    struct cmd_job_input input = {0};
    struct deft_error error = {0};
    (void)argp_parse(&parser, argc, argv, 0, NULL, &input);
    return cli_status(cmd_job_show(&input, &error), &error);
}

const struct cli_command cmd_job = {
    .name = "job",
    .summary = "Show one job with its plan, figures and decisions",
    .run = cmd_job_main,
};
