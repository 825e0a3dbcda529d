/* Exact merging (learn/aggregation/exact_mean.py), for one instruction set; kernels.c includes this with NAME.
 *
 * Add weight * (the bits of value * scale + 1.5 * 2^52) to each cell, modulo 2^64. Return whether
 * all values are within the bound, which no NaN is. A second call with the weight's negative takes
 * exactly the same away again.
 */

/* Of two numbers without their signs, the larger has the larger bits; those of NaN are the largest. */
#define MERGE(kind, bits_kind)                                                                 \
    static int NAME(merge_##kind##s)(uint64_t *restrict cells, const kind *restrict values,    \
                                     int64_t count, double scale, uint64_t weight,             \
                                     double bound) {                                           \
        kind factor = (kind)scale, most = (kind)bound;                                         \
        bits_kind largest = 0, allowed, own;                                                   \
        const bits_kind unsigned_bits = (bits_kind)(UINT64_MAX >> (65 - 8 * sizeof(kind)));    \
        memcpy(&allowed, &most, sizeof allowed);                                               \
        for (int64_t k = 0; k < count; k++) {                                                  \
            double wide = (double)(values[k] * factor) + 6755399441055744.0;                   \
            uint64_t bits;                                                                     \
            memcpy(&bits, &wide, sizeof bits);                                                 \
            cells[k] += bits * weight;                                                         \
            memcpy(&own, &values[k], sizeof own);                                              \
            own &= unsigned_bits;                                                              \
            largest = own > largest ? own : largest;                                           \
        }                                                                                      \
        return largest <= allowed;                                                             \
    }
MERGE(float, int32_t)
MERGE(double, int64_t)
#undef MERGE
