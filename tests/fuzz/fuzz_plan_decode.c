/* Whatever decodes encodes to the same bytes, and may be validated against any table. */
#include <string.h>

#include <dsched/plan.h>

#include "fuzzing.h"

static void validate(const struct dsched_plan *plan) {
    const uint64_t elements[] = {1000, 0, 24, 3000000};
    const uint8_t dtypes[] = {DSCHED_F32, DSCHED_F64, DSCHED_F16, DSCHED_F32};
    const struct dsched_table table = {.n_tensors = 4, .elements = elements, .dtypes = dtypes};
    struct dsched_error error = {.text = ""};
    if (dsched_plan_validate(plan, &table, DSCHED_MAX_LINKS, &error) == DSCHED_OK) {
        fuzzing_require(dsched_plan_slots(plan) >= 1, "a valid plan has a slot");
        fuzzing_require(dsched_plan_pending_bytes(plan, &table) >= dsched_table_bytes(&table),
                        "a valid plan holds at least one copy");
    } else {
        fuzzing_require(strlen(error.text) > 0, "a refusal says why");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dsched_error error = {.text = ""};
    struct dsched_plan plan;
    if (dsched_plan_decode(data, size, &plan, &error) != DSCHED_OK) {
        fuzzing_require(strlen(error.text) > 0, "a refusal says why");
        return 0;
    }
    uint8_t *again = malloc(size);
    fuzzing_require(again != NULL, "memory");
    fuzzing_require(dsched_plan_encode(&plan, again, size) == size, "the size is the same");
    fuzzing_require(memcmp(data, again, size) == 0, "the bytes are the same");
    validate(&plan);
    free(again);
    dsched_plan_done(&plan);
    return 0;
}
