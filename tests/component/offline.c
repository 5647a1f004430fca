#include "offline.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "testing.h"
#include "wire/wire.h"

void offline_folder(char path[40]) {
    (void)snprintf(path, 40, "/tmp/cli_offline.XXXXXX");
    assert_non_null(mkdtemp(path));
}

void offline_remove(const char *folder) {
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        (void)unlinkat(dirfd(directory), entry->d_name, 0);
    }
    (void)closedir(directory);
    (void)rmdir(folder);
}

void offline_path(const char *folder, const char *name, char path[128]) {
    assert_in_range(snprintf(path, 128, "%s/%s", folder, name), 1, 127);
}

void offline_write(const char *path, const void *bytes, size_t n_bytes) {
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n_bytes, file), n_bytes);
    assert_int_equal(fclose(file), 0);
}

void offline_profile(struct dsched_profile *out, const char *name, uint32_t n_tensors) {
    *out = (struct dsched_profile){.world_size = 4,
                                   .forward_ns = 8000000,
                                   .backward_ns = 16000000,
                                   .optimizer_ns = 500000,
                                   .n_tensors = n_tensors,
                                   .n_links = 2};
    (void)snprintf(out->name, sizeof(out->name), "%s", name);
    out->tensors = calloc(n_tensors, sizeof(*out->tensors));
    out->links = calloc(2, sizeof(*out->links));
    assert_non_null(out->tensors);
    assert_non_null(out->links);
    for (uint32_t i = 0; i < n_tensors; i++) {
        struct dsched_tensor *tensor = &out->tensors[i];
        (void)snprintf(tensor->name, sizeof(tensor->name), "layer%u", i);
        tensor->elements = 4000000 / n_tensors;
        tensor->forward_ns = 8000000 / n_tensors;
        tensor->backward_ns = 16000000 / n_tensors;
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct dsched_link *link = &out->links[i];
        (void)snprintf(link->name, sizeof(link->name), "%s", i == 0 ? "fast" : "slow");
        link->alpha_ns = 50000;
        link->bytes_per_s = INT64_C(500000000) / ((int64_t)i + 1);
        link->contention_ppm = 1000000;
    }
}

void offline_save(const struct dsched_profile *profile, const char *path) {
    char *text = NULL;
    assert_int_equal(wire_profile_encode(profile, &text, NULL), DEFT_OK);
    offline_write(path, text, strlen(text));
    free(text);
}

void offline_make(const char *folder, const char *name, char path[128]) {
    struct dsched_profile profile;
    offline_path(folder, name, path);
    offline_profile(&profile, name, 8);
    offline_save(&profile, path);
    dsched_profile_done(&profile);
}

void offline_run(struct child *child, const char *const *argv, int exit_code) {
    child_start(child, argv, NULL, -1, 1);
    int got = child_wait(child);
    if (got != exit_code) {
        fail_msg("'%s %s' ended with %d, not %d:\n%s", argv[0], argv[1], got, exit_code,
                 child->output);
    }
}

/* argp adds a line that points at --help. */
static size_t offline_sentences(const char *output) {
    size_t n = 0;
    for (const char *line = output; line != NULL && *line != '\0';) {
        n += strncmp(line, "Try `", 5) != 0;
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return n;
}

void offline_refused(const char *const *argv, const char *text) {
    struct child child;
    offline_run(&child, argv, 2);
    if (strncmp(child.output, "deft", 4) != 0 || strstr(child.output, text) == NULL ||
        offline_sentences(child.output) != 1) {
        fail_msg("'%s %s' was expected to say one sentence with '%s', but said:\n%s", argv[0],
                 argv[1], text, child.output);
    }
    child_free(&child);
}

double offline_number(const char *json, const char *key) {
    char quoted[64];
    (void)snprintf(quoted, sizeof(quoted), "\"%s\":", key);
    const char *at = strstr(json, quoted);
    if (at == NULL) {
        fail_msg("no %s in %s", quoted, json);
        return 0.0;
    }
    return strtod(at + strlen(quoted), NULL);
}
