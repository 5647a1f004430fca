/* deft import as a user would call it: files, pipes, outputs and refusals. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "testing.h"
#include "wire/wire.h"

static const char rank0[] = DEFT_GOLDEN "/traces/ddp_gloo_rank0.json.gz";
static const char rank1[] = DEFT_GOLDEN "/traces/ddp_gloo_rank1.json.gz";
static const char without_sizes[] = DEFT_GOLDEN "/traces/ddp_plain_rank0.json.gz";

static void make_folder(char folder[32]) {
    (void)snprintf(folder, 32, "/tmp/import.XXXXXX");
    assert_non_null(mkdtemp(folder));
}

static void write_file(const char *path, const void *bytes, size_t n_bytes) {
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n_bytes, file), n_bytes);
    assert_int_equal(fclose(file), 0);
}

/* The output of `deft import kineto ...`, which must end with `exit_code`. */
static void run(struct child *child, const char *const *arguments, int exit_code) {
    const char *argv[16] = {DEFT, "import", "kineto"};
    for (size_t i = 0; arguments[i] != NULL; i++) {
        argv[3 + i] = arguments[i];
    }
    child_start(child, argv, NULL, -1, 1);
    int got = child_wait(child);
    if (got != exit_code) {
        fail_msg("'import %s' ended with %d:\n%s", arguments[0], got, child->output);
    }
}

static void people_get_figures_and_sentences(void **unused) {
    (void)unused;
    struct child child;
    const char *const arguments[] = {rank1, rank0, "--name", "mlp", NULL};
    run(&child, arguments, 0);
    assert_non_null(strstr(child.output, "mlp: 10 steps of 2 of 2 ranks, 2 buckets, 10 tensors"));
    assert_non_null(strstr(child.output, "416650  f32"));
    assert_non_null(strstr(child.output, "waiting for peers"));
    assert_non_null(strstr(child.output, "left out: broadcast x 20"));
    assert_non_null(strstr(child.output, "Simulated, the job as it is takes"));
    /* No bar where nobody looks. */
    assert_null(strstr(child.output, "\r"));
    child_free(&child);
}

static void the_profile_is_one_that_other_commands_take(void **unused) {
    (void)unused;
    char folder[32];
    char path[64];
    struct child child;
    struct dsched_profile profile = {0};
    struct deft_error error = {0};
    make_folder(folder);
    (void)snprintf(path, sizeof(path), "%s/job.json", folder);
    write_file(path, "old", 3);
    const char *const arguments[] = {rank0, rank1, "-o", path, "--world", "16", NULL};
    run(&child, arguments, 0);
    child_free(&child);
    const char *const compare[] = {DEFT, "compare", "--json", path, NULL};
    child_start(&child, compare, NULL, -1, 1);
    assert_int_equal(child_wait(&child), 0);
    assert_non_null(strstr(child.output, "\"profile\":\"ddp_gloo_rank0\""));
    child_free(&child);
    FILE *file = fopen(path, "re");
    char text[16384];
    assert_non_null(file);
    size_t n_bytes = fread(text, 1, sizeof(text), file);
    (void)fclose(file);
    if (wire_profile_decode(text, n_bytes, &profile, &error) != DEFT_OK) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(profile.world_size, 16);
    assert_int_equal(profile.n_tensors, 10);
    assert_string_equal(profile.name, "ddp_gloo_rank0");
    dsched_profile_done(&profile);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0); /* nothing else was left there */
}

static void programs_get_every_figure(void **unused) {
    (void)unused;
    static const char *const keys[] = {"\"median\":{\"step_ns\":",
                                       "\"steps\":[{\"number\":",
                                       "\"wait_ns\":",
                                       "\"foreign\":[{\"name\":",
                                       "\"verdict\":{\"bound\":",
                                       "\"coverage\":",
                                       "\"second_link\":{",
                                       "\"follows_ddp\":",
                                       "\"late_rank\":",
                                       "\"notes\":[\"",
                                       "\"schema\":\"deft.profile/1\"",
                                       "\"replay_off\":"};
    struct child child;
    const char *const arguments[] = {rank0, rank1, "--json", NULL};
    run(&child, arguments, 0);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (strstr(child.output, keys[i]) == NULL) {
            fail_msg("%s is not in the JSON", keys[i]);
        }
    }
    child_free(&child);
}

/* A trace of `n_steps` steps of `n_calls` kernels each, and two all-reduces, into a pipe or file.
 */
