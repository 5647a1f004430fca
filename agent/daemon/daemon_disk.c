#include "daemon_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/state_dir.h"

/* Longer than every name made here. */
#define DAEMON_DISK_NAME_BYTES 96u
/* "deft-spool/1 CHECKSUM BYTES\n", and the text behind it. */
#define DAEMON_DISK_HEAD_BYTES 51
#define DAEMON_DISK_HEAD       "deft-spool/1 %016" PRIx64 " %020zu\n"
#define DAEMON_DISK_FILE_MOST  (WIRE_MAX_BODY_BYTES + WIRE_ID_BYTES + DAEMON_DISK_HEAD_BYTES)

/* The last integer that every reader of JSON keeps exactly. */
#define DAEMON_DISK_MAX_SEQ UINT64_C(9007199254740991)
/* Nothing else in the folder that the user names is touched. */
#define DAEMON_DISK_SUFFIX       ".spool"
#define DAEMON_DISK_FOLDER_BYTES (WIRE_ID_BYTES + sizeof(DAEMON_DISK_SUFFIX))

struct daemon_disk {
    int root_fd;
    int dir_fd;
    int lock_fd;
    char folder[DAEMON_DISK_FOLDER_BYTES];
};

void daemon_disk_host(char out[DAEMON_DISK_HOST_BYTES]) {
    if (gethostname(out, DAEMON_DISK_HOST_BYTES) != 0 || out[0] == '\0') {
        (void)snprintf(out, DAEMON_DISK_HOST_BYTES, "localhost");
    }
    out[DAEMON_DISK_HOST_BYTES - 1] = '\0';
}

static uint64_t daemon_disk_round(uint64_t n_bytes) {
    return (n_bytes + DAEMON_DISK_BLOCK_BYTES - 1) / DAEMON_DISK_BLOCK_BYTES *
           DAEMON_DISK_BLOCK_BYTES;
}

uint64_t daemon_disk_file_bytes(size_t n_text_bytes) {
    return daemon_disk_round((uint64_t)n_text_bytes + DAEMON_DISK_HEAD_BYTES);
}

/* FNV-1a (RFC draft-eastlake-fnv): tells torn files, not forged ones. */
static uint64_t daemon_disk_checksum(const char *bytes, size_t n_bytes) {
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n_bytes; i++) {
        sum = (sum ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    }
    return sum;
}

/* --- names --------------------------------------------------------------------------------------
 */

static void daemon_disk_start_name(uint32_t start, char out[DAEMON_DISK_NAME_BYTES]) {
    (void)snprintf(out, DAEMON_DISK_NAME_BYTES, "%06" PRIu32 ".start", start);
}

static void daemon_disk_report_name(const struct daemon_disk_name *name,
                                    char out[DAEMON_DISK_NAME_BYTES]) {
    (void)snprintf(out, DAEMON_DISK_NAME_BYTES,
                   "%06" PRIu32 "-%016" PRIu64 "-%" PRIu32 "-%" PRIu32 "-%d.report", name->start,
                   name->seq, name->n_iterations, name->n_events, name->has_loss);
}

/* 1 and the number, with `*text` behind `end`. */
static int daemon_disk_number(const char **text, const char *end, uint64_t most, uint64_t *out) {
    char *rest = NULL;
    if (**text < '0' || **text > '9') {
        return 0;
    }
    errno = 0;
    *out = strtoull(*text, &rest, 10);
    if (errno != 0 || *out > most || strncmp(rest, end, strlen(end)) != 0) {
        return 0;
    }
    *text = rest + strlen(end);
    return 1;
}

static int daemon_disk_parse_report(const char *text, struct daemon_disk_name *out) {
    uint64_t numbers[5];
    const uint64_t most[5] = {UINT32_MAX, DAEMON_DISK_MAX_SEQ, UINT32_MAX, UINT32_MAX, 1};
    for (int i = 0; i < 5; i++) {
        if (!daemon_disk_number(&text, i < 4 ? "-" : ".report", most[i], &numbers[i])) {
            return 0;
        }
    }
    *out = (struct daemon_disk_name){.start = (uint32_t)numbers[0],
                                     .seq = numbers[1],
                                     .n_iterations = (uint32_t)numbers[2],
                                     .n_events = (uint32_t)numbers[3],
                                     .has_loss = (int)numbers[4]};
    return *text == '\0' && out->seq > 0;
}

