/* EdgeFed's kernels: small convolutions and dense layers, one by one, as a chain and as a mixture of
 * chains, exact merging, and natural noise.
 *
 * The instruction set is chosen when they run, so one library serves every x86-64. Plain C for GCC
 * and Clang. Nothing here keeps state, and nothing knows Python or torch.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Raised with every change of a signature or of the meaning of an argument; see library.py. */
#define ABI 4

#define EXPORT __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* The code of a window that ReLU made zero; others are 2 * row + column of its maximum. */
#define DEAD 4

/* A layer's sizes. `tall` and `wide` are the input with its padding, `rows` and `columns` the output. */
typedef struct {
    int64_t batch, in, height, width, out, kernel, padding;
    int64_t tall, wide, rows, columns;
} shape;

/* A window that passed ReLU: where its patch begins, and the gradient of its output. */
typedef struct {
    size_t place;
    float gradient;
} window;

/* Split an image into even and odd columns of each row; what is beyond is left as it was. */
static void split_rows(const shape *s, const float *x, const int64_t *strides, float *rows,
                       size_t half) {
    for (int64_t c = 0; c < s->in; c++) {
        float *to = rows + (c * s->tall + s->padding) * 2 * half;
        for (int64_t y = 0; y < s->height; y++, to += 2 * half) {
            const float *from = x + c * strides[1] + y * strides[2];
            int64_t odd = s->padding & 1;
            float *first = to + odd * half + s->padding / 2;
            float *second = to + !odd * half + (s->padding + 1) / 2;
            int64_t k = 0, step = strides[3];
            for (; 2 * k + 1 < s->width; k++) {
                first[k] = from[2 * k * step];
                second[k] = from[(2 * k + 1) * step];
            }
            if (s->width & 1) first[k] = from[2 * k * step];
        }
    }
}

/* Return an image as planes with its padding: itself where it is that, or a copy in `padded`. */
static const float *planes(const shape *s, const float *x, const int64_t *strides, float *padded) {
    int plain = strides[3] == 1 && strides[2] == s->width;
    if (plain && !s->padding && (s->in == 1 || strides[1] == s->width * s->height)) return x;
    for (int64_t c = 0; c < s->in; c++) {
        float *to = padded + (c * s->tall + s->padding) * s->wide + s->padding;
        for (int64_t y = 0; y < s->height; y++, to += s->wide) {
            const float *from = x + c * strides[1] + y * strides[2];
            for (int64_t k = 0; k < s->width; k++) to[k] = from[k * strides[3]];
        }
    }
    return padded;
}

/* Copy an image with its padding, channels last. */
static void to_pixels(const shape *s, const float *x, const int64_t *strides, float *to) {
    int64_t row = s->wide * s->in;
    if (s->padding) memset(to, 0, (size_t)(s->tall * row) * sizeof(float));
    to += s->padding * row + s->padding * s->in;
    for (int64_t y = 0; y < s->height; y++, to += row) {
        const float *from = x + y * strides[2];
        int together = strides[3] == s->in && (s->in == 1 || strides[1] == 1);
        if (together) memcpy(to, from, (size_t)(s->width * s->in) * sizeof(float));
        for (int64_t c = 0; c < s->in && !together; c++) {
            const float *plane = from + c * strides[1];
            for (int64_t k = 0; k < s->width; k++) to[k * s->in + c] = plane[k * strides[3]];
        }
    }
}

/* List one channel's windows that passed ReLU, each place off by `start`; add up their gradients in
 * `total`. Return how many they are. */
static size_t live_windows(const shape *s, const float *g, const int64_t *g_strides,
                           const uint8_t *codes, size_t start, window *list, double *total) {
    size_t length = 0, right = (size_t)s->in, row = (size_t)s->wide * right;
    const size_t offsets[] = {0, right, row, row + right, 0};
    double sum = *total;
    for (int64_t py = 0; py < s->rows; py++) {
        const float *from = g + py * g_strides[2];
        size_t place = start + 2 * (size_t)py * row;
        for (int64_t px = 0; px < s->columns; px++, place += 2 * right, from += g_strides[3]) {
            int code = *codes++;
            list[length].place = place + offsets[code];
            list[length].gradient = *from;
            length += code != DEAD;
            sum += code != DEAD ? (double)*from : 0;
        }
    }
    *total = sum;
    return length;
}

#include "noise.h"