static void write_large(FILE *file, unsigned n_steps, unsigned n_calls) {
    static const char filler[] = "\"args\":{\"External id\":123456,\"Record function id\":0,"
                                 "\"Concrete Inputs\":[\"\",\"\",\"[1, 1]\"],\"Input Strides\":"
                                 "[[200704,3136,56,1],[64,1,1,1]],\"Ev Idx\":98765}";
    unsigned long correlation = 0;
    unsigned long at_us = 1700000000;
    (void)fputs("{\"traceEvents\":[\n", file);
    for (unsigned s = 0; s < n_steps; s++) {
        unsigned long begin_us = at_us;
        for (unsigned i = 0; i < n_calls; i++, at_us += 10) {
            int is_reduce = i == n_calls / 2 || i == n_calls - 1;
            correlation++;
            (void)fprintf(file,
                          "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::convolution\",\"tid\":"
                          "1,\"ts\":%lu,\"dur\":3,%s},\n"
                          "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\","
                          "\"tid\":1,\"ts\":%lu.5,\"dur\":1,\"args\":{\"correlation\":%lu}},\n"
                          "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"%s\",\"tid\":7,\"ts\":%lu,"
                          "\"dur\":7,\"args\":{\"correlation\":%lu,\"stream\":7}},\n",
                          at_us, filler, at_us, correlation,
                          is_reduce ? "ncclDevKernel_AllReduce_Sum_f32_RING_LL" : "gemm", at_us + 2,
                          correlation);
            if (is_reduce) {
                (void)fprintf(file,
                              "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"record_param_comms\","
                              "\"tid\":1,\"ts\":%lu,\"dur\":2,\"args\":{\"Collective name\":"
                              "\"allreduce\",\"In msg nelems\":1000000,\"dtype\":\"Float\"}},\n",
                              at_us);
            }
        }
        (void)fprintf(file,
                      "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"autograd::engine::"
                      "evaluate_function: C\",\"tid\":1,\"ts\":%lu,\"dur\":%lu},\n"
                      "{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#%u\","
                      "\"tid\":1,\"ts\":%lu,\"dur\":%lu},\n",
                      begin_us + (at_us - begin_us) / 3, at_us - begin_us - (at_us - begin_us) / 3,
                      s, begin_us, at_us - begin_us);
    }
    (void)fputs("{\"ph\":\"i\",\"name\":\"end\"}]}\n", file);
}

/* Two records are kept of a call, of 24 and 40 bytes, which has 450 bytes of text. Arrays double,
 * but untouched memory is none, and what is sorted already is not copied: 80 bytes each are
 * allowed. The program itself has a few MB (the sanitizers' shadow some more, so not there). */
static void memory_follows_what_is_kept(void **unused) {
    (void)unused;
    const unsigned n_steps = 10;
    const unsigned n_calls = DEFT_IMPORT_CALLS;
    int fds[2];
    struct rusage usage = {0};
    int exit_status = 0;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t reader = fork();
    assert_true(reader >= 0);
    if (reader == 0) {
        int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
        (void)dup2(fds[0], STDIN_FILENO);
        (void)dup2(nowhere, STDOUT_FILENO);
        (void)execl(DEFT, "deft", "import", "kineto", "-", (char *)NULL);
        _exit(99);
    }
    (void)close(fds[0]);
    FILE *file = fdopen(fds[1], "w");
    assert_non_null(file);
    write_large(file, n_steps, n_calls);
    long n_bytes = (long)n_steps * n_calls * 450;
    assert_int_equal(fclose(file), 0);
    assert_int_equal(wait4(reader, &exit_status, 0, &usage), reader);
    assert_true(WIFEXITED(exit_status));
    assert_int_equal(WEXITSTATUS(exit_status), 0);
    long bound_kib = 8192 + (long)n_steps * n_calls * 2 * 80 / 1024;
    (void)printf("%ld MB of trace, %ld KiB at most, %ld KiB allowed\n", n_bytes / 1000000,
                 usage.ru_maxrss, bound_kib);
#ifndef DEFT_IMPORT_SANITIZED
    assert_true(usage.ru_maxrss < bound_kib);
#endif
}

