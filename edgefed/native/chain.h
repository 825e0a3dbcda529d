/* The mean cross-entropy of a chain of layers, and its gradient: small convolutions with pooling and
 * ReLU, then fully connected layers. With a change of the inputs, the derivative along it is a part of
 * the loss. kernels.c includes this before experts.h, whose loss stands between the same two passes.
 *
 * Changes stand behind the values: of a batch of B samples, rows 0 to B - 1 of a layer's output are
 * values, and row B + b is the change of sample b. Of the inputs there is one change for all samples.
 */

#include <math.h>

/* A layer, and where its results go. `sizes.in` and `sizes.out` are a dense layer's, too. */
typedef struct {
    shape sizes;
    int64_t dense, relu;
    const float *weight, *bias;
    float *weight_gradient, *bias_gradient;
    float *output;   /* [rows][values] */
    float *gradient; /* of the output; a convolution below another has its channels last */
    float *turned;   /* dense: the input as [values][rows], rows filled up to `wide` values */
    float *work;     /* dense: the output as [values][rows], likewise */
    uint8_t *codes;  /* convolution */
} layer;

/* What outputs are compared with: labels [batch], or else soft targets [batch][classes], where `apart`
 * is 0 if all samples have the same. */
typedef struct {
    const int64_t *labels;
    const float *soft;
    int64_t apart;
} targets;

/* A loss: cross-entropy against (1 - share) own + share other, and `factor` times the derivative of
 * that against `own` along `change`, unless that is NULL. `plain`: against own labels, and no more. */
typedef struct {
    int plain;
    targets own, other;
    double share, factor;
    const float *change;
    const int64_t *change_strides;
} mixture;

/* Rows of a turned array: whole vectors of any width. */
static int64_t filled(int64_t rows) { return (rows + 15) / 16 * 16; }

/* Copy rows of x to columns of the turned input, from `first` on. */
static void turn(layer *l, int64_t rows, const float *x, int64_t first, int64_t wide) {
    int64_t in = l->sizes.in;
    for (int64_t i = 0; i < in; i++)
        for (int64_t b = 0; b < rows; b++) l->turned[i * wide + first + b] = x[b * in + i];
}

/* Where changes are no more rows of x, `change` is the same for all samples. */
static void dense_forward(layer *l, int64_t batch, int changes, const float *x,
                          const float *change) {
    int64_t in = l->sizes.in, out = l->sizes.out, step = change ? 0 : 1;
    int64_t rows = batch + (changes ? (change ? 1 : batch) : 0), wide = filled(rows);
    for (int64_t i = 0; i < in; i++)
        for (int64_t b = rows; b < wide; b++) l->turned[i * wide + b] = 0;
    turn(l, change ? batch : rows, x, 0, wide);
    if (change) turn(l, 1, change, batch, wide);
    /* Changes have no bias: where there are some, it is added afterwards. */
    const float *first = changes ? NULL : l->bias;
    CALL(product, 16, out, wide, in, l->weight, in, 1, l->turned, wide, first, l->work, wide);
    for (int64_t o = 0; o < out; o++) {
        const float *work = l->work + o * wide;
        float *to = l->output + o, *along = to + batch * out, bias = changes ? l->bias[o] : 0;
        for (int64_t b = 0; b < batch; b++) {
            float value = changes ? work[b] + bias : work[b];
            int dead = l->relu && value <= 0;
            to[b * out] = dead ? 0 : value;
            if (changes) along[b * out] = dead ? 0 : work[batch + b * step];
        }
    }
}

/* Gradients of a dense layer; `below` takes that of its input, unless it is NULL. */
static void dense_backward(layer *l, int64_t batch, int changes, const float *x,
                           const float *change, float *below) {
    int64_t in = l->sizes.in, out = l->sizes.out, size = batch * out;
    int64_t rows = changes && !change ? 2 * batch : batch;
    float *g = l->gradient, *along = g + size;
    for (int64_t k = 0; l->relu && k < size; k++) g[k] = l->output[k] <= 0 ? 0 : g[k];
    for (int64_t k = 0; l->relu && changes && k < size; k++)
        along[k] = l->output[k] <= 0 ? 0 : along[k];
    memset(l->bias_gradient, 0, (size_t)out * sizeof(float));
    for (int64_t b = 0; b < batch; b++)
        for (int64_t o = 0; o < out; o++) l->bias_gradient[o] += g[b * out + o];
    CALL(product, 16, out, in, rows, g, 1, out, x, in, NULL, l->weight_gradient, in);
    if (below) CALL(product, 16, rows, in, out, g, out, 1, l->weight, in, NULL, below, in);
    if (!change) return;
    for (int64_t o = 0; o < out; o++) {
        float sum = 0;
        for (int64_t b = 0; b < batch; b++) sum += along[b * out + o];
        for (int64_t i = 0; i < in; i++) l->weight_gradient[o * in + i] += sum * change[i];
    }
}

