#include "run_verdict.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "cli_controller.h"

struct run_verdict_line {
    char *text;
    size_t n;
};

static void run_verdict_add(struct run_verdict_line *line, const char *format, ...)
    DEFT_PRINTF(2, 3);
static void run_verdict_add(struct run_verdict_line *line, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(line->text + line->n, RUN_VERDICT_BYTES - line->n, format, arguments);
    va_end(arguments);
    if (n > 0) {
        size_t room = RUN_VERDICT_BYTES - line->n - 1;
        line->n += (size_t)n < room ? (size_t)n : room;
    }
}

static double run_verdict_ms(int64_t ns) {
    return (double)ns / 1e6;
}

static void run_verdict_plan(struct run_verdict_line *line, const char *rule, uint32_t merge,
                             uint32_t delay) {
    run_verdict_add(line, "%s", rule[0] != '\0' ? rule : "exact");
    if (merge > 1) {
        run_verdict_add(line, " k=%u", merge);
    }
    if (delay > 0) {
        run_verdict_add(line, " delay=%u", delay);
    }
}

static void run_verdict_tuned(struct run_verdict_line *line, const struct wire_job *job,
                              uint64_t since_iteration) {
    run_verdict_add(line, "step %.1f -> %.1f ms", run_verdict_ms(job->exact_step_ns),
                    run_verdict_ms(job->step_ns));
    if (isfinite(job->gain)) {
        run_verdict_add(line, " (%.2fx)", job->gain);
    }
    run_verdict_add(line, ", ");
    run_verdict_plan(line, job->rule, job->merge, job->delay);
    if (since_iteration > 0) {
        run_verdict_add(line, " since iteration %" PRIu64, since_iteration);
    }
    run_verdict_add(line, ", %u switch%s, %u roll-back%s", job->n_switches,
                    job->n_switches == 1 ? "" : "es", job->n_rollbacks,
                    job->n_rollbacks == 1 ? "" : "s");
}

static void run_verdict_untuned(struct run_verdict_line *line, const struct wire_job *job) {
    int64_t step_ns = job->step_ns > 0 ? job->step_ns : job->exact_step_ns;
    if (step_ns > 0) {
        run_verdict_add(line, "step %.1f ms", run_verdict_ms(step_ns));
    } else {
        run_verdict_add(line, "%" PRIu64 " iterations", job->iterations);
    }
    if (strcmp(job->mode, "off") == 0) {
        run_verdict_add(line, ", mode off: nothing was tuned");
        return;
    }
    if (strcmp(job->mode, "observe") == 0 && isfinite(job->predicted_gain) &&
        job->predicted_gain > 1.0) {
        run_verdict_add(line, ", would gain %.2fx (observe mode: nothing was changed)",
                        job->predicted_gain);
        return;
    }
    run_verdict_add(line, ", the built-in exact plan ran");
    if (job->n_switches > 0 || job->n_rollbacks > 0) {
        run_verdict_add(line, " at the end (%u switches, %u roll-backs)", job->n_switches,
                        job->n_rollbacks);
    }
    if (job->decision[0] != '\0') {
        run_verdict_add(line, ": %.300s", job->decision);
    } else {
        run_verdict_add(line, ": the job ended before there was enough to decide on");
    }
}

void run_verdict_text(const struct wire_job *job, uint64_t since_iteration,
                      char out[RUN_VERDICT_BYTES]) {
    struct run_verdict_line line = {.text = out};
    out[0] = '\0';
    run_verdict_add(&line, "%s: ", job->id);
    if (job->plan_seq > 0 && job->exact_step_ns > 0 && job->step_ns > 0 &&
        strcmp(job->rule, "") != 0) {
        run_verdict_tuned(&line, job, since_iteration);
    } else {
        run_verdict_untuned(&line, job);
    }
}

/* When the running plan was pushed; 0 when that is not known, which costs the line nothing else. */
static uint64_t run_verdict_since(const struct cli_controller *controller,
                                  const struct wire_job *job) {
    struct wire_decisions decisions = {0};
    uint64_t iteration = 0;
    if (job->plan_seq == 0 ||
        cli_controller_decisions(controller, job->incarnation, &decisions, NULL) != DEFT_OK) {
        return 0;
    }
    for (uint32_t i = 0; i < decisions.n_decisions && iteration == 0; i++) {
        if (decisions.decisions[i].plan_seq == job->plan_seq) {
            iteration = decisions.decisions[i].iteration;
        }
    }
    wire_decisions_done(&decisions);
    return iteration;
}

void run_verdict_print(const struct cli_controller *controller, const char *job,
                       const char *state_dir) {
    char text[RUN_VERDICT_BYTES];
    struct wire_job view;
    struct deft_error error = {0};
    enum deft_status status = cli_controller_job(controller, job, &view, &error);
    if (status == DEFT_NOT_FOUND) {
        (void)fprintf(stderr,
                      "deft: %s: no rank reported anything; does the program use libdeft?\n", job);
    } else if (status != DEFT_OK) {
        (void)fprintf(stderr, "deft: %s: the verdict is not known: %s\n", job, error.text);
    } else {
        run_verdict_text(&view, run_verdict_since(controller, &view), text);
        if (state_dir != NULL) {
            (void)fprintf(stderr, "deft: %s; history in %s/%s\n", text, state_dir,
                          CLI_CONTROLLER_DATABASE);
        } else {
            (void)fprintf(stderr, "deft: %s; history at %s\n", text, controller->url);
        }
    }
}
