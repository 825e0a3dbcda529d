/* Convolution of stride 1, 2x2 max-pooling and ReLU in one, for few channels: for one kind of vector.
 *
 * kernels.c includes this once for each instruction set, with
 *   LANES      floats in a vector,
 *   REGISTERS  vectors that the processor holds at once,
 *   NAME(x)    the name of x for this instruction set.
 *
 * Inputs are planar (channel, row, column) in the forward pass. There the lanes of a vector are the
 * columns of the pooled output, or its channels, whichever wastes fewer. Backward works on pixels
 * (row, column, channel): there a row of a patch is one run of kernel * channels floats, and only the
 * patch that won its 2x2 window is touched.
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

/* -- forward, lanes are columns ----------------------------------------------------------------- */

/* One vector of pooled columns for `count` channels. `rows`: even columns, then odd ones, of each
 * input row; `w`: [channel in][ky][kx][count]. */
INLINE void NAME(columns)(const shape *s, const float *rows, size_t half, const float *w,
                          const float *bias, float *value, uint8_t *code, const int kernel,
                          const int count) {
    VF sums[6][4];
    UNROLL for (int c = 0; c < count; c++) {
        UNROLL for (int k = 0; k < 4; k++) sums[c][k] = (VF){0} + bias[c];
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
        NAME(pool)(sums[c], value + c * LANES, code + c * LANES);
    }
}

static void NAME(columns_of)(const shape *s, const float *rows, size_t half, const float *w,
                             const float *bias, float *value, uint8_t *code, int count) {
#define COLUMNS(k, n)                                          \
    if (s->kernel == k && count == n)                          \
        NAME(columns)(s, rows, half, w, bias, value, code, k, n)
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
                                 uint8_t *codes) {
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
                    uint8_t code[6 * LANES];
                    n = NAME(columns_count)(s->out - c);
                    NAME(columns_of)(s, rows + (2 * py) * 2 * half + px, half, tap, bias + c, value,
                                     code, (int)n);
                    for (int64_t k = 0; k < n; k++) {
                        size_t place = (b * s->out + c + k) * plane + py * s->columns + px;
                        memcpy(out + place, value + k * LANES, some * sizeof(float));
                        memcpy(codes + place, code + k * LANES, some);
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
                           const int kernel, const int count) {
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
        NAME(pool)(sums[p], value + p * apart, code + p * apart);
    }
}

static void NAME(channels_of)(const shape *s, const float *x, size_t row, size_t plane,
                              const float *w, size_t step, const float *bias, float *value,
                              uint8_t *code, int count) {
#define CHANNELS(k, n)                                                                          \
    if (s->kernel == k && count == n)                                                           \
        NAME(channels)(s, x, row, plane, w, step, LOAD(bias), value, code, step, k, n)
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
                                  uint8_t *codes) {
    size_t taps = (size_t)(s->kernel * s->kernel * s->in), windows = (size_t)(s->rows * s->columns);
    size_t step = (size_t)((s->out + LANES - 1) / LANES * LANES);
    size_t plane = (size_t)(s->tall * s->wide);
    float *space = calloc(taps * step + step + plane * s->in + 2 * windows * step, sizeof(float));
    if (!space) return -1;
    float *w = space, *offset = w + taps * step, *padded = offset + step;
    float *value = padded + plane * s->in;
    uint8_t *code = (uint8_t *)(value + windows * step);
    for (int64_t c = 0; c < s->out; c++) {
        offset[c] = bias[c];
        for (size_t t = 0; t < taps; t++) w[t * step + c] = weight[c * taps + t];
    }
    int most = REGISTERS > 16 ? 4 : 3;
    int64_t blocks = (s->columns + most - 1) / most;
    for (int64_t b = 0; b < s->batch; b++) {
        const float *from = planes(s, x + b * strides[0], strides, padded);
        for (size_t c = 0; c < step; c += LANES) {
            for (int64_t py = 0; py < s->rows; py++) {
                for (int64_t k = 0; k < blocks; k++) {
                    int64_t px = k * s->columns / blocks, end = (k + 1) * s->columns / blocks;
                    size_t place = (py * s->columns + px) * step + c;
                    NAME(channels_of)(s, from + 2 * py * s->wide + 2 * px, s->wide, plane, w + c,
                                      step, offset + c, value + place, code + place,
                                      (int)(end - px));
                }
            }
        }
        float *to = out + b * s->out * windows;
        uint8_t *code_to = codes + b * s->out * windows;
        for (int64_t c = 0; c < s->out; c++)
            for (size_t p = 0; p < windows; p++) {
                *to++ = value[p * step + c];
                *code_to++ = code[p * step + c];
            }
    }
    free(space);
    return 0;
}

