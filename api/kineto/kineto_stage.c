#include "kineto_stage.h"

#include <inttypes.h>
#include <stdlib.h>

#include "kineto_measure.h"
#include "kineto_spans.h"

#define KINETO_STAGE_COMPUTE  (1u << KINETO_COMPUTE)
#define KINETO_STAGE_COPY     (1u << KINETO_COPY)
#define KINETO_STAGE_GRADIENT (1u << KINETO_REDUCE)
#define KINETO_STAGE_FOREIGN  (2u << KINETO_REDUCE)

struct kineto_stage_work {
    const struct kineto_stage *stage;
    struct kineto_span *spans; /* room for all that may be asked for at once */
    int64_t *reached;          /* per kernel: when all before it and itself are done */
    int64_t last_ns;           /* launch of the last gradient all-reduce */
};

static const struct kineto_kernel *kineto_stage_kernels(const struct kineto_stage *stage) {
    const struct kineto_kernel *kernels = stage->trace->kernels.items;
    return kernels + stage->first;
}

static int64_t kineto_stage_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t kineto_stage_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Spans of the operators of a host that begin in [from_ns, to_ns). */
static size_t kineto_stage_operators(const struct kineto_stage_work *work, int64_t from_ns,
                                     int64_t to_ns, size_t n) {
    const struct kineto_array *operators = &work->stage->trace->operators;
    const struct kineto_span *items = operators->items;
    for (uint32_t i = kineto_steps_first(operators, from_ns);
         i < operators->n && items[i].begin_ns < to_ns; i++) {
        work->spans[n].begin_ns = items[i].begin_ns;
        work->spans[n++].end_ns = kineto_stage_min(items[i].end_ns, to_ns);
    }
    return n;
}

static uint32_t kineto_stage_kind(const struct kineto_stage *stage,
                                  const struct kineto_kernel *kernel) {
    struct kineto_reduce reduce;
    if (kernel->work != KINETO_REDUCE) {
        return 1u << kernel->work;
    }
    return kineto_gradient_is(stage->trace, kernel, stage->window, stage->census, &reduce)
               ? KINETO_STAGE_GRADIENT
               : KINETO_STAGE_FOREIGN;
}

/* Time in which work of these kinds runs that was launched in [from_ns, to_ns). */
static int64_t kineto_stage_covered(const struct kineto_stage_work *work, uint32_t kinds,
                                    int64_t from_ns, int64_t to_ns) {
    const struct kineto_stage *stage = work->stage;
    const struct kineto_kernel *kernels = kineto_stage_kernels(stage);
    size_t n = 0;
    if (!stage->trace->has_device && (kinds & KINETO_STAGE_COMPUTE) != 0) {
        n = kineto_stage_operators(work, from_ns, to_ns, n);
    }
    for (uint32_t k = 0; k < stage->n; k++) {
        const struct kineto_kernel *kernel = &kernels[k];
        if (kernel->launched_ns >= from_ns && kernel->launched_ns < to_ns &&
            (kinds & kineto_stage_kind(stage, kernel)) != 0) {
            work->spans[n++] = (struct kineto_span){kernel->begin_ns, kernel->end_ns};
        }
    }
    return kineto_spans_covered(work->spans, n);
}

/* When what was launched up to `at_ns` is done: on the host, at once. */
static int64_t kineto_stage_ready(const struct kineto_stage_work *work, int64_t at_ns) {
    const struct kineto_kernel *kernels = kineto_stage_kernels(work->stage);
    uint32_t low = 0;
    uint32_t high = work->stage->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (kernels[middle].launched_ns <= at_ns) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low == 0 ? at_ns : kineto_stage_max(at_ns, work->reached[low - 1]);
}

