/* The loss of a mixture of experts, each a chain of layers, and its gradient; the formulas are those
 * of learn/objectives/expert_mixture.py. kernels.c includes this after chain.h.
 *
 * K experts are in the fleet, of which `here` are here. Of a sample whose pass through an expert gets
 * no gradient only the forward half is made: an expert runs the samples that get one first, and
 * `places` says which row each sample has in it.
 */

#include <float.h>

typedef struct {
    int64_t experts, here, conditions, trains_experts, prunes_gate, detaches, adds_entropy;
    double threshold, skip_below, damping;
    const int64_t *numbers;               /* [here], rising */
    const float *phi, *frequencies;       /* [conditions][K], [conditions]; NULL with `shares` */
    const float *shares;                  /* [K], the q(z|s) of every sample, or NULL */
    const float *gate_weight, *gate_bias; /* [width][K], [K] */
    const float *bias;                    /* [classes], or NULL */
    float *phi_gradient, *gate_weight_gradient, *gate_bias_gradient, *bias_gradient;
    float *next_shares; /* [K]: by equation 13, with `shares` */
} expert_mixture;

/* A batch: x has `strides`; `conditions` [batch] is NULL where soft targets weigh the rows of phi. */
typedef struct {
    int64_t size, classes, width;
    const float *x;
    const int64_t *strides;
    targets y;
    const int64_t *conditions;
} expert_batch;

/* Work of a batch; `kept` is q', q without the experts that are not used. */
typedef struct {
    float *table, *at_table;              /* [conditions][K] */
    float *own, *kept_own;                /* [K]: q(z|s), q'(z|s) */
    float *q, *kept, *right, *gate, *at;  /* [batch][K]; right: log p(y|x, z), gate: log p(z|x, s) */
    float *hidden, *below, *at_features;  /* [batch][width] */
    float *inputs, *chances;              /* [batch][input], [classes] */
    int64_t *places, *counts;             /* [here][batch], [here] */
    uint8_t *used, *flows;                /* [K], [here][batch] */
} expert_room;

static double log_softmax(int64_t count, const float *z, float *to) {
    float most = z[0], sum = 0;
    for (int64_t c = 1; c < count; c++) most = z[c] > most ? z[c] : most;
    for (int64_t c = 0; c < count; c++) sum += expf(z[c] - most);
    float height = most + logf(sum);
    for (int64_t c = 0; c < count; c++) to[c] = z[c] - height;
    return height;
}

/* Divide what is used by its sum. */
static void renormalize(int64_t count, const uint8_t *used, const float *q, float *to) {
    float sum = 0;
    for (int64_t z = 0; z < count; z++) sum += used[z] ? q[z] : 0;
    if (sum < FLT_MIN) sum = FLT_MIN;
    for (int64_t z = 0; z < count; z++) to[z] = used[z] ? q[z] / sum : 0;
}

/* Find q(z|y_b) and q(z|s). */
static void find_shares(const expert_mixture *m, const expert_batch *b, expert_room *r) {
    int64_t K = m->experts;
    if (m->shares) {
        memcpy(r->own, m->shares, (size_t)K * sizeof(float));
        for (int64_t n = 0; n < b->size; n++) memcpy(r->q + n * K, r->own, (size_t)K * sizeof(float));
        return;
    }
    memset(r->own, 0, (size_t)K * sizeof(float));
    for (int64_t c = 0; c < m->conditions; c++) {
        float *row = r->table + c * K;
        log_softmax(K, m->phi + c * K, row);
        for (int64_t z = 0; z < K; z++) {
            row[z] = expf(row[z]);
            r->own[z] += m->frequencies[c] * row[z];
        }
    }
    for (int64_t n = 0; n < b->size; n++) {
        float *q = r->q + n * K;
        if (b->conditions) {
            memcpy(q, r->table + b->conditions[n] * K, (size_t)K * sizeof(float));
            continue;
        }
        memset(q, 0, (size_t)K * sizeof(float));
        for (int64_t c = 0; c < b->classes; c++)
            for (int64_t z = 0; z < K; z++) q[z] += target(&b->y, n, c) * r->table[c * K + z];
    }
}

/* Find which experts are used, and q'. */
static void find_used(const expert_mixture *m, const expert_batch *b, expert_room *r) {
    int64_t K = m->experts, any = 0;
    float least = (float)(m->threshold / (double)K);
    memset(r->used, 0, (size_t)K);
    for (int64_t e = 0; e < m->here; e++)
        any += r->used[m->numbers[e]] = r->own[m->numbers[e]] >= least;
    for (int64_t e = 0; e < m->here && !any; e++) r->used[m->numbers[e]] = 1;
    renormalize(K, r->used, r->own, r->kept_own);
    for (int64_t n = 0; n < b->size; n++) renormalize(K, r->used, r->q + n * K, r->kept + n * K);
}

