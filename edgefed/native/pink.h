/* A map of pink noise of 512 x 512 values (natural_noise/pink_noise.py), as means of its blocks: for
 * one instruction set; kernels.c includes this after conv.h, with LANES, REGISTERS and NAME.
 *
 * The map is the inverse Fourier transform of a grid of 513 x 513 frequencies, of which half is given,
 * without its last row and column. 513 is 27 * 19, and these have no common divisor: a transform is
 * 19 transforms of 27 points and 27 of 19, without factors between them (Good and Thomas). The lanes
 * of a vector are columns of the grid on the way down, and then rows across, of which two are one
 * complex transform.
 */

#define VF NAME(vf)
#define VI NAME(vi)
#define LOAD NAME(load)
#define STORE NAME(store)
#define TOGETHER (REGISTERS > 16 ? 4 : 2)

/* Polynomials of the given coefficients, the highest first. */
INLINE VF NAME(polynomial)(VF x, const float *coefficients, const int count) {
    VF value = (VF){0} + coefficients[0];
    UNROLL for (int k = 1; k < count; k++) value = value * x + coefficients[k];
    return value;
}

/* Adding this and taking it away rounds to a whole number, which the lowest bits of the sum are. */
#define WHOLE 12582912.0f

/* 2^x, for |x| < 126. */
INLINE VF NAME(power)(VF x) {
    static const float series[] = {1.5252733e-5f,  1.5403530e-4f, 1.3333558e-3f, 9.6181291e-3f,
                                   5.5504109e-2f,  2.4022651e-1f, 6.9314718e-1f, 1.0f};
    VF sum = x + WHOLE;
    VF value = NAME(polynomial)(x - (sum - WHOLE), series, 8);
    return (VF)((VI)value + ((VI)sum << 23));
}

/* The cosine and the sine of 2 pi x. */
INLINE void NAME(wave)(VF x, VF *cosine, VF *sine) {
    static const float of_cosine[] = {2.4433157e-5f, -1.3887316e-3f, 4.1666646e-2f, -0.5f, 1.0f};
    static const float of_sine[] = {-1.9515296e-4f, 8.3321609e-3f, -1.6666655e-1f, 1.0f};
    VF sum = x * 4 + WHOLE;
    VF angle = (x * 4 - (sum - WHOLE)) * 1.57079633f, square = angle * angle;
    VF even = NAME(polynomial)(square, of_cosine, 5);
    VF odd = angle * NAME(polynomial)(square, of_sine, 4);
    VI quarter = (VI)sum, turned = -(quarter & 1);
    *cosine = (VF)((VI)NAME(choose)(turned, odd, even) ^ (((quarter + 1) & 2) << 30));
    *sine = (VF)((VI)NAME(choose)(turned, even, odd) ^ ((quarter & 2) << 30));
}

/* `count` points of a transform and those opposite, from `first` on. */
INLINE void NAME(opposite)(const waves *w, int first, const VF *sums, const VF *gaps, VF zero_re,
                           VF zero_im, float *re, float *im, const int *to, const int count) {
    VF even_re[4], even_im[4], odd_re[4], odd_im[4];
    UNROLL for (int c = 0; c < count; c++) {
        even_re[c] = zero_re, even_im[c] = zero_im;
        odd_re[c] = odd_im[c] = (VF){0};
    }
    const float *cosines = w->cosines[first], *sines = w->sines[first];
    for (int k = 0; k < w->half; k++) {
        UNROLL for (int c = 0; c < count; c++) {
            VF cosine = (VF){0} + cosines[c * MOST_HALF + k];
            VF sine = (VF){0} + sines[c * MOST_HALF + k];
            even_re[c] += cosine * sums[2 * k], even_im[c] += cosine * sums[2 * k + 1];
            odd_re[c] += sine * gaps[2 * k], odd_im[c] += sine * gaps[2 * k + 1];
        }
    }
    UNROLL for (int c = 0; c < count; c++) {
        int one = to[first + c + 1], other = to[2 * w->half - first - c];
        STORE(re + one * LANES, even_re[c] - odd_im[c]);
        STORE(im + one * LANES, even_im[c] + odd_re[c]);
        STORE(re + other * LANES, even_re[c] + odd_im[c]);
        STORE(im + other * LANES, even_im[c] - odd_re[c]);
    }
}

