/* Scores of single rows to double precision, with the size of what was added up: their rounding error is a known multiple of it. */
#include "kernel.h"

#include <string.h>

#define LANES 4
#define EXPECTED 4 /* pairs whose vectors are asked for before their turn */
typedef float floats __attribute__((vector_size(LANES * 4)));
typedef double doubles __attribute__((vector_size(LANES * 8)));
typedef int64_t masks __attribute__((vector_size(LANES * 8)));

typedef struct {
    const float *vectors; /* [rows][dim] */
    const double *queries; /* [count][dim] */
    const int64_t *query, *row;
    double *score, *size; /* [pairs] */
    int64_t dim, pairs;
    int32_t distance;
} score_task;

/* x.q, or for distances x.(q - x / 2) = q.x - |x|^2 / 2. */
static inline __attribute__((always_inline)) void one_pair(const score_task *task, int64_t pair) {
    const float *x = task->vectors + task->row[pair] * task->dim;
    const double *q = task->queries + task->query[pair] * task->dim;
    const double half = task->distance ? 0.5 : 0.0;
    const masks no_sign = (masks){0} + INT64_MAX;
    doubles sum = {0}, size = {0};
    double score = 0, whole = 0;
    int64_t i = 0;
    for (; i + LANES <= task->dim; i += LANES) {
        floats narrow;
        doubles y;
        memcpy(&narrow, x + i, sizeof narrow);
        memcpy(&y, q + i, sizeof y);
        const doubles value = __builtin_convertvector(narrow, doubles);
        const doubles term = value * (y - value * half);
        sum += term;
        masks bits;
        memcpy(&bits, &term, sizeof bits);
        bits &= no_sign;
        doubles absolute;
        memcpy(&absolute, &bits, sizeof absolute);
        size += absolute;
    }
    for (; i < task->dim; i++) {
        const double term = (double)x[i] * (q[i] - (double)x[i] * half);
        score += term;
        whole += term < 0 ? -term : term;
    }
    for (int lane = 0; lane < LANES; lane++) {
        score += sum[lane];
        whole += size[lane];
    }
    task->score[pair] = score;
    task->size[pair] = whole;
}

static inline __attribute__((always_inline)) void pairs_range(const score_task *task, int64_t first, int64_t last) {
    for (int64_t pair = first; pair < last; pair++) {
        if (pair + EXPECTED < last) {
            const float *later = task->vectors + task->row[pair + EXPECTED] * task->dim;
            for (int64_t i = 0; i < task->dim; i += 16)
                __builtin_prefetch(later + i);
        }
        one_pair(task, pair);
    }
}

static void pairs_plain(void *task, int64_t first, int64_t last) { pairs_range(task, first, last); }
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void pairs_avx2(void *task, int64_t first, int64_t last) { pairs_range(task, first, last); }
#else
#define pairs_avx2 pairs_plain
#endif

/* Scores of (query, row) pairs, and the sums of their terms' absolute values. */
void realm_score(const float *vectors, int64_t dim, const double *queries, const int64_t *query, const int64_t *row, int64_t pairs,
                 int32_t distance, double *score, double *size, int32_t threads, int32_t level) {
    score_task task = {.vectors = vectors, .queries = queries, .query = query, .row = row, .score = score, .size = size, .dim = dim,
                       .pairs = pairs, .distance = distance};
    realm_parallel(level >= LEVEL_AVX2 ? pairs_avx2 : pairs_plain, &task, pairs, 512, threads);
}
