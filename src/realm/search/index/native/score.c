/* Scores of single rows as realm.index.mips defines them: terms in double precision, added up in the order of numpy's sum, bit for bit. */
#include "kernel.h"

#define BLOCK 128  /* more terms than that are added up in two halves */
#define LANES 8    /* running sums within a block */
#define EXPECTED 4 /* pairs whose vectors are asked for before their turn */

typedef struct {
    const float *vectors;  /* [rows][dim] */
    const double *queries; /* [count][dim] */
    const realm_pair *pairs;
    const int64_t *start; /* [count], where each query's scores begin */
    realm_scored *scored;
    int64_t dim;
    int32_t distance;
} score_task;

static inline __attribute__((always_inline)) double term(const float *x, const double *q, int64_t i, int distance) {
    const double value = x[i];
    if (!distance)
        return value * q[i];
    return (value - q[i]) * (value - q[i]);
}

/* The sum of up to BLOCK terms. */
static inline __attribute__((always_inline)) double block_sum(const float *x, const double *q, int64_t terms, int distance) {
    double sum = 0;
    int64_t i = 0;
    if (terms >= LANES) {
        double lane[LANES];
        for (int j = 0; j < LANES; j++)
            lane[j] = term(x, q, j, distance);
        for (i = LANES; i + LANES <= terms; i += LANES)
            for (int j = 0; j < LANES; j++)
                lane[j] += term(x, q, i + j, distance);
        sum = ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
    }
    for (; i < terms; i++)
        sum += term(x, q, i, distance);
    return sum;
}

/* Halves, the first a multiple of LANES long, until they fit a block. */
static double long_sum(const float *x, const double *q, int64_t terms, int distance) {
    if (terms <= BLOCK)
        return block_sum(x, q, terms, distance);
    const int64_t half = terms / 2 - terms / 2 % LANES;
    return long_sum(x, q, half, distance) + long_sum(x + half, q + half, terms - half, distance);
}

static inline __attribute__((always_inline)) void pairs_range(const score_task *task, int64_t first, int64_t last, int distance) {
    for (int64_t at = first; at < last; at++) {
        const realm_pair *pair = task->pairs + at;
        if (at + EXPECTED < last) {
            const float *later = task->vectors + pair[EXPECTED].row * task->dim;
            for (int64_t i = 0; i < task->dim; i += 16)
                __builtin_prefetch(later + i);
        }
        const float *x = task->vectors + pair->row * task->dim;
        const double *q = task->queries + pair->query * task->dim;
        const double sum = task->dim <= BLOCK ? block_sum(x, q, task->dim, distance) : long_sum(x, q, task->dim, distance);
        realm_scored *scored = task->scored + task->start[pair->query] + pair->place;
        scored->row = pair->row;
        scored->score = distance ? 0.0 - sum : sum + 0.0; /* no negative zero */
    }
}

static inline __attribute__((always_inline)) void both_metrics(const score_task *task, int64_t first, int64_t last) {
    if (task->distance)
        pairs_range(task, first, last, 1);
    else
        pairs_range(task, first, last, 0);
}

static void pairs_plain(void *task, int64_t first, int64_t last) { both_metrics(task, first, last); }
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void pairs_avx2(void *task, int64_t first, int64_t last) { both_metrics(task, first, last); }
#else
#define pairs_avx2 pairs_plain
#endif

void realm_score(const float *vectors, int64_t dim, const double *queries, const realm_pair *pairs, int64_t count, int32_t distance,
                 const int64_t *start, realm_scored *scored, int32_t threads, int32_t level) {
    score_task task = {.vectors = vectors, .queries = queries, .pairs = pairs, .start = start, .scored = scored, .dim = dim,
                       .distance = distance};
    realm_parallel(level >= LEVEL_AVX2 ? pairs_avx2 : pairs_plain, &task, count, 512, threads);
}
