/* What an import found: tables and a verdict for people, JSON for programs. */
#ifndef IMPORT_REPORT_H
#define IMPORT_REPORT_H

#include <stdint.h>
#include <stdio.h>

#include <deft/status.h>
#include <dsched/profile.h>

#include "kineto/kineto.h"
#include "kineto/kineto_verdict.h"

struct import_report {
    uint64_t n_events;  /* read from all traces */
    uint64_t n_records; /* kept of them */
    const struct kineto_job *job;
    const struct dsched_profile *profile;
    const struct kineto_verdict *verdict;
};

void import_report_text(const struct import_report *report, FILE *stream);
/* `profile_json` is the profile as it is written to files. The caller frees *out. */
DEFT_NODISCARD enum deft_status import_report_json(const struct import_report *report,
                                                   const char *profile_json, char **out,
                                                   struct deft_error *error);

#endif
