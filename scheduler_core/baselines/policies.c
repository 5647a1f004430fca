#include "policies.h"

#include <stddef.h>
#include <string.h>

const struct dsched_policy *const dsched_policies[] = {
    &policy_serial, &policy_wfbp,    &policy_mg_wfbp, &policy_bytescheduler, &policy_us_byte,
    &policy_dear,   &policy_pipesgd, &policy_sapipe,  &policy_deft_paper,    &policy_deft,
    NULL,
};

const struct dsched_policy *dsched_policy_find(const char *name) {
    for (size_t i = 0; dsched_policies[i] != NULL; i++) {
        if (strcmp(dsched_policies[i]->name, name) == 0) {
            return dsched_policies[i];
        }
    }
    return NULL;
}
