/* What the kernel says of this process, from /proc. */
#ifndef SERVICE_PROCESS_H
#define SERVICE_PROCESS_H

#include <deft/status.h>

struct service_process {
    double cpu_s;          /* user and system, since the start */
    double resident_bytes; /* now */
    double n_fds;
    double start_s; /* since 1970 */
};
/* DEFT_IO where there is no /proc. */
DEFT_NODISCARD enum deft_status service_process_read(struct service_process *out);

#endif