static int daemon_disk_parse_start(const char *text, uint32_t *out) {
    uint64_t number = 0;
    if (!daemon_disk_number(&text, ".start", UINT32_MAX, &number) || *text != '\0') {
        return 0;
    }
    *out = (uint32_t)number;
    return 1;
}

/* --- folders ------------------------------------------------------------------------------------
 */

/* DEFT_STATE when its agent lives. */
static enum deft_status daemon_disk_enter(int root_fd, const char *folder, struct daemon_disk **out,
                                          struct deft_error *error) {
    struct stat info;
    struct daemon_disk *disk = calloc(1, sizeof(*disk));
    if (disk == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a spool folder");
    }
    enum deft_status status = DEFT_OK;
    disk->root_fd = fcntl(root_fd, F_DUPFD_CLOEXEC, 0);
    disk->dir_fd = openat(root_fd, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    disk->lock_fd = -1;
    (void)snprintf(disk->folder, sizeof(disk->folder), "%s", folder);
    if (disk->root_fd < 0 || disk->dir_fd < 0 || fstat(disk->dir_fd, &info) != 0) {
        status = deft_fail(error, DEFT_IO, errno, "the spool folder '%.100s' cannot be opened: %s",
                           folder, strerror(errno));
    } else if (info.st_uid != geteuid()) {
        status = deft_fail(error, DEFT_INVALID, 0,
                           "the spool folder '%.100s' belongs to another user", folder);
    }
    if (status == DEFT_OK) {
        disk->lock_fd = openat(disk->dir_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
                               S_IRUSR | S_IWUSR);
        if (disk->lock_fd < 0) {
            status =
                deft_fail(error, DEFT_IO, errno, "the spool folder '%.100s' cannot be locked: %s",
                          folder, strerror(errno));
        } else if (flock(disk->lock_fd, LOCK_EX | LOCK_NB) != 0) {
            status = deft_fail(error, DEFT_STATE, errno,
                               "the spool folder '%.100s' is in use by another agent", folder);
        }
    }
    if (status == DEFT_OK) {
        *out = disk;
        return DEFT_OK;
    }
    (void)close(disk->lock_fd);
    (void)close(disk->dir_fd);
    (void)close(disk->root_fd);
    free(disk);
    return status;
}

enum deft_status daemon_disk_make(const char *dir, const char *agent, struct daemon_disk **out,
                                  struct deft_error *error) {
    enum deft_status status = state_dir_make(dir, error);
    if (status != DEFT_OK) {
        return status;
    }
    char folder[DAEMON_DISK_FOLDER_BYTES];
    (void)snprintf(folder, sizeof(folder), "%s" DAEMON_DISK_SUFFIX, agent);
    int root_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root_fd < 0 || (mkdirat(root_fd, folder, S_IRWXU) != 0 && errno != EEXIST)) {
        status = deft_fail(error, DEFT_IO, errno, "a spool folder in '%.200s' cannot be made: %s",
                           dir, strerror(errno));
    }
    if (status == DEFT_OK) {
        status = daemon_disk_enter(root_fd, folder, out, error);
    }
    if (root_fd >= 0) {
        (void)close(root_fd);
    }
    return status;
}

/* Calls `each` for every name in the folder. */
static int daemon_disk_each(int dir_fd, void (*each)(void *context, int dir_fd, const char *name),
                            void *context) {
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL) {
        (void)close(fd);
        return 0;
    }
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (entry->d_name[0] != '.') {
            each(context, dir_fd, entry->d_name);
        }
    }
    (void)closedir(dir);
    return 1;
}

static void daemon_disk_drop_file(void *context, int dir_fd, const char *name) {
    uint32_t start;
    struct daemon_disk_name report;
    const int *worthless = context;
    size_t length = strlen(name);
    int is_torn = length > 4 && strcmp(name + length - 4, ".new") == 0;
    if (is_torn || (*worthless && (daemon_disk_parse_start(name, &start) ||
                                   daemon_disk_parse_report(name, &report)))) {
        (void)unlinkat(dir_fd, name, 0);
    }
}

static void daemon_disk_count_file(void *context, int dir_fd, const char *name) {
    (void)dir_fd;
    *(size_t *)context += strcmp(name, "lock") != 0;
}

