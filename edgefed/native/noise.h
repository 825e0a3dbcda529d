/* What natural noise (natural_noise/oriented.py) needs whatever the instruction set; see pink.h and
 * layers.h. */

#include <math.h>

/* A map, the grid of its frequencies, and the columns of the half that is given. */
#define MAP 512
#define GRID 513
#define ACROSS 257
#define ENVELOPE 4

/* Floats from one row of transforms to the next: no power of two, for the sake of the caches. */
#define LINE 528

/* The factors of GRID; what inverts each modulo the other, times it; and half of the longer one. */
#define LONG 27
#define SHORT 19
#define TO_LONG 190
#define TO_SHORT 324
#define MOST_HALF 13

/* Cosines and sines of a transform of 2 half + 1 points: for points 1 to half and inputs 1 to half. */
typedef struct {
    int half;
    float cosines[MOST_HALF][MOST_HALF], sines[MOST_HALF][MOST_HALF];
} waves;

/* A transform of GRID points: its factors, and the order of points of the inner ones. */
typedef struct {
    waves of_long, of_short;
    int from[SHORT][LONG], middle[SHORT][LONG], inner[SHORT], to[LONG][SHORT];
} plan;

/* Memory for a map; blocks have at most 16 lanes. */
typedef struct {
    plan plan;
    float rows[ENVELOPE * MAP];
    float field[MAP * MAP];
    float sums[MAP * MAP];
    float work[2 * ACROSS * LINE + 4 * GRID * 16];
} pink_room;

static void make_waves(waves *w, int points) {
    w->half = points / 2;
    for (int j = 0; j < w->half; j++)
        for (int k = 0; k < w->half; k++) {
            double angle = 6.283185307179586 * ((j + 1) * (k + 1) % points) / points;
            w->cosines[j][k] = (float)cos(angle);
            w->sines[j][k] = (float)sin(angle);
        }
}

static void make_plan(plan *p) {
    make_waves(&p->of_long, LONG);
    make_waves(&p->of_short, SHORT);
    for (int n = 0; n < SHORT; n++) {
        p->inner[n] = n;
        for (int k = 0; k < LONG; k++) {
            p->from[n][k] = (SHORT * k + LONG * n) % GRID;
            p->middle[n][k] = k * SHORT + n;
            p->to[k][n] = (TO_LONG * k + TO_SHORT * n) % GRID;
        }
    }
}

/* An envelope's values along its rows, at each row of the map: [4][512]. */
static void envelope_rows(const float *weights, const float *bumps, float *rows) {
    for (int row = 0; row < MAP; row++)
        for (int b = 0; b < ENVELOPE; b++) {
            float sum = 0;
            for (int a = 0; a < ENVELOPE; a++)
                sum += weights[row * ENVELOPE + a] * bumps[a * ENVELOPE + b];
            rows[b * MAP + row] = sum;
        }
}

/* Blocks of `step` rows of sums [side][512], times a factor: [side][side], turned. */
static void block_means(const float *sums, int64_t side, int64_t step, float factor, float *means) {
    for (int64_t column = 0; column < side; column++)
        for (int64_t row = 0; row < side; row++) {
            const float *from = sums + column * MAP + row * step;
            float sum = 0;
            for (int64_t k = 0; k < step; k++) sum += from[k];
            means[row * side + column] = sum * factor;
        }
}

/* Layers: sums over channels for nine taps of the next kernels and three colours, filled up. */
#define TAPS 9
#define COLOURS 3
#define SUMS 16

/* Intervals of equal size between the lowest and the highest corner of a table. */
#define BUCKETS 1024

/* What demodulation adds; and by what share the factor of a channel is further from 0 than that of
 * all, if it is computed by itself. */
#define EPSILON 1e-8
#define ODD 1e-5

/* A convolution and its draws, as natural_noise/oriented_draws.py has them. */
typedef struct {
    int64_t side, up, inputs, outputs;
    double strength;
    const int64_t *kernels;     /* [inputs], numbers in the bank */
    const double *style;        /* [inputs] */
    const double *amplitudes;   /* [outputs] */
    const double *biases;       /* [outputs] */
    const double *to_colours;   /* [3][outputs]; NULL where no conversion to colours follows */
    const double *colour_style; /* [outputs] */
} noise_layer;

/* Sums as piecewise linear functions: left of corner k, or between it and the one before, a sum is
 * row k's slope times the value plus its constant. `starts` has for each bucket the number of
 * corners in those before it. */
