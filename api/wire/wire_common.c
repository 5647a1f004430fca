#include "wire_common.h"

#include <string.h>

const char *const wire_rule_names[] = {"exact", "delayed", "lookahead", "averaged", NULL};
const char *const wire_dtype_names[] = {"f32", "f64", "f16", "bf16", NULL};

static const struct wire_field sample_fields[] = {
    WIRE_ROW_UINT(struct dsched_sample, bytes, "bytes", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_INT(struct dsched_sample, ns, "ns", 1, 0, DSCHED_MAX_TIME_NS),
};
const struct wire_shape wire_sample_shape =
    WIRE_SHAPE(struct dsched_sample, sample_fields, WIRE_TUPLE);

int wire_is_one_of(const char *text, const char *const *names) {
    for (size_t i = 0; names[i] != NULL; i++) {
        if (strcmp(text, names[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

enum deft_status wire_from_dsched(enum dsched_status status, const struct dsched_error *from,
                                  struct deft_error *error) {
    switch (status) {
    case DSCHED_OK:
        return DEFT_OK;
    case DSCHED_NO_MEMORY:
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a plan or profile");
    case DSCHED_LIMIT:
        return deft_fail(error, DEFT_LIMIT, 0, "%s", from->text);
    default:
        return deft_fail(error, DEFT_INVALID, 0, "%s", from->text);
    }
}

void wire_figures_write(const struct dsched_report *report, uint32_t n_links,
                        struct json_out *out) {
    json_out_begin_object(out, "report");
    json_out_int(out, "step_ns", report->step_ns);
    json_out_int(out, "exposed_ns", report->exposed_ns);
    json_out_int(out, "exposed_forward_ns", report->exposed_forward_ns);
    json_out_int(out, "exposed_boundary_ns", report->exposed_boundary_ns);
    json_out_begin_array(out, "link_busy_frac");
    for (uint32_t l = 0; l < n_links && l < DSCHED_MAX_LINKS; l++) {
        json_out_number(out, NULL, report->link_busy_ppm[l] / 1e6);
    }
    json_out_end_array(out);
    json_out_number(out, "updates_per_step", report->updates_per_step_ppm / 1e6);
    json_out_number(out, "mean_delay_steps", report->mean_delay_milli / 1e3);
    json_out_uint(out, "max_delay_steps", report->max_delay);
    json_out_number(out, "ops_per_step", report->ops_per_step_milli / 1e3);
    json_out_uint(out, "pending_bytes", report->pending_bytes);
    json_out_end_object(out);
}
