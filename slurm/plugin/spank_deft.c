/* The plug-in as Slurm sees it: its name, and each callback handed to the context it runs in. */
#include <stddef.h>
#include <stdint.h>

#include <slurm/slurm_errno.h>
#include <slurm/spank.h>

#include "spank_contexts.h"

/* Part of the interface: sbatch hands options on under this name. */
SPANK_PLUGIN(deft, 1)

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0)
/* Whatever goes wrong at loading must not cost a node. */
extern int slurm_spank_init_failure_mode;
int slurm_spank_init_failure_mode = ESPANK_JOB_FAILURE;
#endif

static const struct spank_contexts_ops *spank_deft_ops(void) {
    static const struct spank_contexts_ops nothing;
    switch (spank_context()) {
    case S_CTX_LOCAL:
        return &spank_local_ops;
    case S_CTX_ALLOCATOR:
        return &spank_allocator_ops;
    case S_CTX_REMOTE:
        return &spank_remote_ops;
    default:
        return &nothing;
    }
}

int slurm_spank_init(spank_t spank, int ac, char *argv[]) {
    const struct spank_contexts_ops *ops = spank_deft_ops();
    if (ops->remote_init != NULL) {
        ops->remote_init(spank, ac, argv);
    }
    return ops->init != NULL ? ops->init(spank, ac, argv) : 0;
}

int slurm_spank_init_post_opt(spank_t spank, int ac, char *argv[]) {
    (void)ac;
    (void)argv;
    if (spank_deft_ops()->init_post_opt != NULL) {
        spank_deft_ops()->init_post_opt(spank);
    }
    return 0;
}

int slurm_spank_local_user_init(spank_t spank, int ac, char *argv[]) {
    (void)ac;
    (void)argv;
    return spank_deft_ops()->local_user_init != NULL ? spank_deft_ops()->local_user_init(spank) : 0;
}

int slurm_spank_user_init(spank_t spank, int ac, char *argv[]) {
    (void)ac;
    (void)argv;
    if (spank_deft_ops()->user_init != NULL) {
        spank_deft_ops()->user_init(spank);
    }
    return 0;
}

int slurm_spank_task_init(spank_t spank, int ac, char *argv[]) {
    (void)ac;
    (void)argv;
    if (spank_deft_ops()->task_init != NULL) {
        spank_deft_ops()->task_init(spank);
    }
    return 0;
}

int slurm_spank_task_post_fork(spank_t spank, int ac, char *argv[]) {
    (void)ac;
    (void)argv;
    if (spank_deft_ops()->task_post_fork != NULL) {
        spank_deft_ops()->task_post_fork(spank);
    }
    return 0;
}

int slurm_spank_task_exit(spank_t spank, int ac, char *argv[]) {
    (void)ac;
    (void)argv;
    if (spank_deft_ops()->task_exit != NULL) {
        spank_deft_ops()->task_exit(spank);
    }
    return 0;
}

int slurm_spank_exit(spank_t spank, int ac, char *argv[]) {
    (void)ac;
    (void)argv;
    if (spank_deft_ops()->exit != NULL) {
        spank_deft_ops()->exit(spank);
    }
    return 0;
}