/* Find which samples get gradients from which experts, and in which order each expert runs them. */
static void find_flows(const expert_mixture *m, const expert_batch *b, expert_room *r) {
    float least = (float)m->skip_below;
    for (int64_t e = 0; e < m->here; e++) {
        int64_t z = m->numbers[e], *places = r->places + e * b->size, flowing = 0;
        uint8_t *flows = r->flows + e * b->size;
        int always = !m->detaches && r->kept_own[z] >= least;
        for (int64_t n = 0; n < b->size; n++)
            flowing += flows[n] =
                r->used[z] && (always || r->kept[n * m->experts + z] >= least);
        int64_t first = 0, last = flowing;
        for (int64_t n = 0; n < b->size; n++) places[n] = flows[n] ? first++ : last++;
        r->counts[e] = flowing;
    }
}

/* Set where an expert's inputs are: the batch's own, or a copy in the expert's order. */
static const float *inputs_of(const layer *first, const expert_batch *b, expert_room *r, int64_t e,
                              int64_t *strides) {
    const shape *s = &first->sizes;
    memcpy(strides, b->strides, 4 * sizeof(int64_t));
    if (r->counts[e] == 0 || r->counts[e] == b->size) return b->x;
    int64_t rows = s->in, plane = s->height * s->width;
    for (int64_t n = 0; n < b->size; n++) {
        float *to = r->inputs + r->places[e * b->size + n] * rows * plane;
        for (int64_t c = 0; c < rows; c++)
            for (int64_t y = 0; y < s->height; y++)
                for (int64_t x = 0; x < s->width; x++)
                    *to++ = b->x[n * strides[0] + c * strides[1] + y * strides[2] + x * strides[3]];
    }
    int64_t dense[] = DENSE_STRIDES(s);
    memcpy(strides, dense, sizeof dense);
    return r->inputs;
}

/* Find an expert's log p(y|x), and write the gradient at its logits. */
static void find_right(const expert_mixture *m, const expert_batch *b, expert_room *r, int64_t e,
                       const layer *last) {
    int64_t z = m->numbers[e];
    for (int64_t n = 0; n < b->size; n++) {
        int64_t place = r->places[e * b->size + n];
        const float *logits = last->output + place * b->classes;
        float *g = last->gradient + place * b->classes, *p = r->chances, right = 0, whole = 0;
        for (int64_t c = 0; c < b->classes; c++) p[c] = logits[c] + (m->bias ? m->bias[c] : 0);
        log_softmax(b->classes, p, p);
        float weight = r->kept[n * m->experts + z] / (float)b->size;
        for (int64_t c = 0; c < b->classes; c++) {
            float y = target(&b->y, n, c);
            right += y != 0 ? y * p[c] : 0;
            whole += y;
        }
        for (int64_t c = 0; c < b->classes; c++) {
            g[c] = weight * (expf(p[c]) * whole - target(&b->y, n, c));
            if (m->bias) m->bias_gradient[c] += g[c];
            if (!r->flows[e * b->size + n]) g[c] = 0;
        }
        r->right[n * m->experts + z] = right;
    }
}

/* Run the experts forward; those that are not used only where their log p(y|x) is asked for. */
static int run_experts(const expert_mixture *m, const expert_batch *b, expert_room *r, layer *layers,
                       int64_t count) {
    size_t width = (size_t)b->width;
    if (m->bias) memset(m->bias_gradient, 0, (size_t)b->classes * sizeof(float));
    memset(r->right, 0, (size_t)(b->size * m->experts) * sizeof(float));
    memset(r->hidden, 0, (size_t)b->size * width * sizeof(float));
    for (int64_t e = 0; e < m->here; e++) {
        layer *chain = layers + e * count;
        int64_t strides[4];
        if (!r->used[m->numbers[e]] && !m->shares) continue;
        const float *x = inputs_of(chain, b, r, e, strides);
        if (forward_chain(chain, count, b->size, x, strides, NULL, NULL)) return -1;
        find_right(m, b, r, e, chain + count - 1);
        const float *features = count > 1 ? chain[count - 2].output : x;
        float share = r->kept_own[m->numbers[e]];
        for (int64_t n = 0; n < b->size; n++) {
            const float *from = features + r->places[e * b->size + n] * b->width;
            float *to = r->hidden + n * b->width;
            for (int64_t f = 0; f < b->width; f++) to[f] += share * from[f];
        }
    }
    return 0;
}

