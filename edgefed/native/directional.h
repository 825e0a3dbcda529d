/* Derivatives of the outputs along a change of the inputs; kernels.c includes this after back.h, for
 * the same instruction set.
 *
 * A change that is the same for all samples (a stride of 0 between them) is convolved once, at every
 * place that a window may have chosen, and its share of the weights' gradient is weighed once.
 */

#define VF NAME(vf)
#define VI NAME(vi)
#define LOAD NAME(load)
#define STORE NAME(store)

/* Samples from which on once for all is quicker than once for each: a window has four places. */
#define MANY 5

/* One vector of places of the convolution for `count` channels; `taps` floats between channels. */
INLINE void NAME(places)(const shape *s, const float *x, size_t plane, const float *w, size_t taps,
                         float *to, size_t apart, const int count) {
    VF sums[4];
    UNROLL for (int c = 0; c < count; c++) sums[c] = (VF){0};
    for (int64_t i = 0; i < s->in; i++)
        for (int64_t ky = 0; ky < s->kernel; ky++) {
            const float *from = x + (size_t)i * plane + ky * s->wide;
            for (int64_t kx = 0; kx < s->kernel; kx++, w++) {
                VF in = LOAD(from + kx);
                UNROLL for (int c = 0; c < count; c++) sums[c] += in * w[c * taps];
            }
        }
    UNROLL for (int c = 0; c < count; c++) STORE(to + c * apart, sums[c]);
}

/* Codes of one vector's windows, of which `left` are there. */
INLINE NAME(vb) NAME(codes_at)(const uint8_t *codes, size_t left) {
    NAME(vb) narrow = {0};
    if (left >= LANES)
        memcpy(&narrow, codes, sizeof narrow);
    else
        memcpy(&narrow, codes, left);
    return narrow;
}

/* Convolve one image at the four places of all windows: [channel][place][row][`across`]. `space` takes
 * the image and a row of places. */
static void NAME(four_places)(const shape *s, const float *x, const int64_t *strides,
                              const float *weight, float *space, size_t line, float *map,
                              size_t across) {
    size_t plane = (size_t)(s->tall * s->wide), taps = (size_t)(s->kernel * s->kernel * s->in);
    const float *from = planes(s, x, strides, space);
    if (from != space) memcpy(space, from, plane * (size_t)s->in * sizeof(float));
    float *row = space + plane * (size_t)s->in + line + 8;
    for (int64_t c = 0, n; c < s->out; c += n) {
        n = s->out - c >= 4 ? 4 : 1;
        for (int64_t y = 0; y < 2 * s->rows; y++) {
            for (size_t j = 0; j < line; j += LANES) {
                const float *at = space + y * s->wide + j, *w = weight + c * taps;
                if (n == 4)
                    NAME(places)(s, at, plane, w, taps, row + j, line, 4);
                else
                    NAME(places)(s, at, plane, w, taps, row + j, line, 1);
            }
            for (int64_t k = 0; k < 2 * n; k++) {
                size_t place = ((c + k / 2) * 4 + 2 * (y & 1) + k % 2) * s->rows + y / 2;
                for (int64_t px = 0; px < s->columns; px++)
                    map[place * across + px] = row[k / 2 * line + 2 * px + k % 2];
            }
        }
    }
}

/* The tangent of one change for all samples. */
static int NAME(tangent_once)(const shape *s, const float *x, const int64_t *strides,
                              const float *weight, const uint8_t *codes, float *out) {
    size_t line = (size_t)(2 * s->columns + LANES - 1) / LANES * LANES;
    size_t across = (size_t)(s->columns + LANES - 1) / LANES * LANES;
    /* Vectors at the end of the image's last row reach beyond it, by less than line + 8. */
    size_t space = (size_t)(s->tall * s->wide * s->in) + line + 8 + 4 * line;
    size_t left = (size_t)(s->batch * s->out * s->rows * s->columns);
    float *padded = calloc(space + 4 * (size_t)(s->out * s->rows) * across, sizeof(float));
    if (!padded) return -1;
    float *map = padded + space;
    size_t apart = (size_t)s->rows * across;
    NAME(four_places)(s, x, strides, weight, padded, line, map, across);
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t c = 0; c < s->out; c++)
            for (int64_t py = 0; py < s->rows; py++)
                for (int64_t px = 0, some; px < s->columns; px += some) {
                    const float *at = map + (c * 4 * s->rows + py) * across + px;
                    VF four[4];
                    UNROLL for (int k = 0; k < 4; k++) four[k] = LOAD(at + k * apart);
                    NAME(vb) code = NAME(codes_at)(codes, left);
                    float value[LANES];
                    some = s->columns - px < LANES ? s->columns - px : LANES;
                    /* What is written beyond the row is written again, in its turn. */
                    NAME(take)(four, left >= LANES ? out : value, (const uint8_t *)&code);
                    if (left < LANES) memcpy(out, value, some * sizeof(float));
                    out += some, codes += some, left -= some;
                }
    free(padded);
    return 0;
}

