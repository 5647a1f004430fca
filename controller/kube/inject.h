/* What is put into a pod so that its ranks have an agent. Pure: no clock, file, socket or thread.
 *
 * A pod labelled deft.dev/inject: "true" gets a sidecar that runs deft-agent as the same user as
 * the training containers, since agent and ranks believe only their own user, and variables that
 * tell the ranks its socket and job. A pod that has the sidecar stays as it is. */
#ifndef INJECT_H
#define INJECT_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

#include "wire/wire.h"
#include "wire/wire_admission.h"

/* Of the sidecar and its volume; also how a pod that has them is known. */
#define INJECT_NAME "deft-agent"
/* Pods of training jobs have a handful; the patch grows with them. */
#define INJECT_MAX_CONTAINERS 64u
#define INJECT_MAX_WARNINGS   4u

struct inject_options {
    const char *image;      /* of the sidecar */
    const char *controller; /* URL of the controller as pods see it */
    const char *ca_pem;     /* authorities of the controller's certificate; NULL: the image's own */
};

struct inject_verdict {
    int injects;
    char job[WIRE_ID_BYTES];          /* NAMESPACE.KIND.NAME of the owner */
    char name[WIRE_ID_BYTES];         /* of the owner */
    int64_t user;                     /* of ranks and agent */
    int has_index;                    /* world size and rank come from the index of a Job's pod */
    int has_attempt;                  /* restarts are counted by a JobSet */
    int takes[INJECT_MAX_CONTAINERS]; /* which containers train */
    size_t n_warnings;
    char warnings[INJECT_MAX_WARNINGS][WIRE_ADMISSION_WARNING_BYTES];
};

/* Whether and how; a pod that asks and is refused has a warning that says why. */
void inject_judge(const struct wire_admission *review, struct inject_verdict *out);
/* The JSON patch for a verdict that injects. `token`: for the sidecar; NULL: none. */
DEFT_NODISCARD enum deft_status inject_patch(const struct wire_admission *review,
                                             const struct inject_verdict *verdict,
                                             const struct inject_options *options,
                                             const char *token, char **out,
                                             struct deft_error *error);

#endif
