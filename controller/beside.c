#include "beside.h"

#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

#define BESIDE_USER_BYTES 4096u

enum deft_status beside_open(const char *path, struct store **out, struct deft_error *error) {
    enum deft_status status = store_open(path, out, error);
    return status == DEFT_STATE ? store_open_beside(path, out, error) : status;
}

void beside_who(char out[STORE_TOKEN_NAME_BYTES]) {
    struct passwd entry;
    struct passwd *found = NULL;
    char buffer[BESIDE_USER_BYTES];
    if (getpwuid_r(getuid(), &entry, buffer, sizeof(buffer), &found) == 0 && found != NULL) {
        (void)snprintf(out, STORE_TOKEN_NAME_BYTES, "local:%.50s", entry.pw_name);
    } else {
        (void)snprintf(out, STORE_TOKEN_NAME_BYTES, "local:%u", (unsigned)getuid());
    }
}
