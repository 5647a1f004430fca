#include <dsched/convergence.h>

#include <math.h>

int dsched_stability_inside(const double *coefficients, uint32_t degree) {
    double c[DSCHED_MAX_DEGREE + 1];
    if (degree > DSCHED_MAX_DEGREE || coefficients[degree] == 0) {
        return 0;
    }
    for (uint32_t i = 0; i <= degree; i++) {
        c[i] = coefficients[i] / coefficients[degree];
        if (!isfinite(c[i])) {
            return 0;
        }
    }
    /* Each round removes one root: with r = c[0] / c[n], all are inside when |r| < 1 and those of
     * (p - r * reversed p) / z are. The leading coefficient is kept at 1. */
    for (uint32_t n = degree; n > 0; n--) {
        double r = c[0];
        double lead = (1 - r) * (1 + r);
        if (!(fabs(r) < 1)) {
            return 0;
        }
        for (uint32_t low = 0, high = n; low <= high; low++, high--) {
            double a = c[low];
            double b = c[high];
            c[low] = (a - r * b) / lead;
            c[high] = (b - r * a) / lead;
            if (high == 0) {
                break;
            }
        }
        for (uint32_t i = 0; i < n; i++) {
            c[i] = c[i + 1];
        }
        c[n - 1] = 1;
    }
    return 1;
}

/* s is eta * lambda. Polynomials as in the header. */
static int stability_delayed(double s, double m, uint32_t merge, uint32_t delay) {
    uint32_t a = delay / merge;
    double late = (double)(delay % merge) / merge;
    double c[DSCHED_MAX_DEGREE + 1] = {0};
    c[a + 2] += 1;
    c[a + 1] -= 1 + m;
    c[a] += m;
    c[1] += s * (1 - late);
    c[0] += s * late;
    return dsched_stability_inside(c, a + 2);
}

static int stability_apart(double s, double m, uint32_t delay) {
    double c[DSCHED_MAX_DEGREE + 1] = {0};
    c[delay] = 1;
    c[delay - 1] -= m;
    for (uint32_t i = 0; i < delay; i++) {
        c[i] += s;
    }
    return dsched_stability_inside(c, delay);
}

static int stability_holds(enum dsched_rule rule, double s, double m, uint32_t merge,
                           uint32_t delay) {
    if (rule == DSCHED_DELAYED) {
        return stability_delayed(s, m, merge, delay);
    }
    int is_alone = rule == DSCHED_AVERAGED && merge + delay > 1;
    uint32_t behind = delay == 0 ? 1 : (delay + merge - 1) / merge;
    return stability_delayed(s, m, 1, 0) && (!is_alone || stability_apart(s, m, behind));
}

double dsched_stability_edge(enum dsched_rule rule, double momentum, uint32_t merge,
                             uint32_t delay) {
    if (!(momentum >= 0 && momentum < 1) || dsched_rule_name(rule) == NULL || merge < 1 ||
        merge > DSCHED_MAX_MERGE || delay > DSCHED_MAX_DELAY) {
        return 0;
    }
    /* Climbing finds the first edge, should there be a second stable range above; 16 is beyond
     * every edge, the largest being below 8 (merge 4, delay 1, momentum near 1). */
    double stable = 0;
    double above = 1e-6;
    while (above < 16 && stability_holds(rule, above, momentum, merge, delay)) {
        stable = above;
        above *= 1.25;
    }
    for (int i = 0; i < 50 && stable > 0; i++) {
        double middle = (stable + above) / 2;
        if (stability_holds(rule, middle, momentum, merge, delay)) {
            stable = middle;
        } else {
            above = middle;
        }
    }
    return stable;
}
