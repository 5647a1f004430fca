#include "file_watch.h"

#include <sys/stat.h>

/* What a path leads to in the end: Kubernetes replaces a link to a folder. */
static struct file_watch_facts watch_facts(const char *path) {
    struct file_watch_facts facts = {0};
    struct stat found;
    if (stat(path, &found) == 0) {
        facts.device = found.st_dev;
        facts.inode = found.st_ino;
        facts.size_bytes = found.st_size;
        facts.changed = found.st_mtim;
        facts.is_there = 1;
    }
    return facts;
}

static int watch_equal(const struct file_watch_facts *a, const struct file_watch_facts *b) {
    return a->is_there == b->is_there && a->device == b->device && a->inode == b->inode &&
           a->size_bytes == b->size_bytes && a->changed.tv_sec == b->changed.tv_sec &&
           a->changed.tv_nsec == b->changed.tv_nsec;
}

void file_watch_add(struct file_watch *watch, const char *path) {
    if (path == NULL || watch->n_files == FILE_WATCH_MAX) {
        return;
    }
    size_t i = watch->n_files++;
    watch->paths[i] = path;
    watch->taken[i] = watch_facts(path);
    watch->seen[i] = watch->taken[i];
}

int file_watch_look(struct file_watch *watch) {
    int is_other = 0;
    int is_settled = 1;
    for (size_t i = 0; i < watch->n_files; i++) {
        struct file_watch_facts now = watch_facts(watch->paths[i]);
        is_settled = is_settled && now.is_there && watch_equal(&now, &watch->seen[i]);
        is_other = is_other || !watch_equal(&now, &watch->taken[i]);
        watch->seen[i] = now;
    }
    for (size_t i = 0; is_other && is_settled && i < watch->n_files; i++) {
        watch->taken[i] = watch->seen[i]; /* what comes after is another change */
    }
    return is_other && is_settled;
}

void file_watch_take(struct file_watch *watch) {
    for (size_t i = 0; i < watch->n_files; i++) {
        watch->taken[i] = watch_facts(watch->paths[i]);
        watch->seen[i] = watch->taken[i];
    }
}
