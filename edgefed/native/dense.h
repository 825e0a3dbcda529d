/* Products of small matrices, for one instruction set; kernels.c includes this with LANES, REGISTERS
 * and NAME. */

#define VF NAME(vf)
#define LOAD NAME(load)
#define STORE NAME(store)
#define ROWS 4
#define VECTORS (REGISTERS > 16 ? 4 : 2)

/* `rows` rows of c by `vectors` vectors that begin at `starts`; arguments as for `product`. */
INLINE void NAME(tile)(int64_t depth, const float *a, int64_t a_row, int64_t a_column,
                       const float *b, int64_t b_row, const float *first, float *c, int64_t c_row,
                       const int64_t *starts, const int rows, const int vectors) {
    VF sums[ROWS][4];
    UNROLL for (int r = 0; r < rows; r++) {
        UNROLL for (int v = 0; v < vectors; v++) sums[r][v] = (VF){0} + (first ? first[r] : 0);
    }
    for (int64_t k = 0; k < depth; k++, b += b_row) {
        VF row[4];
        UNROLL for (int v = 0; v < vectors; v++) row[v] = LOAD(b + starts[v]);
        UNROLL for (int r = 0; r < rows; r++) {
            VF factor = (VF){0} + a[r * a_row + k * a_column];
            UNROLL for (int v = 0; v < vectors; v++) sums[r][v] += factor * row[v];
        }
    }
    UNROLL for (int r = 0; r < rows; r++) {
        UNROLL for (int v = 0; v < vectors; v++) STORE(c + r * c_row + starts[v], sums[r][v]);
    }
}

static void NAME(tile_of)(int64_t depth, const float *a, int64_t a_row, int64_t a_column,
                          const float *b, int64_t b_row, const float *first, float *c,
                          int64_t c_row, const int64_t *starts, int rows, int vectors) {
#define TILE(r, v)              \
    if (rows == r && vectors == v) \
        NAME(tile)(depth, a, a_row, a_column, b, b_row, first, c, c_row, starts, r, v)
    TILE(1, 1);
    TILE(1, 2);
    TILE(4, 1);
    TILE(4, 2);
#if REGISTERS > 16
    TILE(1, 3);
    TILE(1, 4);
    TILE(4, 3);
    TILE(4, 4);
#endif
#undef TILE
}

/* c = a b + first, of sizes height x depth, depth x width, height x width; `first` has a number for
 * each row, or is NULL. b and c are dense along their rows. Vectors that would reach beyond a row
 * begin earlier, and write some values twice. */
static void NAME(product)(int64_t height, int64_t width, int64_t depth, const float *a,
                          int64_t a_row, int64_t a_column, const float *b, int64_t b_row,
                          const float *first, float *c, int64_t c_row) {
    if (width < LANES) {
        for (int64_t r = 0; r < height; r++)
            for (int64_t n = 0; n < width; n++) {
                float sum = first ? first[r] : 0;
                for (int64_t k = 0; k < depth; k++)
                    sum += a[r * a_row + k * a_column] * b[k * b_row + n];
                c[r * c_row + n] = sum;
            }
        return;
    }
    for (int64_t n = 0; n < width; n += VECTORS * LANES) {
        int64_t starts[4], vectors = 0;
        for (int64_t m = n; m < width && vectors < VECTORS; m += LANES)
            starts[vectors++] = m + LANES <= width ? m : width - LANES;
        for (int64_t r = 0, rows; r < height; r += rows) {
            rows = height - r >= ROWS ? ROWS : 1;
            NAME(tile_of)(depth, a + r * a_row, a_row, a_column, b, b_row, first ? first + r : NULL,
                          c + r * c_row, c_row, starts, (int)rows, (int)vectors);
        }
    }
}

#undef ROWS
#undef VECTORS
#undef VF
#undef LOAD
#undef STORE
