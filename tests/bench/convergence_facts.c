/* Facts about convergence.h, for tests/bench/convergence: predictions of the library beside
 * simulations of jobs whose truth is known. usage: convergence_facts PART [ARGUMENT...] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "facts.h"

int facts_read(double *out, int n) {
    char line[512];
    if (fgets(line, sizeof(line), stdin) == NULL) {
        return 0;
    }
    char *at = line;
    for (int i = 0; i < n; i++) {
        char *end;
        out[i] = strtod(at, &end);
        if (end == at) {
            return 0;
        }
        at = end;
    }
    return *at == '\n';
}

static int usage(void) {
    (void)fprintf(stderr, "usage: convergence_facts noise RUNS | merge RUNS | delay RUNS | edge | "
                          "guard RUNS | progress MEMORY BATCH MERGE... | "
                          "watch RULE MERGE DELAY RANKS MOMENTUM\n");
    return 2;
}

int main(int argc, char **argv) {
    const char *part = argc > 1 ? argv[1] : "";
    int n = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0;
    if (strcmp(part, "edge") == 0) {
        return facts_edge();
    }
    if (strcmp(part, "watch") == 0 && argc > 6) {
        return facts_watch(argv[2], (uint32_t)strtoul(argv[3], NULL, 10),
                           (uint32_t)strtoul(argv[4], NULL, 10),
                           (uint32_t)strtoul(argv[5], NULL, 10), strtod(argv[6], NULL));
    }
    if (strcmp(part, "progress") == 0 && argc > 4) {
        return facts_progress(strtod(argv[2], NULL), strtod(argv[3], NULL), argv + 4, argc - 4);
    }
    if (n < 1) {
        return usage();
    }
    if (strcmp(part, "noise") == 0) {
        return facts_noise(n);
    }
    if (strcmp(part, "merge") == 0) {
        return facts_merge(n);
    }
    if (strcmp(part, "delay") == 0) {
        return facts_delay(n);
    }
    if (strcmp(part, "guard") == 0) {
        return facts_guard(n);
    }
    return usage();
}
