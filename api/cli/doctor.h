/* deft doctor: looks at what a job will need, says what it found and what to do about it. Each part
 * looks at one thing, changes nothing, and goes on when something is missing. */
#ifndef DOCTOR_H
#define DOCTOR_H

#include <deft/status.h>

#include "cli_controller.h"

enum doctor_grade {
    DOCTOR_ABSENT, /* there is none here, and none is needed */
    DOCTOR_FINE,
    DOCTOR_NOTE,  /* works, and may surprise */
    DOCTOR_WRONG, /* tuning will not work, or is not safe */
    DOCTOR_N_GRADES
};
struct doctor {
    int n_found[DOCTOR_N_GRADES];
};

/* Prints one finding. `advice` NULL: there is nothing to do. */
void doctor_say(struct doctor *doctor, enum doctor_grade grade, const char *topic,
                const char *advice, const char *format, ...) DEFT_PRINTF(5, 6);

/* The agent, the controller and libdeft of this installation, and whether their versions agree. */
void doctor_programs(struct doctor *doctor);
/* Variables that are set, folders, limits of the process. */
void doctor_machine(struct doctor *doctor);
/* The agent behind a socket: a path, or @NAME for an abstract one. NULL: there is none. */
void doctor_agent(struct doctor *doctor, const char *socket);
/* Slurm's plug-in. `plugstack` NULL: the file in Slurm's usual places. */
void doctor_slurm(struct doctor *doctor, const char *plugstack);
/* Whether the controller can be reached and is well, its clock, version and certificate, and what
 * our token may do; then the ranks of a job, unless `job` is NULL. */
void doctor_controller(struct doctor *doctor, struct cli_controller *controller, const char *job);

#endif
