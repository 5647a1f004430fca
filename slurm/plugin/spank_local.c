/* srun: options are checked where the user is. */
#include <stdlib.h>
#include <string.h>

#include "spank_contexts.h"
#include "spank_flags.h"

static int spank_local_init(spank_t spank, int argc, char **argv) {
    (void)argc;
    (void)argv;
    return spank_flags_register(spank);
}

const struct spank_contexts_ops spank_local_ops = {.init = spank_local_init};
