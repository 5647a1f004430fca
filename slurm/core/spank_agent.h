/* The agent's process, as seen from slurmstepd. Knows no Slurm.
 *
 * One socket pair carries readiness (a byte from the agent), the wish to end (our end is shut for
 * writing), the end (end of file) and our own death (end of file on the agent's side). The process
 * is never signalled or waited for by its number: slurmstepd reaps children that it does not know,
 * and may start us in a process of its own (contain_spank), so that the agent is not its child. */
#ifndef SPANK_AGENT_H
#define SPANK_AGENT_H

#include <stdint.h>
#include <sys/types.h>

#define SPANK_AGENT_WHY_BYTES 384u
/* The descriptor that the agent keeps. */
#define SPANK_AGENT_FD 3
/* An agent is ready within milliseconds; a step is not held longer than this by one that is not. */
#define SPANK_AGENT_READY_NS INT64_C(2000000000)
/* The agent gives up flushing after 2.7 s. */
#define SPANK_AGENT_GRACE_NS INT64_C(3000000000)

struct spank_agent {
    int fd;       /* ours; -1: there is none */
    int agent_fd; /* the agent's, until it has it; -1 */
    int pidfd;    /* -1: not started here, or a kernel without */
    pid_t maker;  /* who opened this */
    int is_ready; /* known in the process that awaited it, and in those it forked */
};

struct spank_agent_start {
    char *const *argv; /* argv[0] is a path; NULL-terminated, as is `environment` */
    char *const *environment;
    uid_t user; /* not 0 */
    gid_t group;
};

enum spank_agent_end {
    SPANK_AGENT_NONE,   /* there was none */
    SPANK_AGENT_ENDED,  /* it has flushed, or had died before */
    SPANK_AGENT_KILLED, /* it did not end within the grace */
    SPANK_AGENT_STUCK,  /* as before, and it could not be killed either */
};

/* Where all processes that may need it come from. Nothing is open afterwards when it fails (-1). */
int spank_agent_open(struct spank_agent *agent, char why[SPANK_AGENT_WHY_BYTES]);
/* Starts it and waits until ranks can connect, at most `patience_ns`; else ends it, says why and
 * returns -1. */
int spank_agent_run(struct spank_agent *agent, const struct spank_agent_start *start,
                    int64_t patience_ns, char why[SPANK_AGENT_WHY_BYTES]);
/* Whether it got ready, in any process that has inherited `agent`. */
int spank_agent_is_ready(const struct spank_agent *agent);
/* In the process that outlives the others, once all are forked: else its copy of the agent's end
 * would hide the agent's. */
void spank_agent_settle(struct spank_agent *agent);
/* Wishes the end, waits for it at most `grace_ns`, then kills; closes everything. */
enum spank_agent_end spank_agent_stop(struct spank_agent *agent, int64_t grace_ns);

#endif
