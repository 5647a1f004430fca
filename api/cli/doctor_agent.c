#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "doctor.h"

static const char agent_advice[] = "its log says why it ended; training goes on without it, exact";

/* 0 when somebody listens who is us, else the number of an error; EPERM: it is somebody else. */
static int agent_connect(const char *path, uid_t *out_uid) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred peer = {0};
    socklen_t n_peer = sizeof(peer);
    size_t n = strlen(path);
    if (n >= sizeof(address.sun_path)) {
        return ENAMETOOLONG;
    }
    memcpy(address.sun_path, path, n);
    if (path[0] == '@') {
        address.sun_path[0] = '\0';
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return errno;
    }
    int code = 0;
    if (connect(fd, (const struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n_peer) != 0) {
        code = errno;
    } else if (peer.uid != geteuid() && peer.uid != 0) {
        code = EPERM;
    }
    *out_uid = peer.uid;
    (void)close(fd);
    return code;
}

void doctor_agent(struct doctor *doctor, const char *socket_path) {
    struct stat file;
    uid_t uid = 0;
    if (socket_path == NULL || socket_path[0] == '\0') {
        doctor_say(doctor, DOCTOR_ABSENT, "agent", NULL,
                   "DEFT_AGENT_SOCKET names none: this is not inside a job");
        return;
    }
    int code = agent_connect(socket_path, &uid);
    if (code == EPERM) {
        doctor_say(doctor, DOCTOR_WRONG, "agent", "each user's ranks need an agent of that user",
                   "%s is an agent of user %u, and we are %u", socket_path, (unsigned)uid,
                   (unsigned)geteuid());
    } else if (code != 0) {
        doctor_say(doctor, DOCTOR_WRONG, "agent", agent_advice, "nobody answers at %s: %s",
                   socket_path, strerrordesc_np(code));
    } else if (socket_path[0] != '@' && stat(socket_path, &file) == 0 &&
               (file.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        doctor_say(doctor, DOCTOR_NOTE, "agent", "chmod 600", "%s is open to others (mode %04o)",
                   socket_path, file.st_mode & 07777u);
    } else {
        doctor_say(doctor, DOCTOR_FINE, "agent", NULL, "it listens at %s", socket_path);
    }
}
