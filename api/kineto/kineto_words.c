/* The verdict's sentences. */
#include "kineto_verdict.h"

#include <stdarg.h>
#include <stdio.h>

/* A gain of less is not worth a sentence that praises it. */
#define KINETO_WORDS_GAIN_PPM 1020000u
/* From this difference on a second link is told to gain more. */
#define KINETO_WORDS_BETTER_PPM 10000u

struct kineto_words {
    char *text;
    size_t capacity;
    size_t n;
};

static void kineto_words_add(struct kineto_words *words, const char *format, ...) DEFT_PRINTF(2, 3);
static void kineto_words_add(struct kineto_words *words, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(words->text + words->n, words->capacity - words->n, format, arguments);
    va_end(arguments);
    if (n > 0) {
        size_t left = words->capacity - words->n - 1;
        words->n += (size_t)n < left ? (size_t)n : left;
    }
}

static double kineto_words_ms(int64_t ns) {
    return (double)ns / 1e6;
}

static void kineto_words_bound(struct kineto_words *words, const struct kineto_job *job,
                               const struct kineto_verdict *verdict) {
    const struct kineto_step *median = &job->median;
    double step_ms = kineto_words_ms(median->step_ns);
    double busy_ms = kineto_words_ms(median->compute_busy_ns);
    switch (verdict->bound) {
    case KINETO_BOUND_HOST:
        kineto_words_add(words,
                         "The job is host-bound: kernels run %.1f ms of a step of %.1f ms, for the "
                         "rest the device waits for the program that feeds it. Communication "
                         "scheduling cannot help here.\n",
                         busy_ms, step_ms);
        break;
    case KINETO_BOUND_COMMUNICATION:
        kineto_words_add(words,
                         "The job is communication-bound: all-reduces take %.1f ms against %.1f ms "
                         "of compute (coverage rate %.2f), and %.1f ms of a step of %.1f ms are "
                         "exposed.\n",
                         kineto_words_ms(median->communication_ns), busy_ms,
                         verdict->coverage_ppm / 1e6, kineto_words_ms(median->exposed_ns), step_ms);
        break;
    default:
        kineto_words_add(words,
                         "The job is compute-bound: of a step of %.1f ms, %.1f ms compute and only "
                         "%.1f ms of communication are exposed (coverage rate %.2f). Its schedule "
                         "has little left to gain.\n",
                         step_ms, busy_ms, kineto_words_ms(median->exposed_ns),
                         verdict->coverage_ppm / 1e6);
        break;
    }
}

static void kineto_words_merge(struct kineto_words *words, const struct kineto_verdict *verdict) {
    if (verdict->merge > 1) {
        kineto_words_add(words,
                         "With k = %u iterations per all-reduce the step is bounded by compute, up "
                         "to %.2fx faster, statistics permitting; with a second link at half the "
                         "speed k = %u suffices.\n",
                         verdict->merge, verdict->ceiling_ppm / 1e6, verdict->second_merge);
    } else {
        kineto_words_add(words,
                         "All communication fits beside the compute of each iteration; hiding all "
                         "of it is at most %.2fx faster.\n",
                         verdict->ceiling_ppm / 1e6);
    }
}

static void kineto_words_offer(struct kineto_words *words, const char *lead,
                               const struct kineto_offer *offer) {
    kineto_words_add(words, "%s a step of %.2f ms, %.2fx: ", lead, kineto_words_ms(offer->step_ns),
                     offer->gain_ppm / 1e6);
    if (offer->rule == DSCHED_EXACT) {
        kineto_words_add(words, "the rule exact, at no statistical price.\n");
        return;
    }
    kineto_words_add(words, "the rule %s, ", dsched_rule_name(offer->rule));
    if (offer->max_merge > 1) {
        kineto_words_add(words, "up to %u iterations per update (%.2f updates per step), ",
                         offer->max_merge, offer->updates_per_step_ppm / 1e6);
    } else {
        kineto_words_add(words, "an update per step, ");
    }
    kineto_words_add(words, "at most %u step%s late (%.2f on average).\n", offer->max_delay,
                     offer->max_delay == 1 ? "" : "s", offer->mean_delay_milli / 1e3);
}

void kineto_verdict_text(const struct kineto_job *job, const struct kineto_verdict *verdict,
                         char *out, size_t capacity) {
    struct kineto_words words = {.text = out, .capacity = capacity};
    if (capacity == 0) {
        return;
    }
    out[0] = '\0';
    kineto_words_bound(&words, job, verdict);
    if (verdict->bound == KINETO_BOUND_HOST) {
        return;
    }
    kineto_words_merge(&words, verdict);
    kineto_words_add(&words,
                     "Simulated, the job as it is takes %.2f ms (%+.1f %% of what was measured); "
                     "the fastest exact policy, %s, %.2f ms.\n",
                     kineto_words_ms(verdict->replay_step_ns),
                     (double)verdict->replay_off_ppm / 1e4, verdict->exact_policy,
                     kineto_words_ms(verdict->exact_step_ns));
    if (verdict->replay_off_ppm > KINETO_REPLAY_OFF_PPM ||
        verdict->replay_off_ppm < -KINETO_REPLAY_OFF_PPM) {
        kineto_words_add(&words, "The simulation is far off what was measured (steps that differ, "
                                 "ranks that wait): take the gains below as rough.\n");
    }
    if (verdict->best.gain_ppm < KINETO_WORDS_GAIN_PPM) {
        kineto_words_add(&words, "No plan gains 2 %% or more over that.\n");
    } else {
        kineto_words_offer(&words, "The best plan predicts", &verdict->best);
    }
    if (verdict->second.max_merge < verdict->best.max_merge ||
        verdict->second.gain_ppm > verdict->best.gain_ppm + KINETO_WORDS_BETTER_PPM) {
        kineto_words_offer(&words, "With a second link at half the speed the best one predicts",
                           &verdict->second);
    }
}
