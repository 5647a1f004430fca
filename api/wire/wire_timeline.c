#include "wire_common.h"

#include <inttypes.h>

#define TIMELINE_SCHEMA "deft.timeline/1"

/* Of one all-reduce of everything on the first link, as the planner has it. */
static double coverage_of(const struct dsched_profile *profile) {
    int64_t stages_ns = profile->forward_ns + profile->backward_ns;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < profile->n_tensors; i++) {
        bytes += profile->tensors[i].elements * dsched_dtype_bytes(profile->tensors[i].dtype);
    }
    return (double)dsched_link_ns(&profile->links[0], bytes) / (double)stages_ns;
}

/* What every reader of JSON keeps exactly. */
static int is_exact(int64_t ns) {
    return ns > -(int64_t)WIRE_MAX_INTEGER && ns < (int64_t)WIRE_MAX_INTEGER;
}

static enum deft_status write_stages(const struct dsched_window *window, struct json_out *out,
                                     struct deft_error *error) {
    static const char *const lanes[] = {"forward", "backward", "optimizer", "exposed"};
    json_out_begin_array(out, "stages");
    for (uint32_t i = 0; i < window->n_spans; i++) {
        const struct dsched_span *span = &window->spans[i];
        int64_t begin_ns = span->begin_ns - window->begin_ns;
        int64_t end_ns = span->end_ns - window->begin_ns;
        if (!is_exact(begin_ns) || !is_exact(end_ns)) {
            return deft_fail(error, DEFT_LIMIT, 0,
                             "a span ends %" PRId64 " ns after the picture's begin, but JSON "
                             "keeps integers below 2^53 only",
                             end_ns);
        }
        if (span->lane < DSCHED_LANE_LINK) {
            json_out_begin_array(out, NULL);
            json_out_text(out, NULL, lanes[span->lane]);
            json_out_uint(out, NULL, span->iteration);
            json_out_int(out, NULL, begin_ns);
            json_out_int(out, NULL, end_ns);
            json_out_end_array(out);
        }
    }
    json_out_end_array(out);
    return DEFT_OK;
}

static void write_transfers(const struct dsched_window *window, struct json_out *out) {
    json_out_begin_array(out, "transfers");
    for (uint32_t i = 0; i < window->n_spans; i++) {
        const struct dsched_span *span = &window->spans[i];
        if (span->lane < DSCHED_LANE_LINK) {
            continue;
        }
        json_out_begin_array(out, NULL);
        json_out_uint(out, NULL, span->link);
        json_out_uint(out, NULL, span->generation);
        json_out_uint(out, NULL, span->bucket);
        if (span->bytes > 0) {
            json_out_uint(out, NULL, span->bytes);
        } else {
            json_out_null(out, NULL);
        }
        json_out_int(out, NULL, span->begin_ns - window->begin_ns);
        json_out_int(out, NULL, span->end_ns - window->begin_ns);
        json_out_end_array(out);
    }
    json_out_end_array(out);
}

static enum deft_status write_window(const struct dsched_window *window, struct json_out *out,
                                     struct deft_error *error) {
    json_out_begin_object(out, "window");
    json_out_uint(out, "first_iteration", window->first_iteration);
    json_out_uint(out, "n_iterations", window->n_iterations);
    json_out_int(out, "span_ns", window->end_ns - window->begin_ns);
    json_out_bool(out, "cut", window->is_cut);
    enum deft_status status = write_stages(window, out, error);
    if (status == DEFT_OK) {
        write_transfers(window, out);
        json_out_end_object(out);
    }
    return status;
}

enum deft_status wire_timeline_encode(const struct wire_timeline *in, char **out,
                                      struct deft_error *error) {
    const struct dsched_profile *profile = in->profile;
    const char *rule = dsched_rule_name(in->outcome->rule);
    struct json_out text = {0};
    enum deft_status status = DEFT_OK;
    json_out_begin_object(&text, NULL);
    json_out_text(&text, "schema", TIMELINE_SCHEMA);
    json_out_text(&text, "profile", profile->name);
    json_out_uint(&text, "world_size", profile->world_size);
    json_out_text(&text, "policy", in->policy);
    json_out_text(&text, "rule", rule != NULL ? rule : "unknown");
    json_out_text(&text, "note", in->outcome->note);
    json_out_int(&text, "compute_ns",
                 profile->forward_ns + profile->backward_ns + profile->optimizer_ns);
    json_out_number(&text, "coverage", coverage_of(profile));
    json_out_begin_array(&text, "links");
    for (uint32_t l = 0; l < profile->n_links; l++) {
        json_out_text(&text, NULL, profile->links[l].name);
    }
    json_out_end_array(&text);
    wire_figures_write(&in->outcome->report, profile->n_links, &text);
    if (in->window != NULL) {
        status = write_window(in->window, &text, error);
    }
    if (status != DEFT_OK) {
        json_out_done(&text);
        return status;
    }
    json_out_end_object(&text);
    return json_out_finish(&text, out, error);
}