/* An inverse transform of an odd number of points, from the places `from` to the places `to`. */
static void NAME(odd_transform)(const waves *w, const float *re, const float *im, const int *from,
                                float *to_re, float *to_im, const int *to) {
    VF sums[2 * MOST_HALF], gaps[2 * MOST_HALF];
    VF zero_re = LOAD(re + from[0] * LANES), zero_im = LOAD(im + from[0] * LANES);
    VF all_re = zero_re, all_im = zero_im;
    for (int k = 0; k < w->half; k++) {
        int one = from[k + 1] * LANES, other = from[2 * w->half - k] * LANES;
        VF a = LOAD(re + one), b = LOAD(re + other), c = LOAD(im + one), d = LOAD(im + other);
        sums[2 * k] = a + b, sums[2 * k + 1] = c + d;
        gaps[2 * k] = a - b, gaps[2 * k + 1] = c - d;
        all_re += sums[2 * k], all_im += sums[2 * k + 1];
    }
    STORE(to_re + to[0] * LANES, all_re);
    STORE(to_im + to[0] * LANES, all_im);
    int first = 0;
    for (; first + TOGETHER <= w->half; first += TOGETHER)
        NAME(opposite)(w, first, sums, gaps, zero_re, zero_im, to_re, to_im, to, TOGETHER);
    for (; first < w->half; first++)
        NAME(opposite)(w, first, sums, gaps, zero_re, zero_im, to_re, to_im, to, 1);
}

/* Transform `re` and `im` [513][LANES] in place; `work` has room for both. */
static void NAME(transform)(const plan *p, float *re, float *im, float *work) {
    float *middle_re = work, *middle_im = work + GRID * LANES;
    for (int n = 0; n < SHORT; n++)
        NAME(odd_transform)(&p->of_long, re, im, p->from[n], middle_re, middle_im, p->middle[n]);
    for (int k = 0; k < LONG; k++) {
        const float *row_re = middle_re + k * SHORT * LANES, *row_im = row_re + GRID * LANES;
        NAME(odd_transform)(&p->of_short, row_re, row_im, p->inner, re, im, p->to[k]);
    }
}

/* The spectrum's columns from `start` on: re and im [513][LANES]. */
static void NAME(spectrum)(const float *logarithms, const float *phases, float alpha, int start,
                           float *re, float *im) {
    float exponent = -alpha * 1.44269504f;
    for (int row = 0; row < GRID; row++) {
        VF cosine, sine;
        VF amplitude = NAME(power)(LOAD(logarithms + row * ACROSS + start) * exponent);
        NAME(wave)(LOAD(phases + row * ACROSS + start), &cosine, &sine);
        STORE(re + row * LANES, amplitude * cosine);
        STORE(im + row * LANES, amplitude * sine);
    }
    if (start) return;
    re[0] = im[0] = 0;
    for (int row = 1; row <= MAP / 2; row++) {
        re[(GRID - row) * LANES] = re[row * LANES];
        im[(GRID - row) * LANES] = -im[row * LANES];
    }
}

#ifdef __clang__
static void NAME(turn)(const float *block, float *to) {
    for (int lane = 0; lane < LANES; lane++)
        for (int row = 0; row < LANES; row++) to[lane * LINE + row] = block[row * LANES + lane];
}
#else
/* LANES vectors at `block`, turned into rows of LINE values at `to`. Each step interleaves the first
 * half of the vectors with the second. */
static void NAME(turn)(const float *block, float *to) {
    VI low, high;
    VF values[LANES], others[LANES];
    for (int lane = 0; lane < LANES; lane++) {
        low[lane] = lane / 2 + lane % 2 * LANES;
        high[lane] = low[lane] + LANES / 2;
    }
    UNROLL for (int k = 0; k < LANES; k++) values[k] = LOAD(block + k * LANES);
    UNROLL for (int step = 1; step < LANES; step *= 2) {
        UNROLL for (int k = 0; k < LANES / 2; k++) {
            others[2 * k] = __builtin_shuffle(values[k], values[k + LANES / 2], low);
            others[2 * k + 1] = __builtin_shuffle(values[k], values[k + LANES / 2], high);
        }
        UNROLL for (int k = 0; k < LANES; k++) values[k] = others[k];
    }
    UNROLL for (int k = 0; k < LANES; k++) STORE(to + k * LINE, values[k]);
}
#endif

/* The columns' transforms, as rows of `re` and `im` [257][LINE]. */
static void NAME(go_down)(const plan *p, const float *logarithms, const float *phases, float alpha,
                          float *re, float *im, float *work) {
    float *block_re = work, *block_im = work + GRID * LANES;
    for (int column = 0; column < ACROSS; column += LANES) {
        int start = column + LANES <= ACROSS ? column : ACROSS - LANES;
        NAME(spectrum)(logarithms, phases, alpha, start, block_re, block_im);
        NAME(transform)(p, block_re, block_im, work + 2 * GRID * LANES);
        for (int row = 0; row < MAP; row += LANES) {
            NAME(turn)(block_re + row * LANES, re + start * LINE + row);
            NAME(turn)(block_im + row * LANES, im + start * LINE + row);
        }
    }
}