/* The convolution of x without bias where the codes say that the maximum was; 0 where dead. */
static int NAME(tangent)(const shape *s, const float *x, const int64_t *strides,
                         const float *weight, uint8_t *codes, float *out) {
    if (!strides[0] && s->batch >= MANY)
        return NAME(tangent_once)(s, x, strides, weight, codes, out);
    return NAME(forward)(s, x, strides, weight, NULL, out, codes, 1);
}

/* List the four places of one channel's windows, with the sum of all samples' gradients there; `codes`
 * has `left` values. */
static void NAME(sum_windows)(const shape *s, const float *g, const int64_t *g_strides,
                              const uint8_t *codes, size_t left, window *list) {
    size_t right = (size_t)s->in, row = (size_t)s->wide * right;
    size_t image = (size_t)(s->out * s->rows * s->columns);
    for (int64_t py = 0; py < s->rows; py++)
        for (int64_t px = 0; px < s->columns; px += LANES) {
            int64_t some = s->columns - px < LANES ? s->columns - px : LANES;
            size_t first = (size_t)(py * s->columns + px);
            VF sums[4] = {(VF){0}, (VF){0}, (VF){0}, (VF){0}};
            for (int64_t b = 0; b < s->batch; b++, first += image) {
                const float *from = g + b * g_strides[0] + py * g_strides[2] + px * g_strides[3];
                float line[LANES] = {0};
                for (int64_t k = 0; k < some; k++) line[k] = from[k * g_strides[3]];
                NAME(vb) narrow = NAME(codes_at)(codes + first, left - first);
                VI where = __builtin_convertvector(narrow, VI);
                UNROLL for (int k = 0; k < 4; k++) {
                    sums[k] += NAME(choose)(where == k, LOAD(line), (VF){0});
                }
            }
            size_t place = 2 * (size_t)py * row + 2 * (size_t)px * right;
            for (int64_t n = 0; n < some; n++, place += 2 * right)
                for (int k = 0; k < 4; k++, list++) {
                    list->place = place + (size_t)(k / 2) * row + (size_t)(k % 2) * right;
                    list->gradient = sums[k][n];
                }
        }
}

/* Add the gradient of the weights, where x is one change for all samples. */
static int NAME(weights_gradient_once)(const shape *s, const float *x, const int64_t *strides,
                                       const float *g, const int64_t *g_strides,
                                       const uint8_t *codes, float *dw) {
    size_t row = (size_t)(s->wide * s->in), run = (size_t)(s->kernel * s->in);
    size_t step = (run + LANES - 1) / LANES * LANES, image = (size_t)s->tall * row;
    size_t windows = (size_t)(s->rows * s->columns);
    float *pixels = calloc(image + step + s->kernel * step, sizeof(float));
    window *list = malloc(4 * windows * sizeof(window));
    if (!pixels || !list) return free(pixels), free(list), -1;
    float *sums = pixels + image + step;
    to_pixels(s, x, strides, pixels);
    for (int64_t c = 0; c < s->out; c++) {
        NAME(sum_windows)(s, g + c * g_strides[1], g_strides, codes + c * windows,
                          (size_t)(s->batch * s->out - c) * windows, list);
        memset(sums, 0, s->kernel * step * sizeof(float));
        NAME(weigh_rows)(s, pixels, row, list, 4 * windows, sums, step);
        for (int64_t i = 0; i < s->in; i++)
            for (int64_t ky = 0; ky < s->kernel; ky++)
                for (int64_t kx = 0; kx < s->kernel; kx++)
                    *dw++ += sums[ky * step + kx * s->in + i];
    }
    free(list);
    free(pixels);
    return 0;
}

/* Add the gradient of the weights, from the changes of the inputs and the gradient of the outputs'. */
static int NAME(change_weights)(const shape *s, const float *x, const int64_t *strides,
                                const float *g, const int64_t *g_strides, const uint8_t *codes,
                                float *dw) {
    if (!strides[0] && s->batch >= MANY)
        return NAME(weights_gradient_once)(s, x, strides, g, g_strides, codes, dw);
    return NAME(weights_gradient)(s, x, strides, g, g_strides, codes, dw, NULL, 1);
}

#undef MANY
#undef VF
#undef VI
#undef LOAD
#undef STORE
