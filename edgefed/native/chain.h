/* The mean cross-entropy of a chain of layers, and its gradient: small convolutions with pooling and
 * ReLU, then fully connected layers. kernels.c includes this at its end. */

#include <math.h>

/* A layer, and where its results go. `sizes.in` and `sizes.out` are a dense layer's, too. */
typedef struct {
    shape sizes;
    int64_t dense, relu;
    const float *weight, *bias;
    float *weight_gradient, *bias_gradient;
    float *output;   /* [batch][values] */
    float *gradient; /* of the output; a convolution below another has its channels last */
    float *turned;   /* dense: the input as [values][batch], rows filled up to `wide` values */
    float *work;     /* dense: the output as [values][batch], likewise */
    uint8_t *codes;  /* convolution */
} layer;

/* Samples in a turned row: whole vectors of any width. */
static int64_t filled(int64_t batch) { return (batch + 15) / 16 * 16; }

static void dense_forward(layer *l, int64_t batch, const float *x) {
    int64_t in = l->sizes.in, out = l->sizes.out, wide = filled(batch);
    for (int64_t i = 0; i < in; i++) {
        for (int64_t b = 0; b < batch; b++) l->turned[i * wide + b] = x[b * in + i];
        for (int64_t b = batch; b < wide; b++) l->turned[i * wide + b] = 0;
    }
    CALL(product, 16, out, wide, in, l->weight, in, 1, l->turned, wide, l->bias, l->work, wide);
    for (int64_t o = 0; o < out; o++)
        for (int64_t b = 0; b < batch; b++) {
            float value = l->work[o * wide + b];
            l->output[b * out + o] = l->relu && value <= 0 ? 0 : value;
        }
}

/* Gradients of a dense layer; `below` takes that of its input, unless it is NULL. */
static void dense_backward(layer *l, int64_t batch, const float *x, float *below) {
    int64_t in = l->sizes.in, out = l->sizes.out;
    float *g = l->gradient;
    for (int64_t k = 0; l->relu && k < batch * out; k++) g[k] = l->output[k] <= 0 ? 0 : g[k];
    memset(l->bias_gradient, 0, (size_t)out * sizeof(float));
    for (int64_t b = 0; b < batch; b++)
        for (int64_t o = 0; o < out; o++) l->bias_gradient[o] += g[b * out + o];
    CALL(product, 16, out, in, batch, g, 1, out, x, in, NULL, l->weight_gradient, in);
    if (below) CALL(product, 16, batch, in, out, g, out, 1, l->weight, in, NULL, below, in);
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

static int conv_backward(layer *l, const float *x, const int64_t *strides, const int64_t *g_strides,
                         float *below) {
    const shape *s = &l->sizes;
    if (edgefed_weights_gradient(s, x, strides, l->gradient, g_strides, l->codes,
                                 l->weight_gradient, l->bias_gradient))
        return -1;
    return below ? edgefed_inputs_gradient(s, l->weight, l->gradient, g_strides, l->codes, below)
                 : 0;
}

/* Write the loss of a batch and all gradients. `strides` are x's, for a convolution; a dense layer
 * takes dense rows. */
EXPORT int edgefed_gradients(layer *layers, int64_t count, int64_t batch, const float *x,
                             const int64_t *strides, const int64_t *labels, float *loss) {
    for (int64_t k = 0; k < count; k++) {
        layer *l = layers + k;
        const float *from = k ? l[-1].output : x;
        l->sizes.batch = batch;
        const shape *s = &l->sizes;
        int64_t plain[] = {s->in * s->height * s->width, s->height * s->width, s->width, 1};
        if (l->dense)
            dense_forward(l, batch, from);
        else if (edgefed_forward(s, from, k ? plain : strides, l->weight, l->bias, l->output,
                                 l->codes))
            return -1;
    }
    layer *last = layers + count - 1;
    *loss = (float)cross_entropy(batch, last->sizes.out, last->output, labels, last->gradient);
    for (int64_t k = count - 1; k >= 0; k--) {
        layer *l = layers + k;
        const shape *s = &l->sizes;
        const float *from = k ? l[-1].output : x;
        float *below = k ? l[-1].gradient : NULL;
        int64_t windows = s->rows * s->columns;
        int64_t plain[] = {s->in * s->height * s->width, s->height * s->width, s->width, 1};
        int64_t planar[] = {s->out * windows, windows, s->columns, 1};
        int64_t pixels[] = {s->out * windows, 1, s->columns * s->out, s->out};
        if (l->dense)
            dense_backward(l, batch, from, below);
        else if (conv_backward(l, from, k ? plain : strides, l[1].dense ? planar : pixels, below))
            return -1;
    }
    return 0;
}
