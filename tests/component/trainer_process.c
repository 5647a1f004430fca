/* deft-train as its users start it: exit statuses, sentences, results; alone and as two ranks. */
#include "testing.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#define N_PIXELS     784u
#define N_TRAIN      2000u
#define N_TEST       200u
#define TEXT_BYTES   65536u /* more than deft-train writes in any case here */
#define MAX_ARGS     32u
#define FOLDER_BYTES 64u

struct child {
    pid_t pid;
    int out;
    int err;
    char out_text[TEXT_BYTES];
    char err_text[TEXT_BYTES];
};

/* --- samples ---------------------------------------------------------------------------------- */

static gzFile open_idx(const char *folder, const char *name, const uint32_t *header,
                       uint32_t n_header) {
    char path[256];
    gzFile gz;
    (void)snprintf(path, sizeof(path), "%s/%s.gz", folder, name);
    gz = gzopen(path, "wb1");
    assert_non_null(gz);
    for (uint32_t i = 0; i < n_header; i++) {
        uint32_t v = htonl(header[i]);
        assert_int_equal(gzwrite(gz, &v, sizeof(v)), sizeof(v));
    }
    return gz;
}

/* Ten easy classes: noise, and a bright band whose place is the class. */
static void write_samples(const char *folder, const char *prefix, uint32_t n, uint64_t *random) {
    uint32_t images_header[] = {0x803, n, 28, 28};
    uint32_t labels_header[] = {0x801, n};
    char name[64];
    gzFile images;
    gzFile labels;

    (void)snprintf(name, sizeof(name), "%s-images-idx3-ubyte", prefix);
    images = open_idx(folder, name, images_header, 4);
    (void)snprintf(name, sizeof(name), "%s-labels-idx1-ubyte", prefix);
    labels = open_idx(folder, name, labels_header, 2);
    for (uint32_t i = 0; i < n; i++) {
        uint8_t pixels[N_PIXELS];
        uint8_t label = (uint8_t)testing_random_below(random, 10);
        for (uint32_t p = 0; p < N_PIXELS; p++) {
            uint32_t noise = (uint32_t)testing_random_below(random, 100);
            pixels[p] = (uint8_t)(noise + (p / 78 == label ? 120 : 0));
        }
        assert_int_equal(gzwrite(images, pixels, sizeof(pixels)), sizeof(pixels));
        assert_int_equal(gzwrite(labels, &label, 1), 1);
    }
    assert_int_equal(gzclose(images), Z_OK);
    assert_int_equal(gzclose(labels), Z_OK);
}

static void create_samples(char *out_folder) {
    uint64_t random = testing_seed();
    (void)snprintf(out_folder, FOLDER_BYTES, "/tmp/trainer_process-XXXXXX");
    assert_non_null(mkdtemp(out_folder));
    write_samples(out_folder, "train", N_TRAIN, &random);
    write_samples(out_folder, "t10k", N_TEST, &random);
}

static void remove_samples(const char *folder) {
    static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                        "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
    char path[256];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s.gz", folder, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(folder);
}

/* --- processes -------------------------------------------------------------------------------- */

/* `arguments` end with NULL. */
static void start(struct child *child, const char *const *arguments) {
    static char program[] = DEFT_TRAIN;
    char *argv[MAX_ARGS + 2] = {program};
    posix_spawn_file_actions_t actions;
    int out[2];
    int err[2];
    size_t n = 1;

    for (; *arguments != NULL; arguments++) {
        assert_true(n <= MAX_ARGS);
        argv[n] = strdup(*arguments);
        assert_non_null(argv[n]);
        n++;
    }
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO), 0);
    assert_int_equal(posix_spawn(&child->pid, DEFT_TRAIN, &actions, NULL, argv, environ), 0);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(out[1]);
    (void)close(err[1]);
    child->out = out[0];
    child->err = err[0];
    child->out_text[0] = '\0';
    child->err_text[0] = '\0';
    for (size_t i = 1; i < n; i++) {
        free(argv[i]);
    }
}

/* Appends what `fd` says to `text`, until its end or until `until` (may be NULL) is in the text. */
static void listen_to(int fd, char *text, const char *until) {
    size_t n_bytes = strlen(text);
    for (;;) {
        ssize_t n = read(fd, text + n_bytes, TEXT_BYTES - 1 - n_bytes);
        if (n <= 0) {
            return;
        }
        n_bytes += (size_t)n;
        text[n_bytes] = '\0';
        assert_true(n_bytes < TEXT_BYTES - 1);
        if (until != NULL && strstr(text, until) != NULL) {
            return;
        }
    }
}