/* Find the gate's log p(z|x, s); write its gradients, and the one at the features that it sees. */
static void run_gate(const expert_mixture *m, const expert_batch *b, expert_room *r) {
    int64_t K = m->experts, width = b->width;
    memset(m->gate_bias_gradient, 0, (size_t)K * sizeof(float));
    memset(m->gate_weight_gradient, 0, (size_t)(width * K) * sizeof(float));
    for (int64_t n = 0; n < b->size; n++) {
        float *gate = r->gate + n * K, *at = r->at + n * K, whole = 0;
        const float *h = r->hidden + n * width, *aim = (m->prunes_gate ? r->kept : r->q) + n * K;
        memcpy(gate, m->gate_bias, (size_t)K * sizeof(float));
        for (int64_t f = 0; f < width; f++)
            for (int64_t z = 0; z < K; z++) gate[z] += h[f] * m->gate_weight[f * K + z];
        log_softmax(K, gate, gate);
        for (int64_t z = 0; z < K; z++) whole += aim[z];
        for (int64_t z = 0; z < K; z++) {
            at[z] = (expf(gate[z]) * whole - aim[z]) / (float)b->size;
            m->gate_bias_gradient[z] += at[z];
        }
        for (int64_t f = 0; f < width; f++) {
            float sum = 0;
            for (int64_t z = 0; z < K; z++) {
                m->gate_weight_gradient[f * K + z] += h[f] * at[z];
                sum += at[z] * m->gate_weight[f * K + z];
            }
            r->below[n * width + f] = sum;
        }
    }
}

/* Run the experts backward. */
static int return_experts(const expert_mixture *m, const expert_batch *b, expert_room *r,
                          layer *layers, int64_t count) {
    for (int64_t e = 0; e < m->here; e++) {
        layer *chain = layers + e * count;
        float share = r->kept_own[m->numbers[e]];
        int64_t strides[4];
        for (int64_t k = 0; k < count && !r->counts[e]; k++) {
            const shape *s = &chain[k].sizes;
            size_t taps = (size_t)(s->kernel * s->kernel * s->in * s->out);
            memset(chain[k].weight_gradient, 0, taps * sizeof(float));
            memset(chain[k].bias_gradient, 0, (size_t)s->out * sizeof(float));
        }
        if (!r->counts[e]) continue;
        for (int64_t n = 0; n < b->size && !m->detaches; n++) {
            if (!r->flows[e * b->size + n]) continue;
            float *to = r->at_features + r->places[e * b->size + n] * b->width;
            for (int64_t f = 0; f < b->width; f++) to[f] = share * r->below[n * b->width + f];
        }
        const float *x = inputs_of(chain, b, r, e, strides);
        if (backward_chain(chain, count, r->counts[e], x, strides, NULL, NULL,
                           m->detaches ? NULL : r->at_features))
            return -1;
    }
    return 0;
}

/* Return a sample's term of the loss, and in `at` its slope along q(z|y_b), up to a constant: that
 * changes nothing behind a softmax. */
static double sample_term(const expert_mixture *m, const float *q, const float *kept,
                          const float *right, const float *gate, const uint8_t *used, float *at) {
    const float *aim = m->prunes_gate ? kept : q;
    float sum = 0, mean = 0, whole = 0;
    for (int64_t z = 0; z < m->experts; z++) {
        sum += aim[z] * gate[z];
        at[z] = 0;
        if (!used[z]) continue;
        float height = logf(kept[z] > FLT_MIN ? kept[z] : FLT_MIN);
        sum += kept[z] * right[z] - (m->adds_entropy ? kept[z] * height : 0);
        at[z] = right[z] + (m->prunes_gate ? gate[z] : 0) - (m->adds_entropy ? height : 0);
        mean += kept[z] * at[z];
        whole += q[z];
    }
    if (whole < FLT_MIN) whole = FLT_MIN;
    for (int64_t z = 0; z < m->experts; z++)
        at[z] = (used[z] ? (at[z] - mean) / whole : 0) + (m->prunes_gate ? 0 : gate[z]);
    return sum;
}

/* Write the gradient at phi; return the loss. */
static double finish_table(const expert_mixture *m, const expert_batch *b, expert_room *r) {
    int64_t K = m->experts, rows = m->shares ? 0 : m->conditions;
    double sum = 0;
    memset(r->at_table, 0, (size_t)(rows * K) * sizeof(float));
    for (int64_t n = 0; n < b->size; n++) {
        float *at = r->at + n * K;
        sum += sample_term(m, r->q + n * K, r->kept + n * K, r->right + n * K, r->gate + n * K,
                           r->used, at);
        for (int64_t c = 0; c < rows; c++) {
            float share = b->conditions ? b->conditions[n] == c : target(&b->y, n, c);
            for (int64_t z = 0; share != 0 && z < K; z++)
                r->at_table[c * K + z] -= share * at[z] / (float)b->size;
        }
    }
    for (int64_t c = 0; c < rows; c++) {
        const float *p = r->table + c * K, *at = r->at_table + c * K;
        float mean = 0;
        for (int64_t z = 0; z < K; z++) mean += p[z] * at[z];
        for (int64_t z = 0; z < K; z++) m->phi_gradient[c * K + z] = p[z] * (at[z] - mean);
    }
    return -sum / (double)b->size;
}

