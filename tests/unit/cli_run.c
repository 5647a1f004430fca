/* The parts of `deft run` that need no process: lines, names, the verdict. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli_table.h"
#include "run_options.h"
#include "run_output.h"
#include "run_verdict.h"
#include "testing.h"

/* What comes out for `in`, fed in chunks of at most `chunk`. */
static void feed(const char *in, size_t n_in, size_t chunk, int is_terminal, char *out,
                 size_t capacity_bytes) {
    int fds[2];
    int bar_shown = 0;
    struct run_output output;
    struct run_stream *stream = calloc(1, sizeof(*stream));
    assert_non_null(stream);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    (void)fcntl(fds[0], F_SETPIPE_SZ, 1 << 20);
    run_output_init(&output, fds[1], &bar_shown);
    output.is_terminal = is_terminal;
    stream->output = &output;
    for (size_t at = 0; at < n_in; at += chunk) {
        run_output_feed(stream, in + at, chunk < n_in - at ? chunk : n_in - at);
    }
    run_output_end(stream);
    run_output_settle(&output);
    (void)close(fds[1]);
    size_t n = 0;
    ssize_t got;
    while ((got = read(fds[0], out + n, capacity_bytes - 1 - n)) > 0) {
        n += (size_t)got;
    }
    out[n] = '\0';
    (void)close(fds[0]);
    free(stream);
}

static void lines_do_not_depend_on_chunks(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    static const char letters[] = "ab \n\r";
    char whole[8192];
    char pieces[8192];
    for (int round = 0; round < 300; round++) {
        char in[300];
        for (size_t i = 0; i < sizeof(in); i++) {
            in[i] = letters[testing_random_below(&state, 5)];
        }
        feed(in, sizeof(in), sizeof(in), round % 2, whole, sizeof(whole));
        feed(in, sizeof(in), 1 + testing_random_below(&state, 7), round % 2, pieces,
             sizeof(pieces));
        assert_string_equal(whole, pieces);
    }
}

static void carriage_returns_start_anew(void **unused) {
    (void)unused;
    char out[512];
    static const char in[] = "plain\r\n10 %\r20 %\rdone\nlast";
    feed(in, strlen(in), 100, 0, out, sizeof(out));
    assert_string_equal(out, "[0] plain\n[0] done\n[0] last\n");
    /* On a terminal rank 0's bar is shown as it goes. */
    feed(in, strlen(in), 100, 1, out, sizeof(out));
    assert_string_equal(out, "[0] plain\n[0] 10 %\r\033[K[0] 20 %\r\033[K[0] done\n[0] last\n");
}

static void long_lines_come_in_pieces(void **unused) {
    (void)unused;
    static char in[3 * RUN_OUTPUT_LINE_BYTES + 5];
    static char out[2 * sizeof(in)];
    size_t n_lines = 0;
    size_t n_x = 0;
    memset(in, 'x', sizeof(in));
    feed(in, sizeof(in), 1000, 0, out, sizeof(out));
    for (size_t i = 0; out[i] != '\0'; i++) {
        n_lines += out[i] == '\n';
        n_x += out[i] == 'x';
    }
    assert_int_equal(n_lines, 4);
    assert_int_equal(n_x, sizeof(in));
}

static void jobs_are_named_after_what_runs(void **unused) {
    (void)unused;
    static const char *const commands[][4] = {
        {"python3.11", "-u", "dir/train mnist.py", NULL},
        {"./deft-train", "--epochs", "3", NULL},
        {"bash", "-x", NULL, NULL},
        {"/", NULL, NULL, NULL},
    };
    static const char *const names[] = {"train_mnist", "deft-train", "bash", "_"};
    struct run_options options = {0};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        options.command = commands[i];
        assert_int_equal(run_options_name(&options, NULL, NULL), DEFT_OK);
        assert_string_equal(options.name, names[i]);
        assert_int_equal(strlen(options.job), strlen(names[i]) + 5);
        assert_memory_equal(options.job, names[i], strlen(names[i]));
    }
    assert_int_equal(run_options_name(&options, "36199_0", NULL), DEFT_OK);
    assert_string_equal(options.job, "36199_0");
    assert_int_equal(run_options_name(&options, "", NULL), DEFT_INVALID);
    assert_int_equal(run_options_name(&options, "two words", NULL), DEFT_INVALID);
}

static struct wire_job make_job(const char *mode) {
    struct wire_job job = {.id = "mnist-3f2a",
                           .iterations = 100,
                           .exact_step_ns = 212400000,
                           .step_ns = 212400000,
                           .gain = (double)NAN,
                           .predicted_gain = (double)NAN};
    (void)snprintf(job.mode, sizeof(job.mode), "%s", mode);
    return job;
}

static void the_verdict_says_what_happened(void **unused) {
    (void)unused;
    char text[RUN_VERDICT_BYTES];
    struct wire_job job = make_job("auto");
    job.plan_seq = 2;
    job.step_ns = 97100000;
    job.gain = 2.187;
    job.merge = 2;
    job.n_switches = 2;
    (void)snprintf(job.rule, sizeof(job.rule), "averaged");
    run_verdict_text(&job, 41, text);
    assert_string_equal(text, "mnist-3f2a: step 212.4 -> 97.1 ms (2.19x), averaged k=2 since "
                              "iteration 41, 2 switches, 0 roll-backs");
    job = make_job("observe");
    job.predicted_gain = 2.1;
    job.predicted_step_ns = 100000000;
    run_verdict_text(&job, 0, text);
    assert_string_equal(text, "mnist-3f2a: step 212.4 ms, would gain 2.10x (observe mode: nothing "
                              "was changed)");
    job = make_job("off");
    run_verdict_text(&job, 0, text);
    assert_string_equal(text, "mnist-3f2a: step 212.4 ms, mode off: nothing was tuned");
    job = make_job("auto");
    (void)snprintf(job.decision, sizeof(job.decision), "no plan gains 3 %%");
    run_verdict_text(&job, 0, text);
    assert_string_equal(
        text, "mnist-3f2a: step 212.4 ms, the built-in exact plan ran: no plan gains 3 %");
    job = make_job("auto");
    job.exact_step_ns = 0;
    job.step_ns = 0;
    run_verdict_text(&job, 0, text);
    assert_string_equal(text, "mnist-3f2a: 100 iterations, the built-in exact plan ran: the job "
                              "ended before there was enough to decide on");
}

static void figures_are_readable(void **unused) {
    (void)unused;
    char text[16];
    static const struct {
        int64_t ns;
        const char *text;
    } durations[] = {
        {0, "-"}, {1500, "1.5 us"}, {97100000, "97.1 ms"}, {INT64_C(20000000000), "20.00 s"}};
    for (size_t i = 0; i < sizeof(durations) / sizeof(durations[0]); i++) {
        cli_table_duration(durations[i].ns, text);
        assert_string_equal(text, durations[i].text);
    }
    cli_table_bytes(999, text);
    assert_string_equal(text, "999 B");
    cli_table_bytes(42000000, text);
    assert_string_equal(text, "42.0 MB");
    cli_table_bytes(UINT64_MAX, text);
    assert_string_equal(text, "18.4 EB");
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(lines_do_not_depend_on_chunks),
    cmocka_unit_test(carriage_returns_start_anew),
    cmocka_unit_test(long_lines_come_in_pieces),
    cmocka_unit_test(jobs_are_named_after_what_runs),
    cmocka_unit_test(the_verdict_says_what_happened),
    cmocka_unit_test(figures_are_readable),
};
TESTING_MAIN(cases)
