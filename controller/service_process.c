#include "service_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Fields of /proc/self/stat behind the name, counted as in proc(5). */
enum { PROCESS_USER = 14, PROCESS_SYSTEM = 15, PROCESS_START = 22, PROCESS_RESIDENT = 24 };

/* Reads numbers by their place; the name in parentheses may hold anything, so they count from the
 * last parenthesis on. */
static int process_numbers(double *out, const int *places, size_t n) {
    char text[1024];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (fd >= 0) {
        (void)close(fd);
    }
    if (got <= 0) {
        return 0;
    }
    text[got] = '\0';
    const char *at = strrchr(text, ')');
    size_t found = 0;
    for (int place = 2; at != NULL && found < n; place++) {
        if (place == places[found]) {
            out[found++] = strtod(at, NULL);
        }
        at = strchr(at + 1, ' ');
    }
    return found == n;
}

static double process_count_fds(void) {
    double n = -3; /* ".", ".." and the folder's own */
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL) {
        return 0;
    }
    while (readdir(folder) != NULL) {
        n++;
    }
    (void)closedir(folder);
    return n;
}

enum deft_status service_process_read(struct service_process *out) {
    static const int places[] = {PROCESS_USER, PROCESS_SYSTEM, PROCESS_START, PROCESS_RESIDENT};
    double numbers[4];
    struct timespec now;
    struct timespec up;
    double tick_s = 1.0 / (double)sysconf(_SC_CLK_TCK);
    if (!process_numbers(numbers, places, 4) || clock_gettime(CLOCK_REALTIME, &now) != 0 ||
        clock_gettime(CLOCK_BOOTTIME, &up) != 0) {
        return DEFT_IO;
    }
    out->cpu_s = (numbers[0] + numbers[1]) * tick_s;
    out->resident_bytes = numbers[3] * (double)sysconf(_SC_PAGESIZE);
    out->n_fds = process_count_fds();
    out->start_s = (double)(now.tv_sec - up.tv_sec) + numbers[2] * tick_s;
    return DEFT_OK;
}