static int NAME(forward)(const shape *s, const float *x, const int64_t *strides,
                         const float *weight, const float *bias, float *out, uint8_t *codes) {
    int64_t by_columns = (s->columns + LANES - 1) / LANES * LANES * s->out;
    int64_t by_channels = (s->out + LANES - 1) / LANES * LANES * s->columns;
    return by_columns < by_channels
               ? NAME(forward_columns)(s, x, strides, weight, bias, out, codes)
               : NAME(forward_channels)(s, x, strides, weight, bias, out, codes);
}

/* -- backward ----------------------------------------------------------------------------------- */

/* to[ky][j] += the sum of gradient * patch over the listed windows, for `count` vectors of a row. */
INLINE void NAME(weigh)(const float *x, size_t row, const window *list, size_t length, float *to,
                        size_t step, const int kernel, const int count) {
    VF sums[5][4];
    UNROLL for (int ky = 0; ky < kernel; ky++) {
        UNROLL for (int j = 0; j < count; j++) sums[ky][j] = LOAD(to + ky * step + j * LANES);
    }
    for (size_t n = 0; n < length; n++) {
        const float *from = x + list[n].place;
        VF gradient = (VF){0} + list[n].gradient;
        UNROLL for (int ky = 0; ky < kernel; ky++) {
            UNROLL for (int j = 0; j < count; j++) {
                sums[ky][j] += gradient * LOAD(from + ky * row + j * LANES);
            }
        }
    }
    UNROLL for (int ky = 0; ky < kernel; ky++) {
        UNROLL for (int j = 0; j < count; j++) STORE(to + ky * step + j * LANES, sums[ky][j]);
    }
}

/* to[patch] += the sum of gradient * weights over the listed channels, whose patch is the same. */
INLINE void NAME(spread)(float *to, size_t row, const window *list, size_t length, const float *w,
                         size_t step, const int kernel, const int count) {
    VF sums[5][4];
    UNROLL for (int ky = 0; ky < kernel; ky++) {
        UNROLL for (int j = 0; j < count; j++) sums[ky][j] = LOAD(to + ky * row + j * LANES);
    }
    for (size_t n = 0; n < length; n++) {
        const float *from = w + list[n].place;
        VF gradient = (VF){0} + list[n].gradient;
        UNROLL for (int ky = 0; ky < kernel; ky++) {
            UNROLL for (int j = 0; j < count; j++) {
                sums[ky][j] += gradient * LOAD(from + ky * step + j * LANES);
            }
        }
    }
    UNROLL for (int ky = 0; ky < kernel; ky++) {
        UNROLL for (int j = 0; j < count; j++) STORE(to + ky * row + j * LANES, sums[ky][j]);
    }
}

/* Call `weigh` or `spread` for a whole row, as many vectors at a time as there are registers for. */
#define ROWS_OF(function, k, n)                 \
    if (s->kernel == k && now == n)             \
        NAME(function)(p + j, row, list, length, q + j, step, k, n)
