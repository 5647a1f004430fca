#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli_program.h"
#include "doctor.h"

/* A program that says its version does so at once. */
#define PROGRAMS_PATIENCE_MS 5000
#define PROGRAMS_LINE_BYTES  128u

static const char programs_advice[] =
    "install the packages deft-agent, deft-controller and libdeft0 of this version";

/* What a program prints first; "" when it says nothing in time. */
static void programs_listen(int fd, char out[PROGRAMS_LINE_BYTES]) {
    struct pollfd from = {.fd = fd, .events = POLLIN};
    size_t n = 0;
    while (n < PROGRAMS_LINE_BYTES - 1 && poll(&from, 1, PROGRAMS_PATIENCE_MS) > 0) {
        ssize_t got = read(fd, out + n, PROGRAMS_LINE_BYTES - 1 - n);
        if (got <= 0) {
            break;
        }
        n += (size_t)got;
    }
    out[n] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

/* 0, or the number of the error that kept it from running. */
static int programs_ask(const char *path, char out[PROGRAMS_LINE_BYTES]) {
    char name[PATH_MAX];
    char option[] = "--version";
    char *arguments[] = {name, option, NULL};
    int ends[2];
    posix_spawn_file_actions_t actions;
    pid_t pid = 0;
    (void)snprintf(name, sizeof(name), "%s", path);
    out[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return errno;
    }
    int code = posix_spawn_file_actions_init(&actions);
    if (code == 0) {
        code = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        if (code == 0) {
            code = posix_spawnp(&pid, name, &actions, NULL, arguments, environ);
        }
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    (void)close(ends[1]);
    if (code == 0) {
        programs_listen(ends[0], out);
        (void)close(ends[0]);
        (void)kill(pid, SIGKILL); /* one that hangs; the others have said all they had to */
        (void)waitpid(pid, NULL, 0);
        return 0;
    }
    (void)close(ends[0]);
    return code;
}

static void programs_compare(struct doctor *doctor, const char *name, const char *path,
                             const char *version) {
    if (strcmp(version, DEFT_VERSION_TEXT) == 0) {
        doctor_say(doctor, DOCTOR_FINE, name, NULL, "%s, version %s", path, version);
    } else {
        doctor_say(doctor, DOCTOR_WRONG, name, programs_advice,
                   "%s is of version %.40s, this is %s", path,
                   version[0] != '\0' ? version : "(none said)", DEFT_VERSION_TEXT);
    }
}

static void programs_one(struct doctor *doctor, const char *name) {
    char path[PATH_MAX];
    char line[PROGRAMS_LINE_BYTES];
    cli_program_find(name, path);
    int code = programs_ask(path, line);
    if (code != 0) {
        doctor_say(doctor, DOCTOR_WRONG, name, programs_advice, "%s cannot be run: %s", path,
                   strerrordesc_np(code));
        return;
    }
    const char *space = strrchr(line, ' ');
    programs_compare(doctor, name, path, space != NULL ? space + 1 : line);
}

/* Beside our own program, as it is built and installed; else wherever the loader finds it. */
static void *programs_library(char out[PATH_MAX]) {
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - sizeof("/../lib/libdeft.so.0"));
    if (n > 0) {
        self[n] = '\0';
        char *slash = strrchr(self, '/');
        if (slash != NULL) {
            (void)snprintf(out, PATH_MAX, "%.*s/../lib/libdeft.so.0", (int)(slash - self), self);
            void *library = dlopen(out, RTLD_NOW | RTLD_LOCAL);
            if (library != NULL) {
                return library;
            }
        }
    }
    (void)snprintf(out, PATH_MAX, "libdeft.so.0");
    return dlopen(out, RTLD_NOW | RTLD_LOCAL);
}

static void programs_libdeft(struct doctor *doctor) {
    char path[PATH_MAX];
    const char *(*version)(void) = NULL;
    void *library = programs_library(path);
    if (library == NULL) {
        const char *why = dlerror();
        doctor_say(doctor, DOCTOR_WRONG, "libdeft", programs_advice, "cannot be loaded: %.200s",
                   why != NULL ? why : "no reason was given");
        return;
    }
    void *symbol = dlsym(library, "deft_version");
    memcpy(&version, &symbol, sizeof(version)); /* ISO C has no cast from data to function */
    programs_compare(doctor, "libdeft", path, version != NULL ? version() : "");
    (void)dlclose(library);
}

void doctor_programs(struct doctor *doctor) {
    programs_one(doctor, "deft-agent");
    programs_one(doctor, "deft-controller");
    programs_libdeft(doctor);
}