/* Return the mean cross-entropy of logits, and write its gradient. */
static double cross_entropy(int64_t batch, int64_t classes, const float *logits,
                            const int64_t *labels, float *gradient) {
    double loss = 0;
    for (int64_t b = 0; b < batch; b++, logits += classes, gradient += classes) {
        float most = logits[0], sum = 0;
        for (int64_t c = 1; c < classes; c++) most = logits[c] > most ? logits[c] : most;
        for (int64_t c = 0; c < classes; c++) sum += gradient[c] = expf(logits[c] - most);
        float share = 1 / (sum * (float)batch);
        for (int64_t c = 0; c < classes; c++) gradient[c] *= share;
        gradient[labels[b]] -= 1 / (float)batch;
        loss += logf(sum) - (logits[labels[b]] - most);
    }
    return loss / (double)batch;
}

static float target(const targets *of, int64_t b, int64_t c) {
    return of->labels ? of->labels[b] == c : of->soft[b * of->apart + c];
}

/* Add the derivative's gradient at a sample's logits, and write the one at their changes t, both times
 * `each`; return the derivative, <p sum(y) - y, t>. p are the chances, y its own targets. */
static float derivative(int64_t classes, const float *p, const float *y, const float *t, float each,
                        float *gradient, float *back) {
    float whole = 0, mean = 0, own = 0;
    for (int64_t c = 0; c < classes; c++) {
        mean += p[c] * t[c];
        own += y[c] * t[c];
        whole += y[c];
    }
    for (int64_t c = 0; c < classes; c++) {
        gradient[c] += each * whole * p[c] * (t[c] - mean);
        back[c] = each * (whole * p[c] - y[c]);
    }
    return whole * mean - own;
}

/* Return the loss of logits against mixed targets, and write its gradient. Targets may have any sum:
 * with q the mixed ones and p = softmax, cross-entropy's gradient is p sum(q) - q. */
static double mixed_loss(const layer *last, int64_t batch, const mixture *m) {
    int64_t classes = last->sizes.out;
    const float *z = last->output, *t = z + batch * classes;
    float *g = last->gradient, *back = g + batch * classes, *p = last->work, *y = p + classes;
    float one = (float)(1 - m->share), rest = (float)m->share, count = (float)batch;
    double loss = 0;
    for (int64_t b = 0; b < batch; b++, z += classes, t += classes, g += classes, back += classes) {
        float most = z[0], sum = 0, whole = 0, inner = 0;
        for (int64_t c = 1; c < classes; c++) most = z[c] > most ? z[c] : most;
        for (int64_t c = 0; c < classes; c++) sum += p[c] = expf(z[c] - most);
        float height = most + logf(sum);
        for (int64_t c = 0; c < classes; c++) {
            y[c] = target(&m->own, b, c);
            float q = one * y[c] + (rest != 0 ? rest * target(&m->other, b, c) : 0);
            p[c] /= sum;
            inner += q * (height - z[c]);
            whole += q;
            g[c] = q;
        }
        for (int64_t c = 0; c < classes; c++) g[c] = (p[c] * whole - g[c]) / count;
        loss += inner;
        if (m->change)
            loss += m->factor * derivative(classes, p, y, t, (float)m->factor / count, g, back);
    }
    return loss / (double)batch;
}

static int conv_forward(layer *l, int64_t batch, int changes, const float *x,
                        const int64_t *strides, const float *change, const int64_t *once) {
    const shape *s = &l->sizes;
    if (edgefed_forward(s, x, strides, l->weight, l->bias, l->output, l->codes)) return -1;
    if (!changes) return 0;
    return edgefed_tangent(s, change ? change : x + batch * strides[0], change ? once : strides,
                           l->weight, l->codes, l->output + batch * s->out * s->rows * s->columns);
}

static int conv_backward(layer *l, int64_t batch, int changes, const float *x,
                         const int64_t *strides, const float *change, const int64_t *once,
                         const int64_t *g_strides, float *below) {
    const shape *s = &l->sizes;
    const float *g = l->gradient, *along = g + batch * g_strides[0];
    if (edgefed_weights_gradient(s, x, strides, g, g_strides, l->codes, l->weight_gradient,
                                 l->bias_gradient))
        return -1;
    if (below && edgefed_inputs_gradient(s, l->weight, g, g_strides, l->codes, below)) return -1;
    if (!changes) return 0;
    if (CALL(change_weights, s->kernel * s->in, s, change ? change : x + batch * strides[0],
             change ? once : strides, along, g_strides, l->codes, l->weight_gradient))
        return -1;
    if (!below) return 0;
    below += batch * s->in * s->height * s->width;
    return edgefed_inputs_gradient(s, l->weight, along, g_strides, l->codes, below);
}

