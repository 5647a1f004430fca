#include "import_report.h"

#include <string.h>

#include "cli_table.h"
#include "wire/json_out.h"

/* Rows for people: a screen full. */
#define IMPORT_REPORT_BUCKETS 30u

static void import_report_figures(const struct import_report *report, FILE *stream) {
    const struct kineto_job *job = report->job;
    const struct kineto_step *median = &job->median;
    const struct {
        const char *name;
        int64_t ns;
    } rows[] = {
        {"step", median->step_ns},
        {"forward", report->profile->forward_ns},
        {"backward", report->profile->backward_ns},
        {"optimizer", report->profile->optimizer_ns},
        {job->has_device ? "kernels run" : "operators run", median->compute_busy_ns},
        {"copies", median->copy_ns},
        {"all-reduces", median->communication_ns},
        {"exposed", median->exposed_ns},
        {"other collectives", median->foreign_ns},
        {"waiting for peers", median->wait_ns},
    };
    (void)fprintf(stream, "%s: %u steps of %u of %u ranks, %u buckets, %u tensors\n",
                  report->profile->name, job->n_steps, job->n_ranks, report->profile->world_size,
                  job->n_buckets, report->profile->n_tensors);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[16];
        cli_table_duration(rows[i].ns, text);
        (void)fprintf(stream, "  %-18s %s\n", rows[i].name, text);
    }
}

static void import_report_buckets(const struct kineto_job *job, FILE *stream) {
    static const char *const headings[] = {"bucket", "elements", "dtype",    "ready",
                                           "begin",  "duration", "transfer", "peer wait"};
    const size_t n_columns = sizeof(headings) / sizeof(headings[0]);
    struct cli_table table;
    cli_table_init(&table, n_columns);
    for (size_t i = 0; i < n_columns; i++) {
        cli_table_add(&table, "%s", headings[i]);
    }
    for (uint32_t b = 0; b < job->n_buckets && b < IMPORT_REPORT_BUCKETS; b++) {
        const struct kineto_bucket *bucket = &job->buckets[b];
        const int64_t times_ns[] = {bucket->ready_ns, bucket->begin_ns, bucket->duration_ns,
                                    bucket->transfer_ns, bucket->wait_ns};
        cli_table_add(&table, "%u", b);
        cli_table_add(&table, "%llu", (unsigned long long)bucket->elements);
        cli_table_add(&table, "%s", dsched_dtype_name(bucket->dtype));
        for (size_t i = 0; i < sizeof(times_ns) / sizeof(times_ns[0]); i++) {
            char text[16] = "-";
            if (times_ns[i] >= 0) {
                cli_table_duration(times_ns[i], text);
            }
            cli_table_add(&table, "%s", text);
        }
    }
    cli_table_print(&table, stream);
    cli_table_done(&table);
    if (job->n_buckets > IMPORT_REPORT_BUCKETS) {
        (void)fprintf(stream, "%u more buckets are in the output of --json\n",
                      job->n_buckets - IMPORT_REPORT_BUCKETS);
    }
}

void import_report_text(const struct import_report *report, FILE *stream) {
    const struct kineto_job *job = report->job;
    char words[KINETO_VERDICT_BYTES];
    import_report_figures(report, stream);
    (void)fputc('\n', stream);
    import_report_buckets(job, stream);
    for (uint32_t i = 0; i < job->n_foreign; i++) {
        (void)fprintf(stream, "%s%s x %u (group %s)", i == 0 ? "left out: " : ", ",
                      job->foreign[i].name, job->foreign[i].count, job->foreign[i].group);
    }
    (void)fprintf(stream, "%s\n", job->n_foreign > 0 ? "\n" : "");
    kineto_verdict_text(job, report->verdict, words, sizeof(words));
    (void)fputs(words, stream);
    if (job->n_ranks > 1) {
        (void)fprintf(stream, "Of the ranks, the others wait for rank %u most.\n", job->late_rank);
    }
    for (uint32_t i = 0; i < job->n_notes; i++) {
        (void)fprintf(stream, "note: %s\n", job->notes[i]);
    }
}

static void import_report_json_step(struct json_out *out, const struct kineto_step *step) {
    json_out_int(out, "step_ns", step->step_ns);
    json_out_int(out, "backward_begin_ns", step->backward_begin_ns);
    json_out_int(out, "backward_end_ns", step->backward_end_ns);
    json_out_int(out, "forward_busy_ns", step->forward_busy_ns);
    json_out_int(out, "backward_busy_ns", step->backward_busy_ns);
    json_out_int(out, "optimizer_busy_ns", step->optimizer_busy_ns);
    json_out_int(out, "compute_busy_ns", step->compute_busy_ns);
    json_out_int(out, "copy_ns", step->copy_ns);
    json_out_int(out, "communication_ns", step->communication_ns);
    json_out_int(out, "exposed_ns", step->exposed_ns);
    json_out_int(out, "foreign_ns", step->foreign_ns);
    json_out_int(out, "wait_ns", step->wait_ns);
}

static void import_report_json_wait(struct json_out *out, int64_t wait_ns) {
    if (wait_ns < 0) {
        json_out_null(out, "wait_ns");
    } else {
        json_out_int(out, "wait_ns", wait_ns);
    }
}

