#include "kineto_measure.h"

#include <stdlib.h>
#include <string.h>

#include "kineto_gradient.h"
#include "kineto_join.h"
#include "kineto_spans.h"
#include "kineto_stage.h"
#include "kineto_steps.h"

void kineto_step_done(struct kineto_step *step) {
    free(step->reduces);
    free(step->parameters);
    step->reduces = NULL;
    step->parameters = NULL;
}

void kineto_measured_done(struct kineto_measured *measured) {
    for (uint32_t i = 0; i < measured->n_steps; i++) {
        kineto_step_done(&measured->steps[i]);
    }
    free(measured->steps);
    *measured = (struct kineto_measured){0};
}

/* What is missing, as the setting that brings it. */
static enum deft_status kineto_measure_refuse(const struct kineto_trace *trace,
                                              const struct kineto_gradient_census *census,
                                              struct deft_error *error) {
    if (census->n_unsized > 0) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "the all-reduces of '%s' have no sizes: give the profiler "
                         "record_shapes=True, or use torch 2.2 or later, which always records "
                         "them",
                         trace->path);
    }
    if (!trace->has_device && trace->has_titles) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "'%s' has NCCL calls but no kernels: give the profiler "
                         "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
                         trace->path);
    }
    if (trace->has_device && trace->launches.n == 0) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "'%s' has kernels but no launches: give the profiler "
                         "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
                         trace->path);
    }
    if (census->n_elsewhere > 0) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "no backward of '%s' all-reduces gradients, but there are collectives "
                         "such as %s: jobs that shard parameters cannot be planned",
                         trace->path, trace->names.text[census->elsewhere]);
    }
    return deft_fail(error, DEFT_INVALID, 0,
                     "no backward of '%s' all-reduces gradients: record a step of "
                     "DistributedDataParallel on two or more ranks",
                     trace->path);
}

/* The kernels of each window, and what ran before them. */
static void kineto_measure_windows(const struct kineto_trace *trace,
                                   const struct kineto_window *windows, uint32_t n,
                                   struct kineto_stage *stages) {
    const struct kineto_kernel *kernels = trace->kernels.items;
    uint32_t k = 0;
    int64_t done_ns = INT64_MIN; /* work of earlier launches */
    for (uint32_t i = 0; i < n; i++) {
        struct kineto_stage *stage = &stages[i];
        int64_t first_ns = INT64_MAX;
        stage->trace = trace;
        stage->window = &windows[i];
        while (k < trace->kernels.n && kernels[k].launched_ns < windows[i].begin_ns) {
            k++;
        }
        stage->first = k;
        for (; k < trace->kernels.n && kernels[k].launched_ns < windows[i].end_ns; k++) {
            first_ns = kernels[k].begin_ns < first_ns ? kernels[k].begin_ns : first_ns;
        }
        stage->n = k - stage->first;
        stage->begin_ns = windows[i].begin_ns;
        if (!trace->has_device || stage->n == 0) {
            continue;
        }
        uint32_t from = i == 0 ? 0 : stages[i - 1].first;
        for (uint32_t before = from; before < stage->first; before++) {
            const struct kineto_kernel *kernel = &kernels[before];
            if (kernel->work != KINETO_REDUCE && kernel->begin_ns < first_ns &&
                kernel->end_ns > done_ns) {
                done_ns = kernel->end_ns;
            }
        }
        if (done_ns > stage->begin_ns) {
            stage->begin_ns = done_ns < first_ns ? done_ns : first_ns;
        }
    }
}

static int64_t kineto_measure_end(const struct kineto_trace *trace,
                                  const struct kineto_stage *stages, uint32_t i, uint32_t n) {
    const struct kineto_kernel *kernels = trace->kernels.items;
    int64_t end_ns = stages[i].window->end_ns;
    if (i + 1 < n && (!trace->has_device || stages[i + 1].n > 0)) {
        return stages[i + 1].begin_ns;
    }
    for (uint32_t k = 0; k < stages[i].n; k++) {
        const struct kineto_kernel *kernel = &kernels[stages[i].first + k];
        struct kineto_reduce reduce;
        /* No later step would wait for a collective that is not of gradients. */
        if (kernel->end_ns > end_ns &&
            (kernel->work != KINETO_REDUCE ||
             kineto_gradient_is(trace, kernel, stages[i].window, stages[i].census, &reduce))) {
            end_ns = kernel->end_ns;
        }
    }
    return end_ns;
}

