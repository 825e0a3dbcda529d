/* The layers of the untrained StyleGAN of natural noise, each as one map (what that means is said in
 * natural_noise/one_map_layer.py): for one instruction set; kernels.c includes this after conv.h, with
 * LANES and NAME. */

#define VF NAME(vf)
#define VI NAME(vi)
#define LOAD NAME(load)
#define STORE NAME(store)

/* Modulated kernels of a layer: its taps for each input. */
static void NAME(make_taps)(const noise_layer *l, const double *bank, double *taps) {
    for (int64_t i = 0; i < l->inputs; i++)
        for (int t = 0; t < TAPS; t++)
            taps[i * TAPS + t] = l->style[i] * bank[l->kernels[i] * TAPS + t];
}

/* A table of sums over its members; sqrt(2) is the gain of a layer. */
static void NAME(make_table)(noise_table *t, const double *biases, const double *weights) {
    double slopes[SUMS] = {0}, constants[SUMS] = {0};
    sort_members(t, biases);
    for (int64_t k = 0;; k++) {
        float *row = t->rows + k * 2 * SUMS;
        for (int s = 0; s < SUMS; s++) {
            row[s] = (float)(slopes[s] * 1.4142135623730951);
            row[SUMS + s] = (float)(constants[s] * 1.4142135623730951);
        }
        if (k == t->count) break;
        const double *weight = weights + t->order[k] * SUMS;
        double bias = biases[t->order[k]];
        t->corners[k] = (float)-bias;
        for (int s = 0; s < SUMS; s++) {
            slopes[s] += weight[s];
            constants[s] += weight[s] * bias;
        }
    }
    t->corners[t->count] = INFINITY;
}

/* Smooth a canvas [h][w] by [1, 3, 3, 1] / 4 in both directions, to [h - 3][w - 3]. */
static void NAME(smooth)(const float *canvas, int64_t width, float *row, float *to) {
    for (int64_t y = 0; y < width - 3; y++, canvas += width, to += width - 3) {
        const float *second = canvas + width, *third = second + width, *fourth = third + width;
        for (int64_t x = 0; x < width; x++)
            row[x] = (canvas[x] + fourth[x]) + 3 * (second[x] + third[x]);
        for (int64_t x = 0; x < width - 3; x++)
            to[x] = ((row[x] + row[x + 3]) + 3 * (row[x + 1] + row[x + 2])) * (1.0f / 16);
    }
}

/* The one map of a layer from the sums of the layer before, which have `side` pixels a side. */
static void NAME(convolve)(const noise_room *r, int64_t side, int up) {
    int64_t step = up ? 2 : 1, wide = up ? 2 * side + 3 : side + 2, places[TAPS];
    for (int t = 0; t < TAPS; t++)
        places[t] = up ? (1 + t / 3) * wide + 1 + t % 3 : (2 - t / 3) * wide + 2 - t % 3;
    memset(r->canvas, 0, sizeof(float) * (size_t)(wide * wide));
    const float *from = r->totals;
    for (int64_t y = 0; y < side; y++)
        for (int64_t x = 0; x < side; x++, from += SUMS) {
            float *to = r->canvas + y * step * wide + x * step;
            UNROLL for (int t = 0; t < TAPS; t++) to[places[t]] += from[t];
        }
    if (up) {
        NAME(smooth)(r->canvas, wide, r->row, r->common);
        return;
    }
    for (int64_t y = 0; y < side; y++)
        memcpy(r->common + y * side, r->canvas + (y + 1) * wide + 1, sizeof(float) * (size_t)side);
}

/* Enlarge the colours [3][side][side] to twice the side, in place. */
static void NAME(enlarge)(const noise_room *r, float *image, int64_t side) {
    int64_t wide = 2 * side + 3, pixels = side * side;
    memcpy(r->colours, image, sizeof(float) * (size_t)(COLOURS * pixels));
    memset(r->canvas, 0, sizeof(float) * (size_t)(wide * wide));
    for (int colour = 0; colour < COLOURS; colour++) {
        for (int64_t y = 0; y < side; y++)
            for (int64_t x = 0; x < side; x++)
                r->canvas[(2 + 2 * y) * wide + 2 + 2 * x] =
                    r->colours[colour * pixels + y * side + x];
        NAME(smooth)(r->canvas, wide, r->row, image + 4 * colour * pixels);
    }
}

/* Values factor * common + strength * noise of 16 pixels, and which buckets of the table they are in;
 * as `bucket` has it. */
INLINE void NAME(place)(const noise_table *t, const float *common, const float *noise,
                        float strength, float factor, float *values, int32_t *places) {
    UNROLL for (int k = 0; k < 16; k += LANES) {
        VF value = LOAD(common + k) * factor + LOAD(noise + k) * strength;
        VF place = (value - t->lowest) * t->scale, last = (VF){0} + BUCKETS;
        place = NAME(choose)(place > 0, place, (VF){0});
        VI whole = __builtin_convertvector(NAME(choose)(place < last, place, last), VI);
        STORE(values + k, value);
        memcpy(places + k, &whole, sizeof whole);
    }
}

/* Add to the totals what a table says of factor * common + strength * noise. The memory of both has
 * room for 16 values more. */