static void import_report_json_steps(struct json_out *out, const struct kineto_job *job) {
    json_out_begin_array(out, "steps");
    for (uint32_t i = 0; i < job->n_steps; i++) {
        const struct kineto_step *step = &job->steps[i];
        json_out_begin_object(out, NULL);
        json_out_uint(out, "number", step->number);
        json_out_uint(out, "rank", step->rank);
        import_report_json_step(out, step);
        json_out_begin_array(out, "all_reduces");
        for (uint32_t r = 0; r < step->n_reduces; r++) {
            const struct kineto_reduce *reduce = &step->reduces[r];
            json_out_begin_object(out, NULL);
            json_out_int(out, "ready_ns", reduce->ready_ns);
            json_out_int(out, "begin_ns", reduce->begin_ns);
            json_out_int(out, "duration_ns", reduce->end_ns - reduce->begin_ns);
            import_report_json_wait(out, reduce->wait_ns);
            json_out_end_object(out);
        }
        json_out_end_array(out);
        json_out_end_object(out);
    }
    json_out_end_array(out);
}

static void import_report_json_buckets(struct json_out *out, const struct kineto_job *job) {
    json_out_begin_array(out, "buckets");
    for (uint32_t b = 0; b < job->n_buckets; b++) {
        const struct kineto_bucket *bucket = &job->buckets[b];
        json_out_begin_object(out, NULL);
        json_out_uint(out, "elements", bucket->elements);
        json_out_text(out, "dtype", dsched_dtype_name(bucket->dtype));
        json_out_int(out, "ready_ns", bucket->ready_ns);
        json_out_int(out, "begin_ns", bucket->begin_ns);
        json_out_int(out, "duration_ns", bucket->duration_ns);
        json_out_int(out, "transfer_ns", bucket->transfer_ns);
        import_report_json_wait(out, bucket->wait_ns);
        json_out_end_object(out);
    }
    json_out_end_array(out);
    json_out_begin_array(out, "foreign");
    for (uint32_t i = 0; i < job->n_foreign; i++) {
        json_out_begin_object(out, NULL);
        json_out_text(out, "name", job->foreign[i].name);
        json_out_text(out, "group", job->foreign[i].group);
        json_out_uint(out, "count", job->foreign[i].count);
        json_out_int(out, "total_ns", job->foreign[i].total_ns);
        json_out_end_object(out);
    }
    json_out_end_array(out);
}

static void import_report_json_offer(struct json_out *out, const char *key,
                                     const struct kineto_offer *offer) {
    json_out_begin_object(out, key);
    json_out_text(out, "rule", dsched_rule_name(offer->rule));
    json_out_uint(out, "max_merge", offer->max_merge);
    json_out_uint(out, "max_delay_steps", offer->max_delay);
    json_out_number(out, "mean_delay_steps", offer->mean_delay_milli / 1e3);
    json_out_number(out, "updates_per_step", offer->updates_per_step_ppm / 1e6);
    json_out_int(out, "step_ns", offer->step_ns);
    json_out_number(out, "gain", offer->gain_ppm / 1e6);
    json_out_end_object(out);
}

static void import_report_json_verdict(struct json_out *out, const struct import_report *report) {
    const struct kineto_verdict *verdict = report->verdict;
    char words[KINETO_VERDICT_BYTES];
    kineto_verdict_text(report->job, verdict, words, sizeof(words));
    json_out_begin_object(out, "verdict");
    json_out_text(out, "bound", kineto_bound_name(verdict->bound));
    json_out_number(out, "busy", verdict->busy_ppm / 1e6);
    json_out_number(out, "exposed", verdict->exposed_ppm / 1e6);
    json_out_number(out, "coverage", verdict->coverage_ppm / 1e6);
    json_out_uint(out, "merge", verdict->merge);
    json_out_uint(out, "second_link_merge", verdict->second_merge);
    json_out_number(out, "ceiling", verdict->ceiling_ppm / 1e6);
    json_out_bool(out, "follows_ddp", verdict->follows_ddp);
    json_out_int(out, "replay_step_ns", verdict->replay_step_ns);
    json_out_number(out, "replay_off", (double)verdict->replay_off_ppm / 1e6);
    json_out_text(out, "exact_policy", verdict->exact_policy);
    json_out_int(out, "exact_step_ns", verdict->exact_step_ns);
    import_report_json_offer(out, "best", &verdict->best);
    import_report_json_offer(out, "second_link", &verdict->second);
    json_out_text(out, "text", words);
    json_out_end_object(out);
}

enum deft_status import_report_json(const struct import_report *report, const char *profile_json,
                                    char **out, struct deft_error *error) {
    const struct kineto_job *job = report->job;
    struct json_out json = {0};
    json_out_begin_object(&json, NULL);
    json_out_text(&json, "name", report->profile->name);
    json_out_uint(&json, "world_size", report->profile->world_size);
    json_out_uint(&json, "ranks", job->n_ranks);
    json_out_bool(&json, "device", job->has_device);
    json_out_uint(&json, "events", report->n_events);
    json_out_uint(&json, "records", report->n_records);
    json_out_uint(&json, "left_out_steps", job->n_left_out);
    json_out_begin_object(&json, "median");
    import_report_json_step(&json, &job->median);
    json_out_end_object(&json);
    import_report_json_buckets(&json, job);
    import_report_json_steps(&json, job);
    if (job->n_ranks > 1) {
        json_out_uint(&json, "late_rank", job->late_rank);
    }
    import_report_json_verdict(&json, report);
    json_out_begin_array(&json, "notes");
    for (uint32_t i = 0; i < job->n_notes; i++) {
        json_out_text(&json, NULL, job->notes[i]);
    }
    json_out_end_array(&json);
    json_out_raw(&json, "profile", profile_json);
    json_out_end_object(&json);
    return json_out_finish(&json, out, error);
}
