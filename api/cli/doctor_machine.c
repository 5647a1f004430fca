#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/state_dir.h"
#include "doctor.h"

/* The links of a job of many ranks are as many sockets, and data loaders want files beside them. */
#define MACHINE_FEW_FILES 1024u

/* Clients of ours never take a proxy from the environment: a cluster's proxy does not know its own
 * hosts. Who has set one may wonder. */
static void machine_proxies(struct doctor *doctor) {
    static const char *const names[] = {"http_proxy",  "HTTP_PROXY", "https_proxy",
                                        "HTTPS_PROXY", "all_proxy",  "ALL_PROXY"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && value[0] != '\0') {
            doctor_say(doctor, DOCTOR_NOTE, "proxy",
                       "where the controller is behind it, give --proxy URL",
                       "%s is set and ignored", names[i]);
            return;
        }
    }
    doctor_say(doctor, DOCTOR_FINE, "proxy", NULL, "none is set");
}

/* The nearest part of `path` that exists must let us write. */
static void machine_folder(struct doctor *doctor, const char *topic, const char *path,
                           const char *advice) {
    char part[PATH_MAX];
    (void)snprintf(part, sizeof(part), "%s", path);
    while (access(part, F_OK) != 0 && errno == ENOENT && strrchr(part, '/') > part) {
        *strrchr(part, '/') = '\0';
    }
    if (access(part, W_OK | X_OK) == 0) {
        doctor_say(doctor, DOCTOR_FINE, topic, NULL, "%s can be written", path);
    } else {
        int code = errno;
        doctor_say(doctor, DOCTOR_WRONG, topic, advice, "%s cannot be written: %s", path,
                   strerrordesc_np(code));
    }
}

static void machine_state(struct doctor *doctor) {
    char path[PATH_MAX];
    struct deft_error error = {0};
    if (state_dir_default(path, sizeof(path), &error) == DEFT_OK) {
        machine_folder(doctor, "state", path,
                       "reports are lost while the controller is away; set XDG_STATE_HOME");
    } else {
        doctor_say(doctor, DOCTOR_WRONG, "state", "set HOME or XDG_STATE_HOME", "%s", error.text);
    }
}

/* A token that others can read is theirs. */
static void machine_token(struct doctor *doctor) {
    struct stat file;
    const char *path = getenv("DEFT_TOKEN_FILE");
    if (path == NULL || path[0] == '\0') {
        return;
    }
    if (stat(path, &file) != 0) {
        int code = errno;
        doctor_say(doctor, DOCTOR_WRONG, "token", "make one: deft token create --help",
                   "DEFT_TOKEN_FILE is %s: %s", path, strerrordesc_np(code));
    } else if ((file.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        doctor_say(doctor, DOCTOR_NOTE, "token", "unless that is meant: chmod 600",
                   "%s can be read by others (mode %04o)", path, file.st_mode & 07777u);
    } else {
        doctor_say(doctor, DOCTOR_FINE, "token", NULL, "%s is yours alone", path);
    }
}

static void machine_files(struct doctor *doctor) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return;
    }
    if (limit.rlim_cur < MACHINE_FEW_FILES) {
        doctor_say(doctor, DOCTOR_NOTE, "limits", "raise it: ulimit -n",
                   "a process may have %llu open files", (unsigned long long)limit.rlim_cur);
    } else {
        doctor_say(doctor, DOCTOR_FINE, "limits", NULL, "a process may have %llu open files",
                   (unsigned long long)limit.rlim_cur);
    }
}

void doctor_machine(struct doctor *doctor) {
    const char *temporary = getenv("TMPDIR");
    machine_proxies(doctor);
    machine_state(doctor);
    machine_folder(doctor, "temporary",
                   temporary != NULL && temporary[0] != '\0' ? temporary : "/tmp",
                   "the agent's socket goes there; set TMPDIR");
    machine_token(doctor);
    machine_files(doctor);
}
