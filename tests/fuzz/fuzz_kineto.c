/* A trace from anybody, in blocks as long as its first byte says.
 *
 * It is refused with a sentence, or it makes figures in order and a profile that can be planned
 * with. */
#include "fuzzing.h"
#include "kineto/kineto.h"
#include "kineto/kineto_reader.h"
#include "kineto/kineto_trace.h"

/* Enough for every input of the size that is searched. */
#define FUZZ_KINETO_RECORDS 65536u

static enum deft_status fuzz_kineto_read(const uint8_t *data, size_t size,
                                         struct kineto_trace *trace, struct deft_error *error) {
    struct kineto_reader *reader = NULL;
    size_t block = size > 0 && data[0] > 0 ? data[0] : 1;
    enum deft_status status = kineto_reader_create(trace, &reader, error);
    for (size_t at = 0; at < size && status == DEFT_OK; at += block) {
        size_t n = size - at < block ? size - at : block;
        status = kineto_reader_feed(reader, data + at, n, error);
    }
    if (status == DEFT_OK) {
        status = kineto_reader_finish(reader, error);
    }
    kineto_reader_destroy(reader);
    return status;
}

static void fuzz_kineto_check(const struct kineto_job *job) {
    fuzzing_require(job->n_steps > 0 && job->n_buckets > 0, "a job has steps and buckets");
    for (uint32_t s = 0; s < job->n_steps; s++) {
        const struct kineto_step *step = &job->steps[s];
        fuzzing_require(step->step_ns > 0, "a step takes time");
        fuzzing_require(step->n_reduces == job->n_buckets, "all steps have the same buckets");
        fuzzing_require(step->exposed_ns >= 0 && step->exposed_ns <= step->communication_ns,
                        "exposed communication is a part of all");
        for (uint32_t r = 0; r < step->n_reduces; r++) {
            const struct kineto_reduce *reduce = &step->reduces[r];
            fuzzing_require(reduce->begin_ns >= 0 && reduce->begin_ns <= reduce->end_ns,
                            "an all-reduce begins before it ends");
            fuzzing_require(reduce->ready_ns >= 0 && reduce->ready_ns <= reduce->begin_ns,
                            "an all-reduce begins when it is ready");
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct kineto_trace *trace = NULL;
    struct kineto_job job = {0};
    struct dsched_profile profile = {0};
    struct dsched_error why;
    struct deft_error error = {0};
    enum deft_status status = kineto_trace_create("fuzz", FUZZ_KINETO_RECORDS, &trace, &error);
    if (status == DEFT_OK) {
        status = fuzz_kineto_read(data, size, trace, &error);
    }
    if (status == DEFT_OK) {
        status = kineto_job_init(&job, &trace, 1, &error);
    }
    if (status == DEFT_OK) {
        fuzz_kineto_check(&job);
        status = kineto_profile(&job, "fuzz", 0, &profile, &error);
    }
    if (status == DEFT_OK) {
        fuzzing_require(dsched_profile_check(&profile, &why) == DSCHED_OK, "a profile is valid");
    } else {
        fuzzing_require(error.text[0] != '\0', "a refusal has a sentence");
    }
    dsched_profile_done(&profile);
    kineto_job_done(&job);
    kineto_trace_destroy(trace);
    return 0;
}
