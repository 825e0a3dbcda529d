/* The way back through convolution, pooling and ReLU; kernels.c includes this after conv.h, for the
 * same instruction set.
 *
 * It works on pixels: row, column, channel. There a row of a patch is one run of kernel * channels
 * floats, and only the patch that won its 2x2 window is touched.
 */

#define VF NAME(vf)
#define VI NAME(vi)
#define LOAD NAME(load)
#define STORE NAME(store)

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

/* Gradients of weights and bias; with `add`, that of the weights is added to what is there. `db` may
 * be NULL. */
static int NAME(weights_gradient)(const shape *s, const float *x, const int64_t *strides,
                                  const float *g, const int64_t *g_strides, const uint8_t *codes,
                                  float *dw, float *db, int add) {
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
        if (db) db[c] = (float)total;
        for (int64_t i = 0; i < s->in; i++)
            for (int64_t ky = 0; ky < s->kernel; ky++)
                for (int64_t kx = 0; kx < s->kernel; kx++, dw++) {
                    float sum = sums[ky * step + kx * s->in + i];
                    *dw = add ? *dw + sum : sum;
                }
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

#undef ROWS_OF
#undef BY_ROWS
#undef VF
#undef VI
#undef LOAD
#undef STORE
