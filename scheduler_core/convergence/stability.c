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

struct stability_map {
    double a11, a12, a21, a22;
};

static struct stability_map stability_after(struct stability_map t, uint32_t n) {
    struct stability_map m = {1, 0, 0, 1};
    for (uint32_t i = 0; i < n; i++) {
        m = (struct stability_map){m.a11 * t.a11 + m.a12 * t.a21, m.a11 * t.a12 + m.a12 * t.a22,
                                   m.a21 * t.a11 + m.a22 * t.a21, m.a21 * t.a12 + m.a22 * t.a22};
    }
    return m;
}

/* The distance of a rank from the mean. x = (distance, eta * velocity) at the start of a generation
 * becomes M x - P z^-L D, where D = u x - beta z^-L D is the distance that the generation makes,
 * which is taken back once it lands. The root z = 1 is a distance from before the start, which
 * nothing takes back and no rank has; it is divided out. */
static int stability_apart(double s, double m, uint32_t merge, uint32_t delay) {
    const struct stability_map t = {1 - s, -m, s, m};
    uint32_t late = (delay + merge - 1) / merge; /* L */
    uint32_t n_rest = late * merge - delay;      /* iterations of a generation after the landing */
    struct stability_map gen = stability_after(t, merge);
    struct stability_map rest = stability_after(t, n_rest);
    double trace = gen.a11 + gen.a22;
    double det = gen.a11 * gen.a22 - gen.a12 * gen.a21;
    double beta = rest.a11 - 1;
    double u1 = gen.a11 - 1;
    double u2 = gen.a12;
    double c[DSCHED_MAX_DEGREE + 1] = {0};
    c[late + 2] += 1;
    c[late + 1] -= trace;
    c[late] += det;
    c[2] += beta;
    c[1] += u1 * rest.a11 + u2 * rest.a21 - beta * trace;
    c[0] += beta * det - u1 * (gen.a22 * rest.a11 - gen.a12 * rest.a21) -
            u2 * (gen.a11 * rest.a21 - gen.a21 * rest.a11);
    for (uint32_t i = late + 1; i > 0; i--) {
        c[i] += c[i + 1];
    }
    return dsched_stability_inside(c + 1, late + 1);
}

static int stability_holds(enum dsched_rule rule, double s, double m, uint32_t merge,
                           uint32_t delay) {
    if (rule == DSCHED_DELAYED) {
        return stability_delayed(s, m, merge, delay);
    }
    if (!stability_delayed(s, m, 1, 0)) {
        return 0;
    }
    if (rule == DSCHED_LOOKAHEAD) {
        return delay == 0 || s < 1;
    }
    return rule != DSCHED_AVERAGED || stability_apart(s, m, merge, delay);
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
        above *= 1.1;
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