/* Strides of contiguous images: a layer's input. */
#define DENSE_STRIDES(s) {(s)->in * (s)->height * (s)->width, (s)->height * (s)->width, (s)->width, 1}

/* Write every layer's output; with changes of the inputs, theirs behind it. */
static int forward_chain(layer *layers, int64_t count, int64_t batch, const float *x,
                         const int64_t *strides, const float *change, const int64_t *once) {
    int changes = change != NULL;
    for (int64_t k = 0; k < count; k++) {
        layer *l = layers + k;
        const float *from = k ? l[-1].output : x, *moved = k ? NULL : change;
        l->sizes.batch = batch;
        int64_t plain[] = DENSE_STRIDES(&l->sizes);
        if (l->dense)
            dense_forward(l, batch, changes, from, moved);
        else if (conv_forward(l, batch, changes, from, k ? plain : strides, moved, once))
            return -1;
    }
    return 0;
}

/* Write all gradients, from that of the last layer's output. `features` [batch][in of the last
 * layer] is added to what flows back from the last layer, unless it is NULL. A smaller batch than in the
 * forward pass means its first samples. */
static int backward_chain(layer *layers, int64_t count, int64_t batch, const float *x,
                          const int64_t *strides, const float *change, const int64_t *once,
                          const float *features) {
    int changes = change != NULL;
    for (int64_t k = count - 1; k >= 0; k--) {
        layer *l = layers + k;
        l->sizes.batch = batch;
        const shape *s = &l->sizes;
        const float *from = k ? l[-1].output : x, *moved = k ? NULL : change;
        float *below = k ? l[-1].gradient : NULL;
        int64_t windows = s->rows * s->columns;
        int64_t plain[] = DENSE_STRIDES(s);
        int64_t planar[] = {s->out * windows, windows, s->columns, 1};
        int64_t pixels[] = {s->out * windows, 1, s->columns * s->out, s->out};
        if (l->dense)
            dense_backward(l, batch, changes, from, moved, below);
        else if (conv_backward(l, batch, changes, from, k ? plain : strides, moved, once,
                               l[1].dense ? planar : pixels, below))
            return -1;
        for (int64_t i = 0; below && features && k == count - 1 && i < batch * s->in; i++)
            below[i] += features[i];
    }
    return 0;
}

/* Write the loss and all gradients; see below. */
static int chain_gradients(layer *layers, int64_t count, int64_t batch, const float *x,
                           const int64_t *strides, const mixture *m, float *loss) {
    if (forward_chain(layers, count, batch, x, strides, m->change, m->change_strides)) return -1;
    layer *last = layers + count - 1;
    *loss = (float)(m->plain ? cross_entropy(batch, last->sizes.out, last->output, m->own.labels,
                                             last->gradient)
                             : mixed_loss(last, batch, m));
    return backward_chain(layers, count, batch, x, strides, m->change, m->change_strides, NULL);
}

/* Return whether all labels are among the classes, or there are none. */
static int within(const int64_t *labels, int64_t batch, int64_t classes) {
    for (int64_t b = 0; labels && b < batch; b++)
        if (labels[b] < 0 || labels[b] >= classes) return 0;
    return 1;
}

/* Write the loss of a batch against labels and all gradients. `strides` are x's, for a convolution; a
 * dense layer takes dense rows. Return 1 if a label is none of the classes, and nothing is written. */
EXPORT int edgefed_gradients(layer *layers, int64_t count, int64_t batch, const float *x,
                             const int64_t *strides, const int64_t *labels, float *loss) {
    if (!within(labels, batch, layers[count - 1].sizes.out)) return 1;
    mixture m = {.plain = 1, .own = {labels, NULL, 0}};
    return chain_gradients(layers, count, batch, x, strides, &m, loss);
}

/* The same against mixed targets; labels or soft ones are NULL. The change is one sample, or NULL; its
 * strides are 0 for the batch. */
EXPORT int edgefed_mixed_gradients(layer *layers, int64_t count, int64_t batch, const float *x,
                                   const int64_t *strides, const int64_t *own_labels,
                                   const float *own, const int64_t *other_labels,
                                   const float *other, int64_t other_apart, double share,
                                   const float *change, const int64_t *change_strides,
                                   double factor, float *loss) {
    int64_t classes = layers[count - 1].sizes.out;
    if (!within(own_labels, batch, classes) || !within(other_labels, batch, classes)) return 1;
    mixture m = {0,     {own_labels, own, classes}, {other_labels, other, other_apart},
                 share, factor, change, change_strides};
    return chain_gradients(layers, count, batch, x, strides, &m, loss);
}
