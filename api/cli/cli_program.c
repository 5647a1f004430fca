#include "cli_program.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/state_dir.h"

void cli_program_find(const char *name, char out[PATH_MAX]) {
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash != NULL) {
        *slash = '\0';
        if (state_dir_join(self, name, out, PATH_MAX, NULL) == DEFT_OK && access(out, X_OK) == 0) {
            return;
        }
    }
    (void)snprintf(out, PATH_MAX, "%s", name);
}
