/* What each context of Slurm does in the callbacks that it is called in: srun (local), sbatch and
 * salloc (allocator), slurmstepd (remote). */
#ifndef SPANK_CONTEXTS_H
#define SPANK_CONTEXTS_H

#include <stdint.h>

#include <slurm/spank.h>

/* NULL: nothing to do. A context outside slurmstepd returns 0, or -1 to refuse the command. In
 * slurmstepd there is nothing to return: whatever fails there, the step runs. */
struct spank_contexts_ops {
    int (*init)(spank_t spank, int argc, char **argv);
    int (*local_user_init)(spank_t spank);
    void (*remote_init)(spank_t spank, int argc, char **argv);
    void (*init_post_opt)(spank_t spank);
    void (*user_init)(spank_t spank);
    void (*task_init)(spank_t spank);
    void (*task_post_fork)(spank_t spank);
    void (*task_exit)(spank_t spank);
    void (*exit)(spank_t spank);
};

extern const struct spank_contexts_ops spank_local_ops;
extern const struct spank_contexts_ops spank_allocator_ops;
extern const struct spank_contexts_ops spank_remote_ops;

#endif