/* Exit status, or 1000 + the signal that ended it. */
static int finish(struct child *child) {
    int status = 0;
    listen_to(child->out, child->out_text, NULL);
    listen_to(child->err, child->err_text, NULL);
    assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
    (void)close(child->out);
    (void)close(child->err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int run(struct child *child, const char *const *arguments) {
    start(child, arguments);
    return finish(child);
}

static void expect(const char *text, const char *part) {
    if (strstr(text, part) == NULL) {
        fail_msg("'%s' is not in '%s'", part, text);
    }
}

/* The number behind "name": in the JSON of the last line. */
static double json_number(const char *text, const char *name) {
    char key[64];
    const char *at = strstr(text, "{\"sync\"");
    assert_non_null(at);
    (void)snprintf(key, sizeof(key), "\"%s\":", name);
    at = strstr(at, key);
    if (at == NULL) {
        fail_msg("no %s in '%s'", key, text);
        return 0.0;
    }
    return strtod(at + strlen(key), NULL);
}

static void json_text(const char *text, const char *name, char *out, size_t capacity) {
    char key[64];
    const char *at;
    (void)snprintf(key, sizeof(key), "\"%s\":\"", name);
    at = strstr(text, key);
    if (at == NULL) {
        fail_msg("no %s in '%s'", key, text);
        return;
    }
    at += strlen(key);
    (void)snprintf(out, capacity, "%.*s", (int)strcspn(at, "\""), at);
}

/* --- alone ------------------------------------------------------------------------------------ */

static void wrong_options_are_told_in_a_sentence(void **state) {
    static const struct {
        const char *arguments[4];
        const char *says;
    } cases[] = {
        {{"--epochs", "0"}, "--epochs is '0', but a whole number in 1..100000"},
        {{"--batch", "65537"}, "1..65536"},
        {{"--width", "1e3"}, "--width is '1e3'"},
        {{"--depth", "-1"}, "--depth is '-1'"},
        {{"--lr", "0"}, "--lr is '0', but a number from above 0"},
        {{"--lr", "nan"}, "--lr is 'nan'"},
        {{"--momentum", "1"}, "to below 1"},
        {{"--weight-decay", "2"}, "--weight-decay is '2'"},
        {{"--optimizer", "adam"}, "sgd or adamw"},
        {{"--schedule", "linear"}, "constant or cosine"},
        {{"--sync", "fast"}, "deft or none"},
        {{"--seed", "99999999999999999999"}, "--seed is"},
        {{"--threads", "257"}, "1..256"},
        {{"--sync", "none", "--rule-free"}, "--rule-free"},
        {{"--device", "gpu"}, "--device is 'gpu', but cpu, cuda or cuda:NUMBER"},
        {{"--device", "cuda:"}, "--device is 'cuda:'"},
        {{"--device", "cuda:1x"}, "--device is 'cuda:1x'"},
        {{"--sync", "none", "--device", "cuda"}, "--device cuda is for libdeft"},
        {{"fast"}, "'fast' is not an option"},
    };
    static struct child child;
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *arguments[5] = {NULL};
        memcpy(arguments, cases[i].arguments, sizeof(cases[i].arguments));
        assert_int_equal(run(&child, arguments), 2);
        expect(child.err_text, cases[i].says);
        assert_string_equal(child.out_text, "");
    }
}

static void missing_files_are_told(void **state) {
    static const char *const arguments[] = {"--sync", "none", "--data", "/nonexistent", NULL};
    static struct child child;
    (void)state;
    assert_int_equal(run(&child, arguments), 1);
    expect(child.err_text, "/nonexistent/train-images-idx3-ubyte.gz");
    expect(child.err_text, "dataset-fashion-mnist");
}

/* Before anything is read, so that no training is lost. */
static void results_that_lead_nowhere_are_told_first(void **state) {
    static const char *const options[] = {"--json=/nonexistent/result", "--steps=/nonexistent/all"};
    static struct child child;
    (void)state;
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        const char *arguments[] = {"--sync", "none", "--data", "/none", options[i], NULL};
        assert_int_equal(run(&child, arguments), 1);
        expect(child.err_text, strchr(options[i], '=') + 1);
        expect(child.err_text, "cannot be written: No such file or directory");
    }
}

static void too_few_samples_are_told(void **state) {
    char folder[FOLDER_BYTES];
    const char *arguments[] = {"--sync", "none", "--data", folder, "--batch", "2001", NULL};
    static struct child child;
    (void)state;
    create_samples(folder);
    assert_int_equal(run(&child, arguments), 1);
    expect(child.err_text, "2001");
    expect(child.err_text, "2000");
    remove_samples(folder);
}

/* Whether this build has CUDA or not. */
static void missing_devices_are_told(void **state) {
    char folder[FOLDER_BYTES];
    const char *arguments[] = {"--data", folder, "--device", "cuda:3", NULL};
    static struct child child;
    (void)state;
    create_samples(folder);
    (void)setenv("DEFT_CUDART", "/nonexistent", 1);
    assert_int_equal(run(&child, arguments), 1);
    expect(child.err_text, "deft-train: rank 0: ");
    expect(child.err_text, "CUDA");
    assert_ptr_equal(strchr(child.err_text, '\n'), child.err_text + strlen(child.err_text) - 1);
    remove_samples(folder);
}

