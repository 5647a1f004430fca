#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doctor.h"

/* A line of plugstack.conf is no longer than that. */
#define SLURM_LINE_BYTES 4096u
#define SLURM_PLUGIN     "spank_deft.so"

static const char slurm_line_advice[] =
    "add the line of share/deft/plugstack.conf to it, on login and compute nodes";

static void slurm_usual_place(char out[PATH_MAX]) {
    const char *conf = getenv("SLURM_CONF");
    const char *slash = conf != NULL ? strrchr(conf, '/') : NULL;
    if (slash != NULL) {
        (void)snprintf(out, PATH_MAX, "%.*s/plugstack.conf", (int)(slash - conf), conf);
    } else {
        (void)snprintf(out, PATH_MAX, "/etc/slurm/plugstack.conf");
    }
}

/* The next word of `*rest`, ended there; "" at its end. */
static char *slurm_word(char **rest) {
    char *word = *rest + strspn(*rest, " \t");
    char *end = word + strcspn(word, " \t");
    *rest = *end != '\0' ? end + 1 : end;
    *end = '\0';
    return word;
}

/* The first two words of our line. 0: this line is another's. */
static int slurm_our_line(char *line, char **out_how, char **out_path) {
    char *rest = line;
    line[strcspn(line, "#\n")] = '\0';
    *out_how = slurm_word(&rest);
    *out_path = slurm_word(&rest);
    return strcmp(*out_how, "include") != 0 && strstr(*out_path, SLURM_PLUGIN) != NULL;
}

static void slurm_check_line(struct doctor *doctor, const char *file, const char *how,
                             const char *path) {
    if (path[0] == '/' && access(path, R_OK) != 0) {
        int code = errno;
        doctor_say(doctor, DOCTOR_WRONG, "slurm", "install the package of this Slurm release",
                   "%s names %s: %s", file, path, strerrordesc_np(code));
    } else if (strcmp(how, "optional") != 0) {
        doctor_say(doctor, DOCTOR_WRONG, "slurm",
                   "make it optional: a node that lacks the plug-in would fail its jobs",
                   "%s has it as '%.40s'", file, how);
    } else {
        doctor_say(doctor, DOCTOR_FINE, "slurm", NULL, "%s has %s, optional", file, path);
    }
}

static int slurm_is_here(void) {
    return getenv("SLURM_CONF") != NULL || getenv("SLURM_JOB_ID") != NULL ||
           access("/etc/slurm", F_OK) == 0;
}

void doctor_slurm(struct doctor *doctor, const char *plugstack) {
    char usual[PATH_MAX];
    char line[SLURM_LINE_BYTES];
    char *how = NULL;
    char *path = NULL;
    if (plugstack == NULL && !slurm_is_here()) {
        doctor_say(doctor, DOCTOR_ABSENT, "slurm", NULL, "there is no Slurm here");
        return;
    }
    if (plugstack == NULL) {
        slurm_usual_place(usual);
        plugstack = usual;
    }
    FILE *file = fopen(plugstack, "re");
    if (file == NULL) {
        int code = errno;
        doctor_say(doctor, code == ENOENT ? DOCTOR_NOTE : DOCTOR_WRONG, "slurm", slurm_line_advice,
                   "%s cannot be read, so srun has no --deft: %s", plugstack,
                   strerrordesc_np(code));
        return;
    }
    int is_ours = 0;
    while (!is_ours && fgets(line, sizeof(line), file) != NULL) {
        is_ours = slurm_our_line(line, &how, &path);
    }
    (void)fclose(file);
    if (is_ours) {
        slurm_check_line(doctor, plugstack, how, path);
    } else {
        doctor_say(doctor, DOCTOR_NOTE, "slurm", slurm_line_advice,
                   "%s does not name %s itself (what it includes was not read)", plugstack,
                   SLURM_PLUGIN);
    }
}
