/* Convolution of stride 1, 2x2 max-pooling and ReLU in one, for few channels: for one kind of vector.
 *
 * kernels.c includes this once for each instruction set, with
 *   LANES      floats in a vector,
 *   REGISTERS  vectors that the processor holds at once,
 *   NAME(x)    the name of x for this instruction set.
 *
 * Inputs are planar here: channel, row, column. The lanes of a vector are the columns of the pooled
 * output, or its channels, whichever wastes fewer. With `follow`, codes are given: each output is the
 * value that they tell of, and bias may be NULL for none. The way back is in back.h.
 */

typedef float NAME(vf) __attribute__((vector_size(4 * LANES)));
typedef int32_t NAME(vi) __attribute__((vector_size(4 * LANES)));
typedef uint8_t NAME(vb) __attribute__((vector_size(LANES)));

#define VF NAME(vf)
#define VI NAME(vi)
#define LOAD NAME(load)
#define STORE NAME(store)

INLINE VF LOAD(const float *from) {
    VF value;
    memcpy(&value, from, sizeof value);
    return value;
}

INLINE void STORE(float *to, VF value) { memcpy(to, &value, sizeof value); }

INLINE VF NAME(choose)(VI mask, VF yes, VF no) {
    return (VF)((mask & (VI)yes) | (~mask & (VI)no));
}

/* The maximum of a window and where it is; the first of equals, the last NaN, as in torch. */
INLINE void NAME(pool)(const VF *four, float *value, uint8_t *code) {
    VF best = four[0];
    VI where = (VI){0};
    UNROLL for (int k = 1; k < 4; k++) {
        VI mask = (four[k] > best) | (four[k] != four[k]);
        best = NAME(choose)(mask, four[k], best);
        where = (mask & ((VI){0} + k)) | (~mask & where);
    }
    VI dead = best <= (VF){0};
    where = (dead & ((VI){0} + DEAD)) | (~dead & where);
    STORE(value, (VF)(~dead & (VI)best));
    NAME(vb) narrow = __builtin_convertvector(where, NAME(vb));
    memcpy(code, &narrow, sizeof narrow);
}

/* The value of a window where its code says; 0 where it is dead. */
INLINE void NAME(take)(const VF *four, float *value, const uint8_t *code) {
    NAME(vb) narrow;
    memcpy(&narrow, code, sizeof narrow);
    VI where = __builtin_convertvector(narrow, VI);
    VF taken = (VF){0};
    UNROLL for (int k = 0; k < 4; k++) taken = NAME(choose)(where == k, four[k], taken);
    STORE(value, taken);
}

INLINE void NAME(finish)(const VF *four, float *value, uint8_t *code, const int follow) {
    if (follow)
        NAME(take)(four, value, code);
    else
        NAME(pool)(four, value, code);
}

/* -- forward, lanes are columns ----------------------------------------------------------------- */

/* One vector of pooled columns for `count` channels. `rows`: even columns, then odd ones, of each
 * input row; `w`: [channel in][ky][kx][count]. */
INLINE void NAME(columns)(const shape *s, const float *rows, size_t half, const float *w,
                          const float *bias, float *value, uint8_t *code, const int kernel,
                          const int count, const int follow) {
    VF sums[6][4];
    UNROLL for (int c = 0; c < count; c++) {
        UNROLL for (int k = 0; k < 4; k++) sums[c][k] = (VF){0} + (bias ? bias[c] : 0);
    }
    for (int64_t plane = 0; plane < s->in; plane++) {
        const float *from = rows + (size_t)plane * s->tall * 2 * half;
        for (int row = 0; row <= kernel; row++, from += 2 * half) {
            VF in[6];
            UNROLL for (int t = 0; t <= kernel; t++) in[t] = LOAD(from + (t & 1) * half + t / 2);
            UNROLL for (int dy = 0; dy < 2; dy++) {
                int ky = row - dy;
                if (ky < 0 || ky >= kernel) continue;
                const float *tap = w + (plane * kernel + ky) * kernel * count;
                UNROLL for (int kx = 0; kx < kernel; kx++) {
                    UNROLL for (int c = 0; c < count; c++) {
                        VF factor = (VF){0} + tap[kx * count + c];
                        sums[c][2 * dy] += factor * in[kx];
                        sums[c][2 * dy + 1] += factor * in[kx + 1];
                    }
                }
            }
        }
    }
    UNROLL for (int c = 0; c < count; c++) {
        NAME(finish)(sums[c], value + c * LANES, code + c * LANES, follow);
    }
}