/* The backward's begin and end, and how far the device has come with each kernel of it. */
static int kineto_stage_backward(struct kineto_stage_work *work, struct kineto_step *step) {
    const struct kineto_stage *stage = work->stage;
    const struct kineto_kernel *kernels = kineto_stage_kernels(stage);
    int64_t begin_ns = INT64_MAX;
    int64_t reached_ns = INT64_MIN;
    if (!stage->trace->has_device) {
        begin_ns = stage->window->backward_ns;
        reached_ns = work->last_ns;
    }
    for (uint32_t k = 0; k < stage->n; k++) {
        if (kernels[k].work != KINETO_REDUCE &&
            kernels[k].launched_ns >= stage->window->backward_ns &&
            kernels[k].launched_ns <= work->last_ns) {
            begin_ns = kineto_stage_min(begin_ns, kernels[k].begin_ns);
            reached_ns = kineto_stage_max(reached_ns, kernels[k].end_ns);
        }
        work->reached[k] = stage->trace->has_device ? reached_ns : INT64_MIN;
    }
    if (begin_ns > reached_ns) {
        return 0;
    }
    step->backward_begin_ns = kineto_stage_max(begin_ns - stage->begin_ns, 0);
    step->backward_end_ns = kineto_stage_max(reached_ns - stage->begin_ns, 0);
    return 1;
}

static enum deft_status kineto_stage_reduces(struct kineto_stage_work *work,
                                             struct kineto_step *step, struct deft_error *error) {
    const struct kineto_stage *stage = work->stage;
    const struct kineto_kernel *kernels = kineto_stage_kernels(stage);
    step->reduces = calloc((size_t)stage->n + 1, sizeof(*step->reduces));
    if (step->reduces == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a step");
    }
    for (uint32_t k = 0; k < stage->n; k++) {
        struct kineto_reduce *reduce = &step->reduces[step->n_reduces];
        if (!kineto_gradient_is(stage->trace, &kernels[k], stage->window, stage->census, reduce)) {
            continue;
        }
        if (step->n_reduces == KINETO_MAX_BUCKETS) {
            return deft_fail(error, DEFT_LIMIT, 0,
                             "a step of '%s' has more than %u gradient all-reduces",
                             stage->trace->path, KINETO_MAX_BUCKETS);
        }
        work->last_ns = kernels[k].launched_ns;
        reduce->begin_ns = kernels[k].begin_ns;
        reduce->end_ns = kernels[k].end_ns;
        reduce->ready_ns = kernels[k].launched_ns;
        step->n_reduces++;
    }
    return DEFT_OK;
}

/* From launches to readiness, and from instants of the trace to those of the step. */
static void kineto_stage_offsets(const struct kineto_stage_work *work, struct kineto_step *step) {
    int64_t begin_ns = work->stage->begin_ns;
    for (uint32_t i = 0; i < step->n_reduces; i++) {
        struct kineto_reduce *reduce = &step->reduces[i];
        int64_t ready_ns = kineto_stage_ready(work, reduce->ready_ns);
        reduce->ready_ns =
            kineto_stage_max(kineto_stage_min(ready_ns, reduce->begin_ns) - begin_ns, 0);
        reduce->begin_ns = kineto_stage_max(reduce->begin_ns - begin_ns, 0);
        reduce->end_ns = kineto_stage_max(reduce->end_ns - begin_ns, reduce->begin_ns);
    }
}

static enum deft_status kineto_stage_parameters(const struct kineto_stage_work *work,
                                                struct kineto_step *step,
                                                struct deft_error *error) {
    const struct kineto_stage *stage = work->stage;
    const struct kineto_gradient *items = stage->trace->gradients.items;
    uint32_t first = 0;
    uint32_t end = 0;
    while (first < stage->trace->gradients.n && items[first].at_ns < stage->window->backward_ns) {
        first++;
    }
    for (end = first; end < stage->trace->gradients.n && items[end].at_ns <= work->last_ns; end++) {
    }
    step->parameters = calloc((size_t)(end - first) + 1, sizeof(*step->parameters));
    if (step->parameters == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a step");
    }
    for (uint32_t i = first; i < end; i++) {
        struct kineto_parameter *parameter = &step->parameters[step->n_parameters++];
        parameter->elements = items[i].elements;
        parameter->ready_ns =
            kineto_stage_max(kineto_stage_ready(work, items[i].at_ns) - stage->begin_ns, 0);
    }
    return DEFT_OK;
}

