/* Whether files were replaced: certificates that others renew, who have no way to send a signal.
 * Knows no clock: whoever looks decides how often. One thread. */
#ifndef FILE_WATCH_H
#define FILE_WATCH_H

#include <stddef.h>
#include <sys/types.h>
#include <time.h>

/* A certificate and a key of the API and of the webhook, and the authorities of clients of each. */
#define FILE_WATCH_MAX 6u

struct file_watch_facts {
    dev_t device;
    ino_t inode;
    off_t size_bytes;
    struct timespec changed;
    int is_there;
};

/* Zeroed is empty. */
struct file_watch {
    const char *paths[FILE_WATCH_MAX];
    size_t n_files;
    struct file_watch_facts taken[FILE_WATCH_MAX]; /* when they were last read */
    struct file_watch_facts seen[FILE_WATCH_MAX];  /* at the last look */
};

/* One more file, as it is now; NULL: none. The path stays the caller's. */
void file_watch_add(struct file_watch *watch, const char *path);
/* 1 when a file is another than it was when it was taken, and all have been as they are for two
 * looks: a certificate and its key are replaced one after the other. Says so once per change. A
 * file that is away is waited for. */
int file_watch_look(struct file_watch *watch);
/* They were read just now, whatever is there. */
void file_watch_take(struct file_watch *watch);

#endif
