/* One step on one node: its names, where its ranks meet, and what agent and tasks are told.
 *
 * Pure: knows no Slurm, file, process or clock. */
#ifndef SPANK_STEP_H
#define SPANK_STEP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "spank_config.h"

#define SPANK_STEP_ID_BYTES     96u
#define SPANK_STEP_SOCKET_BYTES 104u /* a Unix socket's name has 107 at most */
#define SPANK_STEP_HOST_BYTES   256u
#define SPANK_STEP_NONE         UINT32_MAX

struct spank_step {
    uint32_t job;
    uint32_t step;
    uint32_t array_job;  /* SPANK_STEP_NONE: no array */
    uint32_t array_task; /* SPANK_STEP_NONE: no array */
    uint32_t restarts;
    uint32_t node; /* of the step, from 0 */
    uint32_t n_nodes;
    uint32_t n_tasks;
    uint32_t n_local_tasks;
    uid_t user;
    gid_t group;
};

/* "123", task 0 of array 36199 "36199_0"; steps but the first have their number behind: "12.3". */
void spank_step_id(const struct spank_step *step, const char *prefix,
                   char out[SPANK_STEP_ID_BYTES]);
/* An abstract socket: containers with a /tmp of their own reach it too. `salt` keeps others from
 * taking the name first. */
void spank_step_socket(const struct spank_step *step, uint64_t salt,
                       char out[SPANK_STEP_SOCKET_BYTES]);
/* In [first, last]. Steps of one job and neighbouring jobs get different ones while there are any.
 */
uint16_t spank_step_port(const struct spank_step *step, uint16_t first, uint16_t last);

/* The first host of a list as Slurm writes them: "n1" of "n1,m2", "n01" of "n[01-20,33],m7", "a1b3"
 * of "a[1-2]b[3-4]". The list may be cut behind it. Returns 0, or -1 when there is none or it does
 * not fit. */
int spank_step_first_node(const char *nodes, char *out, size_t capacity_bytes);

/* Strings of an argument vector or environment, in one block. Zero-initialised is valid. */
#define SPANK_STEP_MAX_WORDS 48u
struct spank_words {
    char *words[SPANK_STEP_MAX_WORDS + 1]; /* NULL-terminated */
    size_t n_words;
    char text[16384];
    size_t n_text;
    int is_full; /* something did not fit */
};

/* What is known of the step once the agent is to be started. */
struct spank_told {
    const struct spank_config *config;
    const struct spank_step *step;
    const char *node_name;
    const char *socket; /* "" without an agent */
    const char *master;
    uint16_t port;
    const char *title; /* the job's name; may be "" */
};

/* argv of the agent; it keeps descriptor `fd`. */
void spank_step_agent_words(const struct spank_told *told, int fd, struct spank_words *out);
/* The agent's environment, from the job's: what it reads and nothing else, so that neither what
 * slurmd runs with nor what the job preloads gets in. `job` is NULL-terminated. */
void spank_step_agent_environment(const struct spank_told *told, char *const *job,
                                  struct spank_words *out);
/* "NAME=value" for one task; "NAME" alone is to be unset. */
void spank_step_task_environment(const struct spank_told *told, uint32_t rank, uint32_t local_rank,
                                 struct spank_words *out);

#endif