static void kineto_stage_figures(const struct kineto_stage_work *work, struct kineto_step *step) {
    const struct kineto_window *window = work->stage->window;
    const uint32_t other = KINETO_STAGE_COMPUTE | KINETO_STAGE_COPY;
    int64_t from_ns = window->begin_ns;
    int64_t to_ns = window->end_ns;
    /* On the host the last all-reduce is launched inside the operator that ends the backward. */
    int64_t last_ns = work->last_ns + 1;
    step->forward_busy_ns =
        kineto_stage_covered(work, KINETO_STAGE_COMPUTE, from_ns, window->backward_ns);
    step->backward_busy_ns =
        kineto_stage_covered(work, KINETO_STAGE_COMPUTE, window->backward_ns, last_ns);
    step->optimizer_busy_ns = kineto_stage_covered(work, KINETO_STAGE_COMPUTE, last_ns, to_ns);
    step->compute_busy_ns = kineto_stage_covered(work, KINETO_STAGE_COMPUTE, from_ns, to_ns);
    step->copy_ns = kineto_stage_covered(work, KINETO_STAGE_COPY, from_ns, to_ns);
    step->communication_ns = kineto_stage_covered(work, KINETO_STAGE_GRADIENT, from_ns, to_ns);
    step->foreign_ns = kineto_stage_covered(work, KINETO_STAGE_FOREIGN, from_ns, to_ns);
    step->exposed_ns = kineto_stage_covered(work, other | KINETO_STAGE_GRADIENT, from_ns, to_ns) -
                       kineto_stage_covered(work, other, from_ns, to_ns);
}

/* Spans that one question may need: all kernels and, on the host, all operators of the window. */
static size_t kineto_stage_room(const struct kineto_stage *stage) {
    const struct kineto_array *operators = &stage->trace->operators;
    size_t n = kineto_steps_first(operators, stage->window->end_ns) -
               kineto_steps_first(operators, stage->window->begin_ns);
    return n + stage->n + 1;
}

/* Longer steps than plans may have come from broken clocks. */
static enum deft_status kineto_stage_check(const struct kineto_stage *stage,
                                           const struct kineto_step *step,
                                           struct deft_error *error) {
    int64_t longest_ns = kineto_stage_max(step->step_ns, step->backward_end_ns);
    for (uint32_t i = 0; i < step->n_reduces; i++) {
        longest_ns = kineto_stage_max(longest_ns, step->reduces[i].end_ns);
    }
    if (longest_ns > DSCHED_MAX_TIME_NS) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "step %" PRIu64 " of '%s' has work that ends %" PRId64
                         " ns after its begin, at most %" PRId64 " ns can be",
                         step->number, stage->trace->path, longest_ns, DSCHED_MAX_TIME_NS);
    }
    return DEFT_OK;
}

enum deft_status kineto_stage_measure(const struct kineto_stage *stage, struct kineto_step *out,
                                      struct deft_error *error) {
    struct kineto_stage_work work = {.stage = stage};
    struct kineto_step step = {.number = stage->window->number,
                               .step_ns = stage->end_ns - stage->begin_ns};
    enum deft_status status = kineto_stage_reduces(&work, &step, error);
    if (status != DEFT_OK || step.n_reduces == 0 || step.step_ns <= 0) {
        step.n_reduces = 0;
        goto done;
    }
    work.spans = calloc(kineto_stage_room(stage), sizeof(*work.spans));
    work.reached = calloc((size_t)stage->n + 1, sizeof(*work.reached));
    if (work.spans == NULL || work.reached == NULL) {
        status = deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a step");
        goto done;
    }
    if (!kineto_stage_backward(&work, &step)) {
        step.n_reduces = 0;
        goto done;
    }
    kineto_stage_offsets(&work, &step);
    status = kineto_stage_parameters(&work, &step, error);
    if (status == DEFT_OK) {
        kineto_stage_figures(&work, &step);
        status = kineto_stage_check(stage, &step, error);
    }
done:
    free(work.spans);
    free(work.reached);
    if (status != DEFT_OK) {
        kineto_step_done(&step);
        return status;
    }
    *out = step;
    return DEFT_OK;
}
