/* AVX2: products of neighbours are added up in 16 bits over four quads (the queries are coded so that they fit), then in 32 bits. */
#include "kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <string.h>

#define TARGET __attribute__((target("avx2,fma")))
#define NAME(x) x##_avx2
#define VECTOR __m256
#define LANES 8
#define PARTS 2
#define LARGER(a, b) _mm256_max_ps(b, a)
#define LARGEST_LANE(a) largest_of_eight(a)
#define LOWEST _mm256_set1_ps(-INFINITY)
#define STORE(pointer, vector) _mm256_storeu_ps(pointer, vector)
#define REACHING(pointer, floor) (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(pointer), _mm256_set1_ps(floor), _CMP_GE_OQ))

TARGET static inline float largest_of_eight(__m256 a) {
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

TARGET static inline __m256i four_components(const int8_t *components) {
    int32_t word;
    memcpy(&word, components, 4);
    return _mm256_set1_epi32(word);
}

TARGET static inline __m256i eight_rows(const uint8_t *rows) { return _mm256_loadu_si256((const __m256i *)rows); }

/* sums[plane][part] += inner products of sixteen rows and some planes of a panel. */
TARGET static inline __attribute__((always_inline)) void add_products(const uint8_t *x, const int8_t *q, int64_t quads, int used,
                                                                       __m256i sums[PANEL][PARTS]) {
    const __m256i ones = _mm256_set1_epi16(1);
    const int64_t next = BUNDLE * 4;
    for (; quads >= 4; quads -= 4, x += 4 * next, q += 4 * PANEL * 4)
        for (int plane = 0; plane < used; plane++) {
            __m256i pairs[PARTS];
            for (int part = 0; part < PARTS; part++)
                pairs[part] = _mm256_maddubs_epi16(eight_rows(x + part * 32), four_components(q + plane * 4));
            for (int quad = 1; quad < 4; quad++) {
                const __m256i y = four_components(q + (quad * PANEL + plane) * 4);
                for (int part = 0; part < PARTS; part++) {
                    const __m256i products = _mm256_maddubs_epi16(eight_rows(x + quad * next + part * 32), y);
                    pairs[part] = _mm256_add_epi16(pairs[part], products);
                }
            }
            for (int part = 0; part < PARTS; part++)
                sums[plane][part] = _mm256_add_epi32(sums[plane][part], _mm256_madd_epi16(pairs[part], ones));
        }
    for (; quads > 0; quads--, x += next, q += PANEL * 4)
        for (int plane = 0; plane < used; plane++)
            for (int part = 0; part < PARTS; part++) {
                const __m256i pairs = _mm256_maddubs_epi16(eight_rows(x + part * 32), four_components(q + plane * 4));
                sums[plane][part] = _mm256_add_epi32(sums[plane][part], _mm256_madd_epi16(pairs, ones));
            }
}

TARGET static inline __attribute__((always_inline)) void part_avx2(const realm_codes *codes, const realm_queries *queries, int64_t plane,
                                                                   int64_t group, int row, int planes, int used, int cached,
                                                                   __m256 scores[PANEL][PARTS]) {
    (void)cached; /* one bundle is read after the other anyway */
    const int64_t quads = codes->quads;
    const int8_t *q = queries->panels + plane / PANEL * quads * PANEL * 4 + plane % PANEL * 4;
    const int32_t *shift = queries->shift + plane;
    const float *step = queries->step + plane;
    const float *scale = codes->scale + group * GROUP + row, *offset = codes->offset + group * GROUP + row;
    __m256i sums[PANEL][PARTS];
    for (int i = 0; i < used; i++)
        for (int part = 0; part < PARTS; part++)
            sums[i][part] = _mm256_set1_epi32(-shift[i]);
    add_products(codes->codes + (group * GROUP + row) * quads * 4, q, quads, used, sums);
    for (int query = 0; query < used / planes; query++)
        for (int part = 0; part < PARTS; part++) {
            const int i = query * planes;
            __m256 score = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[i][part]), _mm256_set1_ps(step[i]));
            if (planes == 2)
                score = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[i + 1][part]), _mm256_set1_ps(step[i + 1]), score);
            scores[query][part] = _mm256_fmadd_ps(score, _mm256_loadu_ps(scale + part * LANES), _mm256_loadu_ps(offset + part * LANES));
        }
}

TARGET static inline void bundle_avx2(const realm_codes *codes, const realm_queries *queries, int64_t plane, int64_t group, int row,
                                      int planes, float scores[BUNDLE]) {
    __m256 found[PANEL][PARTS];
    if (planes == 1)
        part_avx2(codes, queries, plane, group, row, 1, 1, 1, found);
    else
        part_avx2(codes, queries, plane, group, row, 2, 2, 1, found);
    for (int part = 0; part < PARTS; part++)
        STORE(scores + part * LANES, found[0][part]);
}

#include "scan_template.h"
#endif