int64_t kineto_measure_add(int64_t a_ns, int64_t b_ns) {
    return b_ns >= DSCHED_MAX_TIME_NS - a_ns ? DSCHED_MAX_TIME_NS : a_ns + b_ns;
}

static void kineto_measure_foreign(const struct kineto_stage *stage,
                                   const struct kineto_kernel *kernel,
                                   struct kineto_measured *measured) {
    const struct kineto_trace *trace = stage->trace;
    const struct kineto_collective *items = trace->collectives.items;
    const char *name = "unidentified";
    const char *group = trace->groups.text[0];
    uint32_t i = 0;
    if (kernel->collective != KINETO_NO_COLLECTIVE) {
        name = trace->names.text[items[kernel->collective].name];
        group = trace->groups.text[items[kernel->collective].group];
    }
    while (i < measured->n_foreign && (strcmp(measured->foreign[i].name, name) != 0 ||
                                       strcmp(measured->foreign[i].group, group) != 0)) {
        i++;
    }
    if (i == KINETO_MAX_NAMES) {
        i = KINETO_MAX_NAMES - 1; /* the last row takes all that has none of its own */
    } else if (i == measured->n_foreign) {
        measured->n_foreign++;
        memcpy(measured->foreign[i].name, name, strlen(name) + 1);
        memcpy(measured->foreign[i].group, group, strlen(group) + 1);
    }
    measured->foreign[i].count++;
    measured->foreign[i].total_ns =
        kineto_measure_add(measured->foreign[i].total_ns, kernel->end_ns - kernel->begin_ns);
}

static void kineto_measure_census(const struct kineto_stage *stage,
                                  struct kineto_measured *measured) {
    const struct kineto_kernel *kernels = stage->trace->kernels.items;
    for (uint32_t k = 0; k < stage->n; k++) {
        const struct kineto_kernel *kernel = &kernels[stage->first + k];
        struct kineto_reduce reduce;
        if (kernel->work == KINETO_REDUCE &&
            !kineto_gradient_is(stage->trace, kernel, stage->window, stage->census, &reduce)) {
            kineto_measure_foreign(stage, kernel, measured);
        }
    }
}

static enum deft_status kineto_measure_steps(struct kineto_stage *stages, uint32_t n, uint32_t rank,
                                             struct kineto_measured *measured,
                                             struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    for (uint32_t i = 0; i < n && status == DEFT_OK; i++) {
        struct kineto_step *step = &measured->steps[measured->n_steps];
        stages[i].end_ns = kineto_measure_end(stages[i].trace, stages, i, n);
        status = kineto_stage_measure(&stages[i], step, error);
        if (status != DEFT_OK) {
            break;
        }
        if (step->n_reduces == 0) {
            kineto_step_done(step);
            *step = (struct kineto_step){0};
            measured->n_left_out++;
            continue;
        }
        step->rank = rank;
        measured->n_steps++;
        kineto_measure_census(&stages[i], measured);
    }
    return status;
}

enum deft_status kineto_measure(struct kineto_trace *trace, uint32_t rank,
                                struct kineto_measured *out, struct deft_error *error) {
    struct kineto_window *windows = NULL;
    struct kineto_stage *stages = NULL;
    struct kineto_gradient_census census = {0};
    struct kineto_measured measured = {0};
    uint32_t n = 0;
    enum deft_status status = kineto_join(trace, error);
    if (status == DEFT_OK) {
        status = kineto_steps_find(trace, &windows, &n, error);
    }
    if (status != DEFT_OK) {
        goto done;
    }
    kineto_gradient_count(trace, windows, n, &census);
    if (census.n_gradients == 0) {
        status = kineto_measure_refuse(trace, &census, error);
        goto done;
    }
    stages = calloc(n, sizeof(*stages));
    measured.steps = calloc(n, sizeof(*measured.steps));
    if (stages == NULL || measured.steps == NULL) {
        status = deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for %u steps", n);
        goto done;
    }
    kineto_measure_windows(trace, windows, n, stages);
    for (uint32_t i = 0; i < n; i++) {
        stages[i].census = &census;
    }
    measured.n_untyped = census.n_untyped;
    status = kineto_measure_steps(stages, n, rank, &measured, error);
    if (status == DEFT_OK && measured.n_steps == 0) {
        status = kineto_measure_refuse(trace, &census, error);
    }
done:
    free(windows);
    free(stages);
    if (status != DEFT_OK) {
        kineto_measured_done(&measured);
        return status;
    }
    *out = measured;
    return DEFT_OK;
}
