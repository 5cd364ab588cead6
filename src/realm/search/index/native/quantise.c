/* Rows to codes, in one pass over the vectors: compilers' vector types, compiled twice on x86. */
#include "kernel.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#define MOST_DIM 2048
#define SMALLEST 1e-30f  /* rows with no component above it get the code of zero: their scale could not be inverted */
#define FLOOR 0x1p-50f   /* added to every bound: pays for what underflows or is flushed to zero */
#define ROUNDED_UP 1.0001f

#define LANES 8
typedef float floats __attribute__((vector_size(LANES * 4)));
typedef int32_t ints __attribute__((vector_size(LANES * 4)));
typedef uint8_t bytes __attribute__((vector_size(LANES)));

typedef struct {
    realm_codes *codes;
    const float *vectors; /* [rows][dim] */
    const float *bias;    /* [rows] or NULL */
    _Atomic int64_t refused; /* the first row found with a component that is not finite, or -1 */
} quantise_task;

/* The low bytes of eight integers of 0..255. */
static inline __attribute__((always_inline)) bytes low_bytes(ints whole) {
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    /* gcc converts lane by lane otherwise, which takes most of the time of a row. */
    typedef uint8_t all_bytes __attribute__((vector_size(LANES * 4)));
    const all_bytes each = (all_bytes)whole;
    return __builtin_shufflevector(each, each, 0, 4, 8, 12, 16, 20, 24, 28);
#endif
#endif
    return __builtin_convertvector(whole, bytes);
}

/* Codes of eight components; adds the squares of what the codes lose, and of the codes, both in units of the scale. */
static inline __attribute__((always_inline)) void code_lanes(const float *vector, float inverse, uint8_t *code, floats *lost,
                                                             floats *square) {
    floats value;
    memcpy(&value, vector, sizeof value);
    value *= inverse;
    const ints whole = __builtin_convertvector(value + 128.5f, ints); /* in 1..255: truncation rounds to the nearest */
    const floats near = __builtin_convertvector(whole - 128, floats), rest = value - near;
    *lost += rest * rest;
    *square += near * near;
    const bytes narrow = low_bytes(whole);
    memcpy(code, &narrow, sizeof narrow);
}

/* Codes of one row: uint8 [quads * 4]. Returns 0 if a component is not finite. */
static inline __attribute__((always_inline)) int row_codes(const float *vector, int64_t dim, int64_t padded, uint8_t *code, float *scale,
                                                           float *residual, float *norm) {
    uint32_t largest_bits = 0;
    for (int64_t i = 0; i < dim; i++) {
        uint32_t bits;
        memcpy(&bits, vector + i, 4);
        bits &= 0x7fffffff; /* without the sign, floats are ordered as their bits are */
        largest_bits = bits > largest_bits ? bits : largest_bits;
    }
    if (largest_bits >= 0x7f800000)
        return 0;
    float largest;
    memcpy(&largest, &largest_bits, 4);
    memset(code, 128, (size_t)padded);
    if (largest < SMALLEST) {
        *scale = *norm = 0;
        *residual = largest * sqrtf((float)dim) * ROUNDED_UP;
        return 1;
    }
    floats lost = {0};
    floats square = {0};
    int64_t i = 0;
    for (; i + LANES <= dim; i += LANES)
        code_lanes(vector + i, 127 / largest, code + i, &lost, &square);
    if (i < dim) {
        float rest[LANES] = {0};
        uint8_t rest_code[LANES];
        memcpy(rest, vector + i, (size_t)(dim - i) * 4);
        code_lanes(rest, 127 / largest, rest_code, &lost, &square);
        memcpy(code + i, rest_code, (size_t)(dim - i));
    }
    float sum = 0, whole_square = 0;
    for (int lane = 0; lane < LANES; lane++) {
        sum += lost[lane];
        whole_square += square[lane];
    }
    *scale = largest / 127;
    *norm = fminf(*scale * sqrtf(whole_square) * ROUNDED_UP, FLT_MAX);
    /* The second term: value and scale are rounded, by less than 4 units of 2^-24 of |x|, and |x| is at most norm + residual. */
    *residual = fminf(*scale * sqrtf(sum) * (1 + (float)dim * 0x1p-23f) * ROUNDED_UP + *norm * 0x1p-21f, FLT_MAX);
    return 1;
}

static inline __attribute__((always_inline)) void one_row(quantise_task *task, int64_t row, const float *vector, uint8_t *code,
                                                          float *residual, float *norm) {
    realm_codes *codes = task->codes;
    if (!row_codes(vector, codes->dim, codes->quads * 4, code, &codes->scale[row], residual, norm)) {
        int64_t none = -1;
        atomic_compare_exchange_strong(&task->refused, &none, row);
        *residual = *norm = 0;
        memset(code, 128, (size_t)codes->quads * 4);
    }
}

static inline float larger(float a, float b) { return a > b ? a : b; }

/* Interleave the codes of a group's bundles: [BUNDLE][quads] -> [quads][BUNDLE], in units of four bytes. */
static inline void interleave(const uint8_t *source, uint8_t *target, int64_t quads) {
    for (int bundle = 0; bundle < GROUP; bundle += BUNDLE, source += BUNDLE * quads * 4)
        for (int64_t quad = 0; quad < quads; quad++, target += BUNDLE * 4)
            for (int row = 0; row < BUNDLE; row++)
                memcpy(target + row * 4, source + (row * quads + quad) * 4, 4);
}

static inline __attribute__((always_inline)) void groups_range(quantise_task *task, int64_t first, int64_t last) {
    realm_codes *codes = task->codes;
    uint8_t code[GROUP * MOST_DIM] __attribute__((aligned(64)));
    for (int64_t group = first; group < last; group++) {
        const int64_t start = group * GROUP;
        const int rows = (int)(codes->rows - start < GROUP ? codes->rows - start : GROUP);
        float residual = 0, norm = 0, bias = 0, row_residual, row_norm;
        for (int i = 0; i < rows; i++) {
            one_row(task, start + i, task->vectors + (start + i) * codes->dim, code + i * codes->quads * 4, &row_residual, &row_norm);
            residual = larger(residual, row_residual);
            norm = larger(norm, row_norm);
            codes->offset[start + i] = task->bias ? task->bias[start + i] : 0;
            bias = larger(bias, fabsf(codes->offset[start + i]));
        }
        for (int i = rows; i < GROUP; i++) {
            memset(code + i * codes->quads * 4, 128, (size_t)codes->quads * 4);
            codes->scale[start + i] = 0;
            codes->offset[start + i] = -INFINITY;
        }
        interleave(code, codes->codes + group * codes->quads * GROUP * 4, codes->quads);
        codes->residual[group] = residual + FLOOR;
        codes->norm[group] = norm + FLOOR;
        codes->slack[group] = bias * 0x1p-20f;
    }
}

static void groups_plain(void *task, int64_t first, int64_t last) { groups_range(task, first, last); }
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void groups_avx2(void *task, int64_t first, int64_t last) { groups_range(task, first, last); }
#else
#define groups_avx2 groups_plain
#endif

/* Codes of all rows. Returns -1, or a row that has a component which is not finite (the codes are then of no use). */
int64_t realm_quantise(const realm_codes *codes, const float *vectors, const float *bias, int32_t threads, int32_t level) {
    realm_codes target = *codes;
    quantise_task task = {.codes = &target, .vectors = vectors, .bias = bias};
    atomic_init(&task.refused, -1);
    realm_parallel(level >= LEVEL_AVX2 ? groups_avx2 : groups_plain, &task, codes->groups, 16, threads);
    return atomic_load(&task.refused);
}