/* Ctrl-C while reading: the process ends by the signal, the old file stays, no other is left. */
static void an_interrupt_leaves_no_file(void **unused) {
    (void)unused;
    char folder[32];
    char path[64];
    int fds[2];
    int exit_status = 0;
    make_folder(folder);
    (void)snprintf(path, sizeof(path), "%s/job.json", folder);
    write_file(path, "old", 3);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t reader = fork();
    assert_true(reader >= 0);
    if (reader == 0) {
        (void)dup2(fds[0], STDIN_FILENO);
        (void)execl(DEFT, "deft", "import", "kineto", "-", "-o", path, (char *)NULL);
        _exit(99);
    }
    (void)close(fds[0]);
    assert_int_equal(write(fds[1], "{\"traceEvents\": [", 17), 17);
    assert_int_equal(kill(reader, SIGINT), 0);
    assert_int_equal(waitpid(reader, &exit_status, 0), reader);
    assert_true(WIFSIGNALED(exit_status));
    assert_int_equal(WTERMSIG(exit_status), SIGINT);
    (void)close(fds[1]);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void a_pipe_is_read_and_a_bar_is_shown_when_wanted(void **unused) {
    (void)unused;
    struct child child;
    char command[1024];
    (void)snprintf(command, sizeof(command), "cat '%s' | '%s' import kineto - --progress -o -",
                   rank0, DEFT);
    const char *const argv[] = {"/bin/sh", "-c", command, NULL};
    child_start(&child, argv, NULL, -1, 1);
    assert_int_equal(child_wait(&child), 0);
    assert_non_null(strstr(child.output, "\r"));
    assert_non_null(strstr(child.output, "\"schema\":\"deft.profile/1\""));
    assert_non_null(strstr(child.output, "trace: 5 steps of 1 of 2 ranks"));
    child_free(&child);
}

/* One sentence and the exit status. */
static void refused(const char *const *arguments, int exit_code, const char *words) {
    struct child child;
    run(&child, arguments, exit_code);
    char *end = strchr(child.output, '\n');
    if (strstr(child.output, words) == NULL || strncmp(child.output, "deft: ", 6) != 0 ||
        end == NULL || end[1] != '\0') {
        fail_msg("expected one sentence with '%s', got:\n%s", words, child.output);
    }
    child_free(&child);
}

static void files_that_cannot_be_used(void **unused) {
    (void)unused;
    char folder[32];
    char path[64];
    unsigned char bytes[65536];
    make_folder(folder);
    (void)snprintf(path, sizeof(path), "%s/t.json.gz", folder);
    const char *const one[] = {path, NULL};
    const char *const directory[] = {folder, NULL};
    const char *const plain[] = {without_sizes, NULL};
    const char *const twice[] = {rank0, rank0, NULL};
    const char *const unwritable[] = {rank0, "-o", "/no/such/folder/p", NULL};
    refused(one, 2, "No such file");
    refused(directory, 2, "is a folder");
    refused(plain, 2, "record_shapes=True");
    refused(twice, 2, "both of rank 0");
    refused(unwritable, 1, "cannot be written");
    write_file(path, "", 0);
    refused(one, 2, "is empty");
    write_file(path, "{\"traceEvents\": []}", 19);
    refused(one, 2, "no steps");
    FILE *file = fopen(rank0, "re");
    assert_non_null(file);
    size_t n_bytes = fread(bytes, 1, sizeof(bytes), file);
    (void)fclose(file);
    write_file(path, bytes, n_bytes / 2);
    refused(one, 2, "was cut off");
    write_file(path, bytes, n_bytes - 4);
    refused(one, 2, "was cut off");
    bytes[n_bytes / 2] ^= 0x55;
    write_file(path, bytes, n_bytes);
    const char *const argv[] = {path, NULL};
    refused(argv, 2, "'");
    memset(bytes, '[', sizeof(bytes));
    write_file(path, bytes, sizeof(bytes));
    refused(one, 2, "nests deeper");
    (void)unlink(path);
    (void)rmdir(folder);
}

static void command_lines_that_are_wrong(void **unused) {
    (void)unused;
    const char *const commands[][7] = {
        {DEFT, "import", NULL},
        {DEFT, "import", "kineto", NULL},
        {DEFT, "import", "nsys", rank0, NULL},
        {DEFT, "import", "kineto", "-", "-", NULL},
        {DEFT, "import", "kineto", rank0, "--world", "0", NULL},
        {DEFT, "import", "kineto", rank0, "--json", "-o-", NULL},
    };
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        struct child child;
        child_start(&child, commands[i], NULL, -1, 1);
        assert_int_equal(child_wait(&child), 2);
        assert_true(child.n_output > 0);
        child_free(&child);
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(people_get_figures_and_sentences),
    cmocka_unit_test(the_profile_is_one_that_other_commands_take),
    cmocka_unit_test(programs_get_every_figure),
    cmocka_unit_test(memory_follows_what_is_kept),
    cmocka_unit_test(an_interrupt_leaves_no_file),
    cmocka_unit_test(a_pipe_is_read_and_a_bar_is_shown_when_wanted),
    cmocka_unit_test(files_that_cannot_be_used),
    cmocka_unit_test(command_lines_that_are_wrong),
};
TESTING_MAIN(cases)