static void NAME(look_up)(const noise_room *r, const float *noise, float strength, float factor,
                          int64_t pixels) {
    const noise_table *t = &r->table;
    for (int64_t first = 0; first < pixels; first += 16) {
        float values[16];
        int32_t places[16];
        int64_t count = pixels - first < 16 ? pixels - first : 16;
        NAME(place)(t, r->common + first, noise + first, strength, factor, values, places);
        for (int64_t k = 0; k < count; k++) {
            int active = t->starts[places[k]];
            active += t->corners[active] < values[k]; /* most buckets have one corner or none */
            while (t->corners[active] < values[k]) active++;
            const float *row = t->rows + (int64_t)active * 2 * SUMS;
            float *to = r->totals + (first + k) * SUMS;
            UNROLL for (int s = 0; s < SUMS; s += LANES) {
                VF sum = LOAD(row + s) * values[k] + LOAD(row + SUMS + s);
                STORE(to + s, LOAD(to + s) + sum);
            }
        }
    }
}

/* Add one channel to the totals. */
static void NAME(add_channel)(const noise_room *r, const float *noise, float strength,
                              int64_t channel, float bias, int64_t pixels) {
    float factor = (float)r->factors[channel];
    for (int64_t k = 0; k < pixels; k++) {
        float value = factor * r->common[k] + strength * noise[k] + bias;
        if (!(value > 0)) continue;
        for (int s = 0; s < SUMS; s++)
            r->totals[k * SUMS + s] +=
                value * (float)(r->weights[channel * SUMS + s] * 1.4142135623730951);
    }
}

/* The sums over a layer's channels at each pixel. `taps` are still its own; weights are given. */
static void NAME(sum_channels)(noise_room *r, const noise_layer *l, const float *noise) {
    int64_t pixels = l->side * l->side;
    float strength = (float)l->strength;
    double energy = 0;
    for (int64_t k = 0; k < l->inputs * TAPS; k++) energy += r->taps[k] * r->taps[k];
    double common_factor = 1 / sqrt(energy);
    memset(r->totals, 0, sizeof(float) * (size_t)(pixels * SUMS));
    for (int64_t o = 0; o < l->outputs; o++) {
        double a = l->amplitudes[o];
        r->factors[o] = a / sqrt(a * a * energy + EPSILON);
    }
    for (int sign = 1; sign >= -1; sign -= 2) {
        r->table.count = 0;
        for (int64_t o = 0; o < l->outputs; o++)
            if (sign * r->factors[o] >= (1 - ODD) * common_factor)
                r->table.members[r->table.count++] = o;
        if (!r->table.count) continue;
        NAME(make_table)(&r->table, l->biases, r->weights);
        NAME(look_up)(r, noise, strength, (float)(sign * common_factor), pixels);
    }
    for (int64_t o = 0; o < l->outputs; o++)
        if (fabs(r->factors[o]) < (1 - ODD) * common_factor)
            NAME(add_channel)(r, noise, strength, o, (float)l->biases[o], pixels);
}

/* What the sums are weighted with: the next layer's taps, if there is one, and the colours. */
static void NAME(make_weights)(noise_room *r, const noise_layer *l, const double *next_taps) {
    memset(r->weights, 0, sizeof(double) * (size_t)(l->outputs * SUMS));
    for (int64_t o = 0; o < l->outputs; o++) {
        double *to = r->weights + o * SUMS;
        for (int t = 0; next_taps && t < TAPS; t++) to[t] = next_taps[o * TAPS + t];
        for (int c = 0; l->to_colours && c < COLOURS; c++)
            to[TAPS + c] = l->to_colours[c * l->outputs + o] * l->colour_style[o];
    }
}

/* The sums of the constant input [inputs][side * side], for the first layer's taps. */
static void NAME(sum_constant)(noise_room *r, const noise_layer *l, const double *constant) {
    int64_t pixels = l->side * l->side;
    for (int64_t p = 0; p < pixels; p++) {
        double sums[TAPS] = {0};
        for (int64_t i = 0; i < l->inputs; i++)
            for (int t = 0; t < TAPS; t++)
                sums[t] += r->taps[i * TAPS + t] * constant[i * pixels + p];
        for (int t = 0; t < TAPS; t++) r->totals[p * SUMS + t] = (float)sums[t];
    }
}

/* Arguments as for edgefed_noise_image; the room has the noise already. */
static void NAME(noise_image)(const noise_layer *layers, int64_t count, const double *bank,
                              const double *constant, float *image, noise_room *r) {
    int64_t largest = layers[count - 1].side, before = layers[0].side;
    int coloured = 0;
    NAME(make_taps)(layers, bank, r->taps);
    NAME(sum_constant)(r, layers, constant);
    for (const noise_layer *l = layers; l < layers + count; l++) {
        int64_t pixels = l->side * l->side;
        int last = l + 1 == layers + count;
        NAME(convolve)(r, before, l->up != 0);
        if (!last) NAME(make_taps)(l + 1, bank, r->next);
        NAME(make_weights)(r, l, last ? NULL : r->next);
        NAME(sum_channels)(r, l, noise_at(r->noise, largest, l->side));
        if (!last) memcpy(r->taps, r->next, sizeof(double) * (size_t)(l[1].inputs * TAPS));
        before = l->side;
        if (!l->to_colours) continue;
        if (coloured++)
            NAME(enlarge)(r, image, l->side / 2);
        else
            memset(image, 0, sizeof(float) * (size_t)(COLOURS * pixels));
        for (int c = 0; c < COLOURS; c++)
            for (int64_t k = 0; k < pixels; k++)
                image[c * pixels + k] += r->totals[k * SUMS + TAPS + c];
    }
}

#undef VF
#undef VI
#undef LOAD
#undef STORE