#if defined(__x86_64__)

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define NAME(x) x##_avx2
#define LANES 8
#define REGISTERS 16
#include "conv.h"
#include "back.h"
#include "directional.h"
#include "dense.h"
#include "merge.h"
#include "pink.h"
#include "layers.h"
#undef NAME
#undef LANES
#undef REGISTERS
#ifdef __clang__
#pragma clang attribute pop
#pragma clang attribute push(                                                                    \
    __attribute__((target("avx2,fma,avx512f,avx512dq,avx512vl,avx512bw"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512dq,avx512vl,avx512bw,prefer-vector-width=512")
#endif
#define NAME(x) x##_avx512
#define LANES 16
#define REGISTERS 32
#include "conv.h"
#include "back.h"
#include "directional.h"
#include "dense.h"
#include "merge.h"
#include "pink.h"
#include "layers.h"
#undef NAME
#undef LANES
#undef REGISTERS
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

/* Return how many floats a vector of this processor has; 0: it has none that these kernels use. */
EXPORT int edgefed_lanes(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
    int wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
    return wide ? 16 : 8;
}

/* Short runs are quicker in the shorter vectors. */
#define CALL(function, run, ...)                            \
    (edgefed_lanes() == 16 && (run) > 8 ? function##_avx512 \
                                        : function##_avx2)(__VA_ARGS__)

#else

#define NAME(x) x##_plain
#define LANES 4
#define REGISTERS 32
#include "conv.h"
#include "back.h"
#include "directional.h"
#include "dense.h"
#include "merge.h"
#include "pink.h"
#include "layers.h"

EXPORT int edgefed_lanes(void) { return LANES; }

#define CALL(function, run, ...) function##_plain(__VA_ARGS__)

#endif

EXPORT int edgefed_abi(void) { return ABI; }

/* Strides are in floats: batch, channel, row, column. Each returns 0, or -1 without memory. */

EXPORT int edgefed_forward(const shape *s, const float *x, const int64_t *strides,
                           const float *weight, const float *bias, float *out, uint8_t *codes) {
    int64_t lanes = s->columns > s->out ? s->columns : s->out;
    return CALL(forward, lanes, s, x, strides, weight, bias, out, codes, 0);
}

EXPORT int edgefed_weights_gradient(const shape *s, const float *x, const int64_t *strides,
                                    const float *g, const int64_t *g_strides,
                                    const uint8_t *codes, float *dw, float *db) {
    return CALL(weights_gradient, s->kernel * s->in, s, x, strides, g, g_strides, codes, dw, db, 0);
}

EXPORT int edgefed_inputs_gradient(const shape *s, const float *weight, const float *g,
                                   const int64_t *g_strides, const uint8_t *codes, float *dx) {
    return CALL(inputs_gradient, s->kernel * s->in, s, weight, g, g_strides, codes, dx);
}

EXPORT int edgefed_tangent(const shape *s, const float *x, const int64_t *strides,
                           const float *weight, uint8_t *codes, float *out) {
    int64_t lanes = s->columns > s->out ? s->columns : s->out;
    return CALL(tangent, lanes, s, x, strides, weight, codes, out);
}

EXPORT int edgefed_merge_floats(uint64_t *cells, const float *values, int64_t count, double scale,
                                uint64_t weight, double bound) {
    return CALL(merge_floats, 16, cells, values, count, scale, weight, bound);
}

EXPORT int edgefed_merge_doubles(uint64_t *cells, const double *values, int64_t count,
                                 double scale, uint64_t weight, double bound) {
    return CALL(merge_doubles, 16, cells, values, count, scale, weight, bound);
}

/* Means [side][side] of the square blocks of a map of pink noise, of standard deviation 1 before.
 *
 * logarithms, phases [513][257]: of the distance of each frequency, and its phase in units of 2 pi;
 * alpha: the exponent; weights [512][4], bumps [4][4]: those of an envelope's values along a side,
 * and these; side: a divisor of 512. */
EXPORT int edgefed_pink_means(const float *logarithms, const float *phases, double alpha,
                              const float *weights, const float *bumps, int64_t side, float *means) {
    pink_room *room = malloc(sizeof *room);
    if (!room) return -1;
    make_plan(&room->plan);
    CALL(pink_means, 16, logarithms, phases, alpha, weights, bumps, side, means, room);
    free(room);
    return 0;
}

/* An image [3][side][side] of an untrained StyleGAN before its colours are set.
 *
 * Each layer has the side of the one before, or twice that with `up`, and its outputs are the next
 * one's inputs; the side of a conversion to colours is twice that of the one before. bank [][9]: the
 * kernels; constant [inputs][side][side]: the first layer's input; noise: a map of the last layer's
 * side. */
EXPORT int edgefed_noise_image(const noise_layer *layers, int64_t count, const double *bank,
                               const double *constant, const float *noise, float *image) {
    noise_room room;
    int64_t channels = 0, side = layers[count - 1].side;
    for (int64_t k = 0; k < count; k++) {
        channels = layers[k].inputs > channels ? layers[k].inputs : channels;
        channels = layers[k].outputs > channels ? layers[k].outputs : channels;
    }
    char *memory = malloc(lay_out(&room, NULL, channels, side));
    if (!memory) return -1;
    lay_out(&room, memory, channels, side);
    memcpy(room.noise, noise, sizeof(float) * (size_t)(side * side));
    halve(room.noise, side, layers[0].side);
    CALL(noise_image, 16, layers, count, bank, constant, image, &room);
    free(memory);
    return 0;
}

#include "chain.h"
#include "experts.h"