void daemon_disk_close(struct daemon_disk *disk, int worthless) {
    size_t n_files = 0;
    if (disk == NULL) {
        return;
    }
    (void)daemon_disk_each(disk->dir_fd, daemon_disk_drop_file, &worthless);
    if (daemon_disk_each(disk->dir_fd, daemon_disk_count_file, &n_files) && n_files == 0) {
        (void)unlinkat(disk->dir_fd, "lock", 0);
        (void)unlinkat(disk->root_fd, disk->folder, AT_REMOVEDIR);
    }
    (void)close(disk->lock_fd);
    (void)close(disk->dir_fd);
    (void)close(disk->root_fd);
    free(disk);
}

/* --- files --------------------------------------------------------------------------------------
 */

static int daemon_disk_write_all(int fd, const char *bytes, size_t n_bytes) {
    while (n_bytes > 0) {
        ssize_t n = write(fd, bytes, n_bytes);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            errno = n == 0 ? ENOSPC : errno;
            return -1;
        }
        bytes += n;
        n_bytes -= (size_t)n;
    }
    return 0;
}

/* `first` (may be empty) and `second` are one text. */
static enum deft_status daemon_disk_write(struct daemon_disk *disk, const char *name,
                                          const char *first, const char *second,
                                          struct deft_error *error) {
    char fresh[DAEMON_DISK_NAME_BYTES + 4];
    char head[DAEMON_DISK_HEAD_BYTES + 1];
    size_t n_bytes = strlen(first) + strlen(second);
    char *text = malloc(n_bytes + 1);
    if (text == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a file of %zu bytes", n_bytes);
    }
    memcpy(text, first, strlen(first));
    memcpy(text + strlen(first), second, strlen(second) + 1);
    (void)snprintf(fresh, sizeof(fresh), "%s.new", name);
    int n_head = snprintf(head, sizeof(head), DAEMON_DISK_HEAD, daemon_disk_checksum(text, n_bytes),
                          n_bytes);
    int fd = openat(disk->dir_fd, fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
                    S_IRUSR | S_IWUSR);
    int failed = fd < 0 || daemon_disk_write_all(fd, head, (size_t)n_head) != 0 ||
                 daemon_disk_write_all(fd, text, n_bytes) != 0;
    int code = errno;
    if (fd >= 0 && close(fd) != 0 && !failed) {
        failed = 1; /* network file systems tell it here */
        code = errno;
    }
    if (!failed && renameat(disk->dir_fd, fresh, disk->dir_fd, name) != 0) {
        failed = 1;
        code = errno;
    }
    free(text);
    if (failed) {
        (void)unlinkat(disk->dir_fd, fresh, 0);
        return deft_fail(error, DEFT_IO, code, "a spool file cannot be written: %s",
                         strerror(code));
    }
    return DEFT_OK;
}

static enum deft_status daemon_disk_slurp(int fd, size_t n_bytes, char *out,
                                          struct deft_error *error) {
    size_t n_read = 0;
    while (n_read < n_bytes) {
        ssize_t n = read(fd, out + n_read, n_bytes - n_read);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return deft_fail(error, DEFT_IO, n < 0 ? errno : 0, "a spool file cannot be read: %s",
                             n < 0 ? strerror(errno) : "it has become shorter");
        }
        n_read += (size_t)n;
    }
    out[n_bytes] = '\0';
    return DEFT_OK;
}

/* Moves the text behind the head to the begin of `bytes` when it is whole. */
static enum deft_status daemon_disk_unwrap(char *bytes, size_t n_bytes, const char *name,
                                           size_t *out_bytes, struct deft_error *error) {
    char head[DAEMON_DISK_HEAD_BYTES + 1];
    const char *end = memchr(bytes, '\n', n_bytes);
    size_t n_head = end != NULL ? (size_t)(end - bytes) + 1 : 0;
    size_t n_text = n_bytes - n_head;
    int n = snprintf(head, sizeof(head), DAEMON_DISK_HEAD,
                     daemon_disk_checksum(bytes + n_head, n_text), n_text);
    if (n_head == 0 || (size_t)n != n_head || n_head >= sizeof(head) ||
        memcmp(head, bytes, n_head) != 0 || memchr(bytes + n_head, '\0', n_text) != NULL) {
        return deft_fail(error, DEFT_INVALID, 0, "the spool file '%.80s' is torn", name);
    }
    memmove(bytes, bytes + n_head, n_text + 1);
    *out_bytes = n_text;
    return DEFT_OK;
}