/* Write the shares after the step; experts that are not here keep theirs. */
static void finish_shares(const expert_mixture *m, const expert_batch *b, expert_room *r) {
    float most = -INFINITY, sum = 0;
    for (int64_t e = 0; e < m->here; e++) {
        float *joint = r->at + e;
        *joint = 0;
        for (int64_t n = 0; n < b->size; n++)
            *joint += r->right[n * m->experts + m->numbers[e]] +
                      r->gate[n * m->experts + m->numbers[e]];
        *joint /= (float)b->size;
        most = *joint > most ? *joint : most;
    }
    for (int64_t e = 0; e < m->here; e++) sum += r->at[e] = expf(r->at[e] - most);
    float damping = (float)m->damping, rest = (float)(1 - m->damping), mass = 0;
    for (int64_t e = 0; e < m->here; e++) mass += r->own[m->numbers[e]];
    memcpy(m->next_shares, r->own, (size_t)m->experts * sizeof(float));
    for (int64_t e = 0; e < m->here; e++) {
        int64_t z = m->numbers[e];
        m->next_shares[z] = damping * r->own[z] + rest * mass * (r->at[e] / sum);
    }
}

static void *carve(char **memory, int64_t count, size_t size) {
    void *found = *memory;
    *memory += ((size_t)count * size + 63) / 64 * 64;
    return found;
}

/* Place the work in `memory`; return how many bytes it takes. */
static size_t lay_out_experts(expert_room *r, char *memory, const expert_mixture *m,
                              const expert_batch *b, const layer *first) {
    char *at = memory;
    int64_t pairs = b->size * m->experts, cells = m->conditions * m->experts;
    int64_t input = first->sizes.in * first->sizes.height * first->sizes.width;
    float **of_pairs[] = {&r->q, &r->kept, &r->right, &r->gate, &r->at};
    float **of_features[] = {&r->hidden, &r->below, &r->at_features};
    for (int k = 0; k < 5; k++) *of_pairs[k] = carve(&at, pairs, sizeof(float));
    for (int k = 0; k < 3; k++) *of_features[k] = carve(&at, b->size * b->width, sizeof(float));
    r->table = carve(&at, cells, sizeof(float));
    r->at_table = carve(&at, cells, sizeof(float));
    r->own = carve(&at, m->experts, sizeof(float));
    r->kept_own = carve(&at, m->experts, sizeof(float));
    r->inputs = carve(&at, b->size * input, sizeof(float));
    r->chances = carve(&at, b->classes, sizeof(float));
    r->places = carve(&at, m->here * b->size, sizeof(int64_t));
    r->counts = carve(&at, m->here, sizeof(int64_t));
    r->used = carve(&at, m->experts, 1);
    r->flows = carve(&at, m->here * b->size, 1);
    return (size_t)(at - memory);
}

/* Write the loss of a batch, and all gradients: of the experts' weights where the layers say, and of
 * the mixture's own arrays. `layers` [here][count]; either labels or soft targets are NULL, and
 * conditions are, where soft targets take their place. Return 1 if a label is none of the classes, 2 if
 * a condition is none of phi's; nothing is written then. */
EXPORT int edgefed_expert_gradients(layer *layers, int64_t count, int64_t batch, const float *x,
                                    const int64_t *strides, const int64_t *labels,
                                    const float *soft, const int64_t *conditions,
                                    const expert_mixture *m, float *loss) {
    const shape *last = &layers[count - 1].sizes;
    expert_batch b = {batch, last->out, last->in, x, strides, {labels, soft, last->out}, conditions};
    if (!within(labels, batch, b.classes)) return 1;
    if (!within(conditions, batch, m->conditions)) return 2;
    expert_room r;
    char *memory = malloc(lay_out_experts(&r, NULL, m, &b, layers));
    if (!memory) return -1;
    lay_out_experts(&r, memory, m, &b, layers);
    find_shares(m, &b, &r);
    find_used(m, &b, &r);
    find_flows(m, &b, &r);
    int failed = run_experts(m, &b, &r, layers, count);
    if (!failed) {
        run_gate(m, &b, &r);
        if (m->trains_experts) failed = return_experts(m, &b, &r, layers, count);
        *loss = (float)finish_table(m, &b, &r);
        if (m->shares) finish_shares(m, &b, &r);
    }
    free(memory);
    return failed;
}