static void what_is_not_used_is_told_once(void **state) {
    char folder[FOLDER_BYTES];
    const char *arguments[] = {"--data",  folder, "--device",           "cpu", "--batch", "50",
                               "--width", "16",   "--limit-iterations", "2",   NULL};
    static struct child child;
    (void)state;
    create_samples(folder);
    (void)setenv("DEFT_LINKS", "nccl", 1);
    (void)setenv("DEFT_AGENT_SOCKET", "", 1);
    assert_int_equal(run(&child, arguments), 0);
    expect(child.err_text, "deft-train: NCCL is not used, but Gloo: ");
    assert_ptr_equal(strchr(child.err_text, '\n'), child.err_text + strlen(child.err_text) - 1);
    remove_samples(folder);
}

static void learns_and_repeats_itself(void **state) {
    char folder[FOLDER_BYTES];
    const char *arguments[] = {"--sync",  "none", "--data",  folder, "--batch",  "50",
                               "--width", "16",   "--depth", "2",    "--epochs", "3",
                               "--lr",    "0.05", "--json",  NULL};
    static struct child first;
    static struct child second;
    (void)state;
    create_samples(folder);
    assert_int_equal(run(&first, arguments), 0);
    assert_string_equal(first.err_text, "");
    expect(first.out_text, "epoch  3/3");
    assert_true(json_number(first.out_text, "accuracy") > 0.95);
    assert_true(json_number(first.out_text, "warm_up") == 5.0);
    assert_true(json_number(first.out_text, "epochs") == 3.0);
    assert_int_equal(run(&second, arguments), 0);
    assert_true(json_number(first.out_text, "loss") == json_number(second.out_text, "loss"));
    remove_samples(folder);
}

static void adamw_learns(void **state) {
    char folder[FOLDER_BYTES];
    const char *arguments[] = {"--sync",  "none", "--data",   folder, "--batch",     "50",
                               "--width", "16",   "--epochs", "3",    "--optimizer", "adamw",
                               "--depth", "1",    "--json",   NULL};
    static struct child child;
    (void)state;
    create_samples(folder);
    assert_int_equal(run(&child, arguments), 0);
    assert_true(json_number(child.out_text, "accuracy") > 0.95);
    remove_samples(folder);
}

static void divergence_is_told(void **state) {
    char folder[FOLDER_BYTES];
    const char *arguments[] = {"--sync",  "none", "--data", folder, "--batch", "50",
                               "--width", "16",   "--lr",   "1000", NULL};
    static struct child child;
    (void)state;
    create_samples(folder);
    assert_int_equal(run(&child, arguments), 1);
    expect(child.err_text, "the loss stopped being a number");
    remove_samples(folder);
}

static void check_stop(int number) {
    char folder[FOLDER_BYTES];
    const char *arguments[] = {"--sync",  "none", "--data",   folder,   "--batch", "50",
                               "--width", "16",   "--epochs", "100000", "--json",  NULL};
    static struct child child;
    create_samples(folder);
    start(&child, arguments);
    listen_to(child.out, child.out_text, "epoch  1/");
    assert_int_equal(kill(child.pid, number), 0);
    assert_int_equal(finish(&child), 128 + number);
    expect(child.out_text, "(stopped early)");
    expect(child.out_text, "\"stopped\":true");
    remove_samples(folder);
}

static void signals_stop_in_order(void **state) {
    (void)state;
    check_stop(SIGINT);
    check_stop(SIGTERM);
}

/* --- two ranks -------------------------------------------------------------------------------- */

/* A port that was free a moment ago. */
static void set_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n_bytes = sizeof(address);
    char text[16];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, n_bytes), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &n_bytes), 0);
    (void)close(fd);
    (void)snprintf(text, sizeof(text), "%u", ntohs(address.sin_port));
    (void)setenv("DEFT_MASTER_PORT", text, 1);
}

static void start_two(struct child *children, const char *const *arguments) {
    set_port();
    (void)setenv("DEFT_MASTER_ADDR", "127.0.0.1", 1);
    (void)setenv("DEFT_LINKS", "gloo:lo", 1);
    (void)setenv("DEFT_JOB_ID", "trainer_process", 1);
    (void)setenv("DEFT_AGENT_SOCKET", "", 1);
    (void)setenv("DEFT_WORLD_SIZE", "2", 1);
    for (int rank = 1; rank >= 0; rank--) {
        (void)setenv("DEFT_RANK", rank == 0 ? "0" : "1", 1);
        start(&children[rank], arguments);
    }
}