/* Rows `first` and on, and those half a map below: their transforms, re and im [513][LANES]. */
static void NAME(go_across)(const plan *p, const float *re, const float *im, int first,
                            float *block_re, float *block_im, float *work) {
    STORE(block_re, LOAD(re + first));
    STORE(block_im, LOAD(re + first + MAP / 2));
    for (int column = 1; column < ACROSS; column++) {
        const float *here_re = re + column * LINE + first, *here_im = im + column * LINE + first;
        VF a = LOAD(here_re), b = LOAD(here_im);
        VF c = LOAD(here_re + MAP / 2), d = LOAD(here_im + MAP / 2);
        STORE(block_re + column * LANES, a - d);
        STORE(block_im + column * LANES, b + c);
        STORE(block_re + (GRID - column) * LANES, a + d);
        STORE(block_im + (GRID - column) * LANES, c - b);
    }
    NAME(transform)(p, block_re, block_im, work);
}

INLINE double NAME(total)(VF values) {
    double sum = 0;
    UNROLL for (int lane = 0; lane < LANES; lane++) sum += (double)values[lane];
    return sum;
}

/* Rows of the map [512][LANES] less its mean, times the envelope, of which each row has four values:
 * sums of `step` columns to `sums` [side][512], and the moments of all. */
static void NAME(enveloped)(const float *values, float mean, const float *rows, const float *weights,
                            int64_t step, float *sums, double *moments) {
    VF row[ENVELOPE];
    UNROLL for (int k = 0; k < ENVELOPE; k++) row[k] = LOAD(rows + k * MAP);
    for (int64_t column = 0; column < MAP; column += step, sums += MAP) {
        VF sum = (VF){0}, squares = (VF){0};
        for (int64_t c = column; c < column + step; c++) {
            const float *weight = weights + c * ENVELOPE;
            VF envelope = row[0] * weight[0];
            UNROLL for (int k = 1; k < ENVELOPE; k++) envelope += row[k] * weight[k];
            VF value = (LOAD(values + c * LANES) - mean) * envelope;
            sum += value, squares += value * value;
        }
        STORE(sums, sum);
        moments[0] += NAME(total)(sum), moments[1] += NAME(total)(squares);
    }
}

/* All of the map: `field` has for each LANES rows of its upper half [512][LANES], then for those of
 * its lower half. Return the mean. */
static double NAME(whole_map)(const plan *p, const float *logarithms, const float *phases,
                              float alpha, float *field, float *work) {
    float *re = work, *im = re + ACROSS * LINE, *block_re = im + ACROSS * LINE;
    float *block_im = block_re + GRID * LANES, *rest = block_im + GRID * LANES;
    double total = 0;
    NAME(go_down)(p, logarithms, phases, alpha, re, im, block_re);
    for (int first = 0; first < MAP / 2; first += LANES) {
        NAME(go_across)(p, re, im, first, block_re, block_im, rest);
        float *upper = field + first * MAP, *lower = upper + MAP * MAP / 2;
        memcpy(upper, block_re, sizeof(float) * MAP * LANES);
        memcpy(lower, block_im, sizeof(float) * MAP * LANES);
        for (int column = 0; column < MAP; column += 8) {
            VF sum = (VF){0};
            UNROLL for (int c = 0; c < 8; c++) {
                sum += LOAD(upper + (column + c) * LANES) + LOAD(lower + (column + c) * LANES);
            }
            total += NAME(total)(sum);
        }
    }
    return total / (MAP * MAP);
}

/* Arguments as for edgefed_pink_means; `room` is its memory. */
static void NAME(pink_means)(const float *logarithms, const float *phases, double alpha,
                             const float *weights, const float *bumps, int64_t side, float *means,
                             pink_room *room) {
    double mean = NAME(whole_map)(&room->plan, logarithms, phases, (float)alpha, room->field,
                                  room->work);
    double moments[2] = {0, 0}, count = MAP * MAP;
    int64_t step = MAP / side;
    envelope_rows(weights, bumps, room->rows);
    for (int row = 0; row < MAP; row += LANES)
        NAME(enveloped)(room->field + row * MAP, (float)mean, room->rows + row, weights, step,
                        room->sums + row, moments);
    double variance = (moments[1] - moments[0] * moments[0] / count) / (count - 1);
    block_means(room->sums, side, step, (float)(1 / (sqrt(variance) * (double)(step * step))), means);
}

#undef VF
#undef VI
#undef LOAD
#undef STORE
#undef TOGETHER
#undef WHOLE