#define BY_ROWS(name, function, p_kind, q_kind)                                               \
    static void NAME(name)(const shape *s, p_kind p, size_t row, const window *list,          \
                           size_t length, q_kind q, size_t step) {                            \
        size_t most = REGISTERS > 16 || s->kernel == 3 ? 4 : 2;                               \
        for (size_t j = 0, now; j < step; j += now * LANES) {                                 \
            now = (step - j) / LANES < most ? (step - j) / LANES : most;                      \
            ROWS_OF(function, 3, 1);                                                          \
            ROWS_OF(function, 3, 2);                                                          \
            ROWS_OF(function, 3, 3);                                                          \
            ROWS_OF(function, 3, 4);                                                          \
            ROWS_OF(function, 5, 1);                                                          \
            ROWS_OF(function, 5, 2);                                                          \
            ROWS_OF(function, 5, 3);                                                          \
            ROWS_OF(function, 5, 4);                                                          \
        }                                                                                     \
    }
BY_ROWS(weigh_rows, weigh, const float *, float *)
BY_ROWS(spread_rows, spread, float *, const float *)

/* Gradients of weights and bias. */
static int NAME(weights_gradient)(const shape *s, const float *x, const int64_t *strides,
                                  const float *g, const int64_t *g_strides, const uint8_t *codes,
                                  float *dw, float *db) {
    size_t row = (size_t)(s->wide * s->in), run = (size_t)(s->kernel * s->in);
    size_t step = (run + LANES - 1) / LANES * LANES, image = (size_t)s->tall * row;
    size_t windows = (size_t)(s->rows * s->columns), room = windows > 512 ? windows : 512;
    float *pixels = malloc(((size_t)s->batch * image + step + s->kernel * step) * sizeof(float));
    window *list = malloc(room * sizeof(window));
    if (!pixels || !list) return free(pixels), free(list), -1;
    float *sums = pixels + s->batch * image + step;
    memset(pixels + s->batch * image, 0, step * sizeof(float));
    for (int64_t b = 0; b < s->batch; b++)
        to_pixels(s, x + b * strides[0], strides, pixels + b * image);
    for (int64_t c = 0; c < s->out; c++) {
        size_t length = 0;
        double total = 0;
        memset(sums, 0, s->kernel * step * sizeof(float));
        for (int64_t b = 0; b < s->batch; b++) {
            if (length + windows > room) {
                NAME(weigh_rows)(s, pixels, row, list, length, sums, step);
                length = 0;
            }
            length += live_windows(s, g + b * g_strides[0] + c * g_strides[1], g_strides,
                                   codes + (b * s->out + c) * windows, b * image, list + length,
                                   &total);
        }
        NAME(weigh_rows)(s, pixels, row, list, length, sums, step);
        db[c] = (float)total;
        for (int64_t i = 0; i < s->in; i++)
            for (int64_t ky = 0; ky < s->kernel; ky++)
                for (int64_t kx = 0; kx < s->kernel; kx++)
                    *dw++ = sums[ky * step + kx * s->in + i];
    }
    free(list);
    free(pixels);
    return 0;
}

/* Return the weights as [channel out][ky][kx * in + channel in], rows filled up with zeros. */
static float *NAME(pixel_weights)(const shape *s, const float *weight, size_t step) {
    float *w = calloc((size_t)(s->out * s->kernel) * step, sizeof(float));
    if (!w) return NULL;
    for (int64_t c = 0; c < s->out; c++)
        for (int64_t i = 0; i < s->in; i++)
            for (int64_t ky = 0; ky < s->kernel; ky++)
                for (int64_t kx = 0; kx < s->kernel; kx++)
                    w[(c * s->kernel + ky) * step + kx * s->in + i] = *weight++;
    return w;
}