static enum deft_status daemon_disk_read(struct daemon_disk *disk, const char *name, char **out,
                                         size_t *out_bytes, struct deft_error *error) {
    struct stat info = {0};
    char *bytes = NULL;
    int fd = openat(disk->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    enum deft_status status = DEFT_OK;
    if (fd < 0 || fstat(fd, &info) != 0) {
        status = deft_fail(error, DEFT_IO, errno, "the spool file '%.80s' cannot be read: %s", name,
                           strerror(errno));
    } else if (!S_ISREG(info.st_mode) || info.st_size > (off_t)DAEMON_DISK_FILE_MOST) {
        status = deft_fail(error, DEFT_INVALID, 0, "the spool file '%.80s' is none of ours", name);
    } else {
        bytes = malloc((size_t)info.st_size + 1);
        status = bytes != NULL ? daemon_disk_slurp(fd, (size_t)info.st_size, bytes, error)
                               : deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a spool file");
    }
    if (status == DEFT_OK && bytes != NULL) {
        status = daemon_disk_unwrap(bytes, (size_t)info.st_size, name, out_bytes, error);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (status != DEFT_OK) {
        free(bytes);
        return status;
    }
    *out = bytes;
    return DEFT_OK;
}

enum deft_status daemon_disk_write_start(struct daemon_disk *disk, uint32_t start, const char *job,
                                         const char *registration, struct deft_error *error) {
    char name[DAEMON_DISK_NAME_BYTES];
    char line[WIRE_ID_BYTES + 1];
    daemon_disk_start_name(start, name);
    (void)snprintf(line, sizeof(line), "%s\n", job); /* job ids have no control characters */
    return daemon_disk_write(disk, name, line, registration, error);
}

enum deft_status daemon_disk_write_report(struct daemon_disk *disk,
                                          const struct daemon_disk_name *name, const char *json,
                                          struct deft_error *error) {
    char text[DAEMON_DISK_NAME_BYTES];
    daemon_disk_report_name(name, text);
    return daemon_disk_write(disk, text, "", json, error);
}

enum deft_status daemon_disk_read_start(struct daemon_disk *disk, uint32_t start,
                                        char out_job[WIRE_ID_BYTES], char **out_registration,
                                        struct deft_error *error) {
    char name[DAEMON_DISK_NAME_BYTES];
    char *text = NULL;
    size_t n_bytes = 0;
    daemon_disk_start_name(start, name);
    enum deft_status status = daemon_disk_read(disk, name, &text, &n_bytes, error);
    if (status != DEFT_OK || text == NULL) {
        return status;
    }
    const char *end = memchr(text, '\n', n_bytes);
    size_t n_job = end != NULL ? (size_t)(end - text) : WIRE_ID_BYTES;
    if (n_job == 0 || n_job >= WIRE_ID_BYTES) {
        free(text);
        return deft_fail(error, DEFT_INVALID, 0, "the spool file '%.80s' is none of ours", name);
    }
    memcpy(out_job, text, n_job);
    out_job[n_job] = '\0';
    memmove(text, text + n_job + 1, n_bytes - n_job);
    *out_registration = text;
    return DEFT_OK;
}

enum deft_status daemon_disk_read_report(struct daemon_disk *disk,
                                         const struct daemon_disk_name *name, char **out_json,
                                         size_t *out_bytes, struct deft_error *error) {
    char text[DAEMON_DISK_NAME_BYTES];
    daemon_disk_report_name(name, text);
    return daemon_disk_read(disk, text, out_json, out_bytes, error);
}

void daemon_disk_remove_start(struct daemon_disk *disk, uint32_t start) {
    char name[DAEMON_DISK_NAME_BYTES];
    daemon_disk_start_name(start, name);
    (void)unlinkat(disk->dir_fd, name, 0);
}

void daemon_disk_remove_report(struct daemon_disk *disk, const struct daemon_disk_name *name) {
    char text[DAEMON_DISK_NAME_BYTES];
    daemon_disk_report_name(name, text);
    (void)unlinkat(disk->dir_fd, text, 0);
}

/* --- what is there ------------------------------------------------------------------------------
 */

struct daemon_disk_listing {
    struct daemon_disk_found *items;
    size_t n_items;
    size_t capacity;
    int has_failed;
};

static void daemon_disk_list_file(void *context, int dir_fd, const char *name) {
    struct daemon_disk_listing *list = context;
    struct daemon_disk_name report;
    struct stat info;
    if (!daemon_disk_parse_report(name, &report) ||
        fstatat(dir_fd, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        return;
    }
    if (list->n_items == list->capacity) {
        size_t grown = list->capacity < 64 ? 64 : list->capacity * 2;
        struct daemon_disk_found *items = realloc(list->items, grown * sizeof(*items));
        if (items == NULL) {
            list->has_failed = 1;
            return;
        }
        list->items = items;
        list->capacity = grown;
    }
    list->items[list->n_items++] = (struct daemon_disk_found){
        .name = report, .n_bytes = daemon_disk_round((uint64_t)info.st_size)};
}

static int daemon_disk_compare(const void *left, const void *right) {
    const struct daemon_disk_name *a = &((const struct daemon_disk_found *)left)->name;
    const struct daemon_disk_name *b = &((const struct daemon_disk_found *)right)->name;
    if (a->start != b->start) {
        return a->start < b->start ? -1 : 1;
    }
    return (a->seq > b->seq) - (a->seq < b->seq);
}

enum deft_status daemon_disk_list(struct daemon_disk *disk, struct daemon_disk_found **out,
                                  size_t *out_n, struct deft_error *error) {
    struct daemon_disk_listing list = {0};
    if (!daemon_disk_each(disk->dir_fd, daemon_disk_list_file, &list) || list.has_failed) {
        free(list.items);
        return deft_fail(error, DEFT_IO, errno, "the spool folder '%.100s' cannot be listed",
                         disk->folder);
    }
    if (list.n_items > 0) {
        qsort(list.items, list.n_items, sizeof(*list.items), daemon_disk_compare);
    }
    *out = list.items;
    *out_n = list.n_items;
    return DEFT_OK;
}

struct daemon_disk_search {
    const char *job;
    char host[DAEMON_DISK_HOST_BYTES];
    struct daemon_disk *disk;
    int is_of_job;
    void (*found)(void *context, struct daemon_disk *disk);
    void *context;
};

static void daemon_disk_look_at_start(void *context, int dir_fd, const char *name) {
    struct daemon_disk_search *search = context;
    char job[WIRE_ID_BYTES];
    char *registration = NULL;
    uint32_t start;
    (void)dir_fd;
    if (!search->is_of_job && daemon_disk_parse_start(name, &start) &&
        daemon_disk_read_start(search->disk, start, job, &registration, NULL) == DEFT_OK) {
        search->is_of_job = strcmp(job, search->job) == 0;
        free(registration);
    }
}

static void daemon_disk_look_at_folder(void *context, int root_fd, const char *name) {
    struct daemon_disk_search *search = context;
    struct daemon_disk *disk = NULL;
    struct stat info;
    size_t n_host = strlen(search->host);
    size_t n_name = strlen(name);
    size_t n_suffix = strlen(DAEMON_DISK_SUFFIX);
    if (n_name <= n_suffix || n_name >= DAEMON_DISK_FOLDER_BYTES ||
        strcmp(name + n_name - n_suffix, DAEMON_DISK_SUFFIX) != 0) {
        return;
    }
    if (fstatat(root_fd, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(info.st_mode) ||
        info.st_uid != geteuid()) {
        return;
    }
    deft_ignore(daemon_disk_enter(root_fd, name, &disk, NULL));
    if (disk == NULL) { /* its agent lives, say */
        return;
    }
    int is_old = clock_wall_ns() / 1000000000 - info.st_mtime > DAEMON_DISK_KEEP_S;
    /* Locks of another host's agents cannot be relied on where homes are on a network. */
    int is_ours = strncmp(name, search->host, n_host) == 0 && name[n_host] == '-';
    search->disk = disk;
    search->is_of_job = 0;
    if (!is_old && is_ours) {
        (void)daemon_disk_each(disk->dir_fd, daemon_disk_look_at_start, search);
    }
    if (search->is_of_job) {
        search->found(search->context, disk);
    } else {
        daemon_disk_close(disk, is_old);
    }
}

void daemon_disk_scan(const char *dir, const char *job,
                      void (*found)(void *context, struct daemon_disk *disk), void *context) {
    struct daemon_disk_search search = {.job = job, .found = found, .context = context};
    daemon_disk_host(search.host);
    int root_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root_fd >= 0) {
        (void)daemon_disk_each(root_fd, daemon_disk_look_at_folder, &search);
        (void)close(root_fd);
    }
}