static void NAME(columns_of)(const shape *s, const float *rows, size_t half, const float *w,
                             const float *bias, float *value, uint8_t *code, int count,
                             int follow) {
#define COLUMNS(k, n)                                                         \
    if (s->kernel == k && count == n && follow)                               \
        NAME(columns)(s, rows, half, w, bias, value, code, k, n, 1);          \
    else if (s->kernel == k && count == n)                                    \
        NAME(columns)(s, rows, half, w, bias, value, code, k, n, 0)
    COLUMNS(3, 1);
    COLUMNS(5, 1);
    COLUMNS(3, 2);
    COLUMNS(5, 2);
#if REGISTERS > 16
    COLUMNS(3, 4);
    COLUMNS(5, 4);
    COLUMNS(3, 6);
    COLUMNS(5, 6);
#endif
#undef COLUMNS
}

INLINE int NAME(columns_count)(int64_t left) {
    if (REGISTERS > 16 && left >= 6) return 6;
    if (REGISTERS > 16 && left >= 4) return 4;
    return left >= 2 ? 2 : 1;
}

static int NAME(forward_columns)(const shape *s, const float *x, const int64_t *strides,
                                 const float *weight, const float *bias, float *out,
                                 uint8_t *codes, int follow) {
    size_t half = (size_t)s->wide / 2 + 1 + LANES + 4, taps = (size_t)(s->kernel * s->kernel * s->in);
    size_t plane = (size_t)(s->rows * s->columns);
    float *space = calloc((size_t)s->in * s->tall * 2 * half + taps * s->out, sizeof(float));
    if (!space) return -1;
    float *rows = space, *w = space + (size_t)s->in * s->tall * 2 * half;
    float *to = w;
    for (int64_t c = 0, n; c < s->out; c += n) {
        n = NAME(columns_count)(s->out - c);
        for (size_t t = 0; t < taps; t++)
            for (int64_t k = 0; k < n; k++) *to++ = weight[(c + k) * taps + t];
    }
    for (int64_t b = 0; b < s->batch; b++) {
        split_rows(s, x + b * strides[0], strides, rows, half);
        for (int64_t py = 0; py < s->rows; py++) {
            for (int64_t px = 0; px < s->columns; px += LANES) {
                const float *tap = w;
                int64_t some = s->columns - px < LANES ? s->columns - px : LANES;
                for (int64_t c = 0, n; c < s->out; c += n, tap += n * taps) {
                    float value[6 * LANES];
                    uint8_t code[6 * LANES] = {0};
                    n = NAME(columns_count)(s->out - c);
                    size_t place = (b * s->out + c) * plane + py * s->columns + px;
                    for (int64_t k = 0; k < n && follow; k++)
                        memcpy(code + k * LANES, codes + place + k * plane, some);
                    NAME(columns_of)(s, rows + (2 * py) * 2 * half + px, half, tap,
                                     bias ? bias + c : NULL, value, code, (int)n, follow);
                    for (int64_t k = 0; k < n; k++) {
                        memcpy(out + place + k * plane, value + k * LANES, some * sizeof(float));
                        if (!follow) memcpy(codes + place + k * plane, code + k * LANES, some);
                    }
                }
            }
        }
    }
    free(space);
    return 0;
}

/* -- forward, lanes are channels ---------------------------------------------------------------- */

/* `count` neighbouring windows for one vector of channels; `w`: [channel in][ky][kx][step]. */
INLINE void NAME(channels)(const shape *s, const float *x, size_t row, size_t plane, const float *w,
                           size_t step, VF bias, float *value, uint8_t *code, size_t apart,
                           const int kernel, const int count, const int follow) {
    VF sums[4][4];
    UNROLL for (int p = 0; p < count; p++) {
        UNROLL for (int k = 0; k < 4; k++) sums[p][k] = bias;
    }
    for (int64_t c = 0; c < s->in; c++, x += plane) {
        const float *from = x;
        for (int ky = 0; ky < kernel; ky++, from += row) {
            UNROLL for (int kx = 0; kx < kernel; kx++, w += step) {
                VF tap = LOAD(w);
                UNROLL for (int p = 0; p < count; p++) {
                    UNROLL for (int k = 0; k < 4; k++) {
                        sums[p][k] += tap * from[(k / 2) * row + 2 * p + k % 2 + kx];
                    }
                }
            }
        }
    }
    UNROLL for (int p = 0; p < count; p++) {
        NAME(finish)(sums[p], value + p * apart, code + p * apart, follow);
    }
}

