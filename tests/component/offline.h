/* Profiles in files, and what `deft` says about them. */
#ifndef OFFLINE_H
#define OFFLINE_H

#include <stddef.h>

#include <dsched/profile.h>

#include "child.h"

/* A folder of the test's own, and its end with everything in it. */
void offline_folder(char path[40]);
void offline_remove(const char *folder);
/* "FOLDER/NAME" in `path`. */
void offline_path(const char *folder, const char *name, char path[128]);
void offline_write(const char *path, const void *bytes, size_t n_bytes);

/* A job of `n_tensors` equal tensors on two links, whose communication takes as long as compute. It
 * owns its arrays. */
void offline_profile(struct dsched_profile *out, const char *name, uint32_t n_tensors);
/* The profile as a file. */
void offline_save(const struct dsched_profile *profile, const char *path);
/* Both, as FOLDER/NAME. */
void offline_make(const char *folder, const char *name, char path[128]);

/* Runs a command that must end with `exit_code`; child_free is the caller's. */
void offline_run(struct child *child, const char *const *argv, int exit_code);
/* Runs a command that must be refused with exit code 2 and one sentence that contains `text`. */
void offline_refused(const char *const *argv, const char *text);
/* The number behind "key": in a text of JSON, the first one. */
double offline_number(const char *json, const char *key);

#endif