/* Gradient of the inputs, as pixels. */
static int NAME(inputs_gradient)(const shape *s, const float *weight, const float *g,
                                 const int64_t *g_strides, const uint8_t *codes, float *dx) {
    size_t row = (size_t)(s->wide * s->in), run = (size_t)(s->kernel * s->in);
    size_t step = (run + LANES - 1) / LANES * LANES, image = (size_t)s->tall * row;
    size_t windows = (size_t)(s->rows * s->columns);
    float *w = NAME(pixel_weights)(s, weight, step), *sums = malloc((image + step) * sizeof(float));
    window *list = malloc(5 * (size_t)s->out * sizeof(window));
    if (!w || !sums || !list) return free(w), free(sums), free(list), -1;
    for (int64_t b = 0; b < s->batch; b++) {
        memset(sums, 0, (image + step) * sizeof(float));
        for (int64_t py = 0; py < s->rows; py++) {
            for (int64_t px = 0; px < s->columns; px++) {
                const float *from = g + b * g_strides[0] + py * g_strides[2] + px * g_strides[3];
                const uint8_t *code = codes + b * s->out * windows + py * s->columns + px;
                size_t length[5] = {0};
                for (int64_t c = 0; c < s->out; c++, from += g_strides[1], code += windows) {
                    window *to = list + *code * s->out + length[*code]++;
                    to->place = (size_t)(c * s->kernel) * step;
                    to->gradient = *from;
                }
                for (int k = 0; k < DEAD; k++) {
                    if (!length[k]) continue;
                    size_t place = (2 * py + k / 2) * row + (2 * px + k % 2) * s->in;
                    NAME(spread_rows)(s, sums + place, row, list + k * s->out, length[k], w, step);
                }
            }
        }
        for (int64_t y = 0; y < s->height; y++, dx += s->width * s->in)
            memcpy(dx, sums + (y + s->padding) * row + s->padding * s->in,
                   (size_t)(s->width * s->in) * sizeof(float));
    }
    free(list);
    free(sums);
    free(w);
    return 0;
}

/* -- tangent ------------------------------------------------------------------------------------ */

/* Return the sum of products of a patch and weights whose last lanes are to be left out. */
INLINE float NAME(inner)(const float *x, size_t row, const float *w, size_t step, int kernel,
                           VI last) {
    VF sums[2] = {(VF){0}, (VF){0}};
    for (int ky = 0; ky < kernel; ky++, x += row, w += step) {
        size_t j = 0;
        for (; j + LANES < step; j += LANES) sums[0] += LOAD(x + j) * LOAD(w + j);
        sums[1] += (VF)(last & (VI)LOAD(x + j)) * LOAD(w + j);
    }
    VF both = sums[0] + sums[1];
    float sum = 0;
    UNROLL for (int k = 0; k < LANES; k++) sum += both[k];
    return sum;
}

/* The convolution of x without bias where the codes say that the maximum was; 0 where dead. */
static int NAME(tangent)(const shape *s, const float *x, const int64_t *strides,
                         const float *weight, const uint8_t *codes, float *out) {
    size_t row = (size_t)(s->wide * s->in), run = (size_t)(s->kernel * s->in);
    size_t step = (run + LANES - 1) / LANES * LANES, image = (size_t)s->tall * row;
    size_t windows = (size_t)(s->rows * s->columns);
    float *w = NAME(pixel_weights)(s, weight, step);
    float *pixels = calloc(image + step, sizeof(float));
    if (!w || !pixels) return free(w), free(pixels), -1;
    VI last;
    for (int k = 0; k < LANES; k++) last[k] = step - LANES + (size_t)k < run ? -1 : 0;
    for (int64_t b = 0; b < s->batch; b++) {
        to_pixels(s, x + b * strides[0], strides, pixels);
        for (int64_t c = 0; c < s->out; c++, codes += windows, out += windows) {
            const float *tap = w + (size_t)(c * s->kernel) * step;
            memset(out, 0, windows * sizeof(float));
            for (int64_t py = 0, p = 0; py < s->rows; py++)
                for (int64_t px = 0; px < s->columns; px++, p++) {
                    int code = codes[p];
                    if (code == DEAD) continue;
                    size_t place = (2 * py + code / 2) * row + (2 * px + code % 2) * s->in;
                    out[p] = NAME(inner)(pixels + place, row, tap, step, (int)s->kernel, last);
                }
        }
    }
    free(pixels);
    free(w);
    return 0;
}

#undef ROWS_OF
#undef BY_ROWS
#undef VF
#undef VI
#undef LOAD
#undef STORE