static void NAME(channels_of)(const shape *s, const float *x, size_t row, size_t plane,
                              const float *w, size_t step, const float *bias, float *value,
                              uint8_t *code, int count, int follow) {
#define CHANNELS(k, n)                                                                          \
    if (s->kernel == k && count == n && follow)                                                 \
        NAME(channels)(s, x, row, plane, w, step, LOAD(bias), value, code, step, k, n, 1);      \
    else if (s->kernel == k && count == n)                                                      \
        NAME(channels)(s, x, row, plane, w, step, LOAD(bias), value, code, step, k, n, 0)
    CHANNELS(3, 1);
    CHANNELS(5, 1);
    CHANNELS(3, 2);
    CHANNELS(5, 2);
    CHANNELS(3, 3);
    CHANNELS(5, 3);
#if REGISTERS > 16
    CHANNELS(3, 4);
    CHANNELS(5, 4);
#endif
#undef CHANNELS
}

static int NAME(forward_channels)(const shape *s, const float *x, const int64_t *strides,
                                  const float *weight, const float *bias, float *out,
                                  uint8_t *codes, int follow) {
    size_t taps = (size_t)(s->kernel * s->kernel * s->in), windows = (size_t)(s->rows * s->columns);
    size_t step = (size_t)((s->out + LANES - 1) / LANES * LANES);
    size_t plane = (size_t)(s->tall * s->wide);
    float *space = calloc(taps * step + step + plane * s->in + 2 * windows * step, sizeof(float));
    if (!space) return -1;
    float *w = space, *offset = w + taps * step, *padded = offset + step;
    float *value = padded + plane * s->in;
    uint8_t *code = (uint8_t *)(value + windows * step);
    for (int64_t c = 0; c < s->out; c++) {
        offset[c] = bias ? bias[c] : 0;
        for (size_t t = 0; t < taps; t++) w[t * step + c] = weight[c * taps + t];
    }
    int most = REGISTERS > 16 ? 4 : 3;
    int64_t blocks = (s->columns + most - 1) / most;
    for (int64_t b = 0; b < s->batch; b++) {
        const float *from = planes(s, x + b * strides[0], strides, padded);
        uint8_t *codes_here = codes + b * s->out * windows;
        for (int64_t c = 0; c < s->out && follow; c++)
            for (size_t p = 0; p < windows; p++) code[p * step + c] = codes_here[c * windows + p];
        for (size_t c = 0; c < step; c += LANES) {
            for (int64_t py = 0; py < s->rows; py++) {
                for (int64_t k = 0; k < blocks; k++) {
                    int64_t px = k * s->columns / blocks, end = (k + 1) * s->columns / blocks;
                    size_t place = (py * s->columns + px) * step + c;
                    NAME(channels_of)(s, from + 2 * py * s->wide + 2 * px, s->wide, plane, w + c,
                                      step, offset + c, value + place, code + place,
                                      (int)(end - px), follow);
                }
            }
        }
        float *to = out + b * s->out * windows;
        for (int64_t c = 0; c < s->out; c++)
            for (size_t p = 0; p < windows; p++) *to++ = value[p * step + c];
        for (int64_t c = 0; c < s->out && !follow; c++)
            for (size_t p = 0; p < windows; p++) codes_here[c * windows + p] = code[p * step + c];
    }
    free(space);
    return 0;
}

static int NAME(forward)(const shape *s, const float *x, const int64_t *strides,
                         const float *weight, const float *bias, float *out, uint8_t *codes,
                         int follow) {
    int64_t by_columns = (s->columns + LANES - 1) / LANES * LANES * s->out;
    int64_t by_channels = (s->out + LANES - 1) / LANES * LANES * s->columns;
    return by_columns < by_channels
               ? NAME(forward_columns)(s, x, strides, weight, bias, out, codes, follow)
               : NAME(forward_channels)(s, x, strides, weight, bias, out, codes, follow);
}

#undef VF
#undef VI
#undef LOAD
#undef STORE
