/* AVX-512 VNNI: one instruction multiplies four components and adds them up in 32 bits. */
#include "kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <string.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni,fma")))
#define NAME(x) x##_vnni
#define VECTOR __m512
#define LANES 16
#define PARTS 4
#define LARGER(a, b) _mm512_max_ps(b, a)
#define LARGEST_LANE(a) _mm512_reduce_max_ps(a)
#define LOWEST _mm512_set1_ps(-INFINITY)
#define STORE(pointer, vector) _mm512_storeu_ps(pointer, vector)
#define REACHING(pointer, floor) (unsigned)_mm512_cmp_ps_mask(_mm512_loadu_ps(pointer), _mm512_set1_ps(floor), _CMP_GE_OQ)

/* sum += products of four components, added up. As an instruction of our own: of the intrinsic, gcc 12 makes a copy of every sum before and after
 * it and keeps one of sixteen in memory, which takes three times as long as the products. */
#define ADD_PRODUCTS(sum, rows, components) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(rows), "v"(components))

TARGET static inline __m512i four_components(const int8_t *components) {
    int32_t word;
    memcpy(&word, components, 4);
    return _mm512_set1_epi32(word);
}

/* sums[plane][part] += inner products of 64 rows and some planes of a panel: 16 of the 32 registers. */
TARGET static inline __attribute__((always_inline)) void add_products(const uint8_t *x, const int8_t *q, int64_t quads, int used,
                                                                       __m512i sums[PANEL][PARTS]) {
    const int64_t bundle = quads * BUNDLE * 4;
    for (int64_t quad = 0; quad < quads; quad++, x += BUNDLE * 4, q += PANEL * 4) {
        __m512i rows[PARTS];
        for (int part = 0; part < PARTS; part++)
            rows[part] = _mm512_loadu_si512(x + part * bundle);
        for (int plane = 0; plane < used; plane++) {
            const __m512i y = four_components(q + plane * 4);
            for (int part = 0; part < PARTS; part++)
                ADD_PRODUCTS(sums[plane][part], rows[part], y);
        }
    }
}

/* sums[plane] += inner products of the 16 rows of a bundle. Two sums for each plane, so that no product waits for the one before. */
TARGET static inline __attribute__((always_inline)) void add_bundle_products(const uint8_t *x, const int8_t *q, int64_t quads, int used,
                                                                              __m512i sums[PANEL / 2]) {
    __m512i others[PANEL / 2];
    for (int plane = 0; plane < used; plane++)
        others[plane] = _mm512_setzero_si512();
    int64_t quad = 0;
    for (; quad + 2 <= quads; quad += 2, x += 2 * BUNDLE * 4, q += 2 * PANEL * 4) {
        const __m512i even = _mm512_loadu_si512(x), odd = _mm512_loadu_si512(x + BUNDLE * 4);
        for (int plane = 0; plane < used; plane++) {
            ADD_PRODUCTS(sums[plane], even, four_components(q + plane * 4));
            ADD_PRODUCTS(others[plane], odd, four_components(q + (PANEL + plane) * 4));
        }
    }
    if (quad < quads) {
        const __m512i last = _mm512_loadu_si512(x);
        for (int plane = 0; plane < used; plane++)
            ADD_PRODUCTS(sums[plane], last, four_components(q + plane * 4));
    }
    for (int plane = 0; plane < used; plane++)
        sums[plane] = _mm512_add_epi32(sums[plane], others[plane]);
}

/* As add_products for few planes, one bundle after the other: memory that is read from end to end comes twice as fast as four bundles at a
 * time. */
TARGET static inline __attribute__((always_inline)) void add_products_in_order(const uint8_t *x, const int8_t *q, int64_t quads, int used,
                                                                                __m512i sums[PANEL][PARTS]) {
    for (int part = 0; part < PARTS; part++) {
        __m512i own[PANEL / 2];
        for (int plane = 0; plane < used; plane++)
            own[plane] = sums[plane][part];
        add_bundle_products(x + part * quads * BUNDLE * 4, q, quads, used, own);
        for (int plane = 0; plane < used; plane++)
            sums[plane][part] = own[plane];
    }
}

TARGET static inline __attribute__((always_inline)) void part_vnni(const realm_codes *codes, const realm_queries *queries, int64_t plane,
                                                                   int64_t group, int row, int planes, int used, int cached,
                                                                   __m512 scores[PANEL][PARTS]) {
    const int64_t quads = codes->quads;
    const int8_t *q = queries->panels + plane / PANEL * quads * PANEL * 4 + plane % PANEL * 4;
    const int32_t *shift = queries->shift + plane;
    const float *step = queries->step + plane;
    const float *scale = codes->scale + group * GROUP + row, *offset = codes->offset + group * GROUP + row;
    __m512i sums[PANEL][PARTS];
    for (int i = 0; i < used; i++)
        for (int part = 0; part < PARTS; part++)
            sums[i][part] = _mm512_set1_epi32(-shift[i]);
    const uint8_t *x = codes->codes + (group * GROUP + row) * quads * 4;
    if (used <= PANEL / 2 && !cached)
        add_products_in_order(x, q, quads, used, sums);
    else
        add_products(x, q, quads, used, sums);
    for (int query = 0; query < used / planes; query++)
        for (int part = 0; part < PARTS; part++) {
            const int i = query * planes;
            __m512 score = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[i][part]), _mm512_set1_ps(step[i]));
            if (planes == 2)
                score = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[i + 1][part]), _mm512_set1_ps(step[i + 1]), score);
            scores[query][part] = _mm512_fmadd_ps(score, _mm512_loadu_ps(scale + part * LANES), _mm512_loadu_ps(offset + part * LANES));
        }
}

TARGET static inline __attribute__((always_inline)) __m512 bundle_scores(const realm_codes *codes, const realm_queries *queries,
                                                                         int64_t plane, int64_t at, int planes) {
    const int64_t quads = codes->quads;
    const int8_t *q = queries->panels + plane / PANEL * quads * PANEL * 4 + plane % PANEL * 4;
    const float *step = queries->step + plane;
    __m512i sums[PANEL / 2];
    for (int i = 0; i < planes; i++)
        sums[i] = _mm512_set1_epi32(-queries->shift[plane + i]);
    add_bundle_products(codes->codes + at * quads * 4, q, quads, planes, sums);
    __m512 score = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[0]), _mm512_set1_ps(step[0]));
    if (planes == 2)
        score = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[1]), _mm512_set1_ps(step[1]), score);
    return _mm512_fmadd_ps(score, _mm512_loadu_ps(codes->scale + at), _mm512_loadu_ps(codes->offset + at));
}

TARGET static inline void bundle_vnni(const realm_codes *codes, const realm_queries *queries, int64_t plane, int64_t group, int row,
                                      int planes, float scores[BUNDLE]) {
    const int64_t at = group * GROUP + row;
    STORE(scores, planes == 1 ? bundle_scores(codes, queries, plane, at, 1) : bundle_scores(codes, queries, plane, at, 2));
}

#include "scan_template.h"
#endif