typedef struct {
    int64_t count;
    float lowest, scale;
    float *corners; /* [count + 1], rising; the last is infinite */
    float *rows;    /* [count + 1][2][SUMS] */
    int64_t *members, *order;
    int starts[BUCKETS + 2];
} noise_table;

/* Memory for an image: of the widest layer and the largest side. */
typedef struct {
    noise_table table;
    double *taps;    /* [channels][TAPS], of a layer */
    double *next;    /* likewise, of the next one */
    double *weights; /* [channels][SUMS] */
    double *factors; /* [channels] */
    float *noise;    /* at the largest side, then at each half of it, and 16 values more */
    float *common;   /* [pixels], and 16 more */
    float *totals;   /* [pixels][SUMS] */
    float *canvas, *row, *colours;
} noise_room;

static void *part(char *start, size_t *used, int64_t count, size_t size) {
    char *found = start ? start + *used : NULL;
    *used += ((size_t)count * size + 63) / 64 * 64;
    return found;
}

/* Lay out memory that begins at `start`, unless that is NULL; return its size. */
static size_t lay_out(noise_room *r, char *start, int64_t channels, int64_t side) {
    size_t used = 0;
    r->taps = part(start, &used, channels * TAPS, sizeof(double));
    r->next = part(start, &used, channels * TAPS, sizeof(double));
    r->weights = part(start, &used, channels * SUMS, sizeof(double));
    r->factors = part(start, &used, channels, sizeof(double));
    r->table.corners = part(start, &used, channels + 1, sizeof(float));
    r->table.rows = part(start, &used, (channels + 1) * 2 * SUMS, sizeof(float));
    r->table.members = part(start, &used, channels, sizeof(int64_t));
    r->table.order = part(start, &used, channels, sizeof(int64_t));
    r->noise = part(start, &used, 2 * side * side + 16, sizeof(float));
    r->common = part(start, &used, side * side + 16, sizeof(float));
    r->totals = part(start, &used, side * side * SUMS, sizeof(float));
    r->canvas = part(start, &used, (side + 3) * (side + 3), sizeof(float));
    r->row = part(start, &used, side + 3, sizeof(float));
    r->colours = part(start, &used, COLOURS * side * side, sizeof(float));
    return used;
}

/* The pink map at each half of its side, down to `smallest`, one behind the other. */
static void halve(float *noise, int64_t side, int64_t smallest) {
    for (; side > smallest; side /= 2) {
        float *to = noise + side * side;
        for (int64_t y = 0; y < side / 2; y++)
            for (int64_t x = 0; x < side / 2; x++) {
                const float *from = noise + 2 * y * side + 2 * x;
                to[y * (side / 2) + x] = ((from[0] + from[side]) + (from[1] + from[side + 1])) / 4;
            }
        noise = to;
    }
}

static const float *noise_at(const float *noise, int64_t largest, int64_t side) {
    for (; largest > side; largest /= 2) noise += largest * largest;
    return noise;
}

/* Which bucket a value is in: it rises with the value, which is all that matters. */
static int bucket(const noise_table *t, float value) {
    float place = (value - t->lowest) * t->scale;
    place = place > 0 ? place : 0;
    return (int)(place < BUCKETS ? place : BUCKETS);
}

/* Sort a table's members by falling bias: roughly by buckets, then exactly. */
static void sort_members(noise_table *t, const double *biases) {
    float highest = -INFINITY;
    t->lowest = INFINITY;
    for (int64_t k = 0; k < t->count; k++) {
        float corner = (float)-biases[t->members[k]];
        t->lowest = corner < t->lowest ? corner : t->lowest;
        highest = corner > highest ? corner : highest;
    }
    t->scale = highest > t->lowest ? BUCKETS / (highest - t->lowest) : 0;
    memset(t->starts, 0, sizeof t->starts);
    for (int64_t k = 0; k < t->count; k++)
        t->starts[bucket(t, (float)-biases[t->members[k]]) + 1]++;
    for (int b = 0; b <= BUCKETS; b++) t->starts[b + 1] += t->starts[b];
    for (int64_t k = 0; k < t->count; k++)
        t->order[t->starts[bucket(t, (float)-biases[t->members[k]])]++] = t->members[k];
    for (int b = BUCKETS + 1; b > 0; b--) t->starts[b] = t->starts[b - 1];
    t->starts[0] = 0;
    for (int64_t k = 1; k < t->count; k++) {
        int64_t own = t->order[k], place = k;
        for (; place && biases[t->order[place - 1]] < biases[own]; place--)
            t->order[place] = t->order[place - 1];
        t->order[place] = own;
    }
}