static void read_file(const char *path, char *text) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    text[0] = '\0';
    listen_to(fd, text, NULL);
    (void)close(fd);
    (void)unlink(path);
}

/* The mathematics of exact: two ranks with batch b are one rank with batch 2 b, up to rounding. */
static void two_ranks_equal_one_with_both_batches(void **state) {
    char folder[FOLDER_BYTES];
    char json[128];
    char option[160];
    char path[160];
    char hashes[2][32];
    const char *alone[] = {"--sync",  "none", "--data",  folder, "--batch",  "100",
                           "--width", "16",   "--depth", "2",    "--epochs", "2",
                           "--lr",    "0.05", "--json",  NULL};
    const char *together[] = {"--sync",  "deft", "--data",  folder, "--batch",  "50",
                              "--width", "16",   "--depth", "2",    "--epochs", "2",
                              "--lr",    "0.05", option,    NULL};
    static struct child children[2];
    static char texts[2][TEXT_BYTES];
    (void)state;

    create_samples(folder);
    assert_int_equal(run(&children[0], alone), 0);
    memcpy(texts[0], children[0].out_text, TEXT_BYTES);
    (void)snprintf(json, sizeof(json), "%s/result", folder);
    (void)snprintf(option, sizeof(option), "--json=%s", json);
    start_two(children, together);
    for (int rank = 0; rank < 2; rank++) {
        int status = finish(&children[rank]);
        if (status != 0) {
            fail_msg("rank %d ended with %d: %s", rank, status, children[rank].err_text);
        }
    }
    assert_string_equal(children[1].out_text, "");
    read_file(json, texts[1]);
    json_text(texts[1], "parameters_hash", hashes[0], sizeof(hashes[0]));
    assert_true(json_number(texts[1], "updates") == 40.0);
    /* The loss printed is that of rank 0's half; the accuracy is that of equal parameters. */
    assert_true(json_number(texts[0], "accuracy") > 0.9);
    assert_true(json_number(texts[1], "accuracy") - json_number(texts[0], "accuracy") < 0.011);
    assert_true(json_number(texts[0], "accuracy") - json_number(texts[1], "accuracy") < 0.011);
    (void)snprintf(path, sizeof(path), "%s.1", json);
    read_file(path, texts[1]);
    json_text(texts[1], "parameters_hash", hashes[1], sizeof(hashes[1]));
    assert_string_equal(hashes[0], hashes[1]);
    assert_string_not_equal(hashes[0], "0000000000000000");
    remove_samples(folder);
}

static const char *const endless[] = {"--batch", "50", "--width", "16", "--epochs", "100000", NULL};

static void start_endless(struct child *children, const char *folder) {
    const char *arguments[MAX_ARGS] = {"--data", folder};
    memcpy(arguments + 2, endless, sizeof(endless));
    start_two(children, arguments);
    listen_to(children[0].out, children[0].out_text, "epoch  1/");
}

static void lost_rank_is_named(void **state) {
    char folder[FOLDER_BYTES];
    static struct child children[2];
    (void)state;
    create_samples(folder);
    start_endless(children, folder);
    assert_int_equal(kill(children[1].pid, SIGKILL), 0);
    assert_int_equal(finish(&children[1]), 1000 + SIGKILL);
    int status = finish(&children[0]);
    if (status != 1) {
        fail_msg("exit status %d: %s", status, children[0].err_text);
    }
    expect(children[0].err_text, "rank 1");
    remove_samples(folder);
}

static void signal_to_one_rank_stops_both_in_order(void **state) {
    char folder[FOLDER_BYTES];
    static struct child children[2];
    (void)state;
    create_samples(folder);
    start_endless(children, folder);
    assert_int_equal(kill(children[1].pid, SIGTERM), 0);
    assert_int_equal(finish(&children[1]), 128 + SIGTERM);
    assert_int_equal(finish(&children[0]), 0);
    expect(children[0].out_text, "(stopped early)");
    assert_string_equal(children[0].err_text, "");
    remove_samples(folder);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(wrong_options_are_told_in_a_sentence),
    cmocka_unit_test(missing_files_are_told),
    cmocka_unit_test(results_that_lead_nowhere_are_told_first),
    cmocka_unit_test(too_few_samples_are_told),
    cmocka_unit_test(missing_devices_are_told),
    cmocka_unit_test(what_is_not_used_is_told_once),
    cmocka_unit_test(learns_and_repeats_itself),
    cmocka_unit_test(adamw_learns),
    cmocka_unit_test(divergence_is_told),
    cmocka_unit_test(signals_stop_in_order),
    cmocka_unit_test(two_ranks_equal_one_with_both_batches),
    cmocka_unit_test(lost_rank_is_named),
    cmocka_unit_test(signal_to_one_rank_stops_both_in_order),
};
TESTING_MAIN(cases)
