/* sbatch and salloc: options are known there so that they are checked where the user is, and handed
 * on to every step of the job. */
#include <stddef.h>

#include "spank_contexts.h"
#include "spank_flags.h"

static int spank_allocator_init(spank_t spank, int argc, char **argv) {
    (void)argc;
    (void)argv;
    return spank_flags_register(spank);
}

const struct spank_contexts_ops spank_allocator_ops = {.init = spank_allocator_init};
