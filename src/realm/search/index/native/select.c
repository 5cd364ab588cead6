/* What the best of many are: the rank-th largest, and the order of scored rows. */
#include "kernel.h"

#include <math.h>
#include <string.h>

#define RANKED(TYPE)                                                                                                                       \
    TYPE realm_ranked_##TYPE(TYPE *values, int64_t count, int64_t rank) {                                                                  \
        int64_t first = 0, last = count - 1;                                                                                               \
        while (first < last) {                                                                                                             \
            const TYPE pivot = values[first + (last - first) / 2];                                                                         \
            int64_t i = first, j = last;                                                                                                   \
            while (i <= j) {                                                                                                               \
                while (values[i] > pivot)                                                                                                  \
                    i++;                                                                                                                   \
                while (values[j] < pivot)                                                                                                  \
                    j--;                                                                                                                   \
                if (i <= j) {                                                                                                              \
                    const TYPE value = values[i];                                                                                          \
                    values[i++] = values[j];                                                                                               \
                    values[j--] = value;                                                                                                   \
                }                                                                                                                          \
            }                                                                                                                              \
            if (rank - 1 <= j)                                                                                                             \
                last = j;                                                                                                                  \
            else if (rank - 1 >= i)                                                                                                        \
                first = i;                                                                                                                 \
            else                                                                                                                           \
                break;                                                                                                                     \
        }                                                                                                                                  \
        return values[rank - 1];                                                                                                           \
    }

RANKED(float)
RANKED(double)

typedef struct {
    const realm_codes *codes;
    const float *upper;                 /* [count][of every stride-th group] */
    const float *by_residual, *by_norm; /* [count] */
    float *less;                        /* as upper */
    float *threshold;                   /* [count] */
    int64_t stride, rank;
    float by_slack;
} threshold_task;

static void thresholds_range(void *argument, int64_t first, int64_t last) {
    const threshold_task *task = argument;
    const realm_codes *codes = task->codes;
    const int64_t width = (codes->groups + task->stride - 1) / task->stride;
    for (int64_t query = first; query < last; query++) {
        const float by_residual = task->by_residual[query], by_norm = task->by_norm[query];
        const float *upper = task->upper + query * width;
        float *less = task->less + query * width;
        for (int64_t i = 0; i < width; i++) {
            const int64_t group = i * task->stride;
            const float error = by_residual * codes->residual[group] + by_norm * codes->norm[group] + task->by_slack * codes->slack[group];
            const float value = upper[i] - error;
            less[i] = value > -INFINITY ? value : -INFINITY; /* not a number where all is infinite */
        }
        task->threshold[query] = realm_ranked_float(less, width, task->rank);
    }
}

/* For each query the rank-th largest of the bounds of every stride-th group less a share of what those allow for. */
void realm_thresholds(const realm_codes *codes, const float *upper, const float *by_residual, const float *by_norm, float by_slack,
                      float *less, int64_t count, int64_t stride, int64_t rank, float *threshold, int32_t threads) {
    threshold_task task = {.codes = codes, .upper = upper, .by_residual = by_residual, .by_norm = by_norm, .by_slack = by_slack,
                           .less = less, .threshold = threshold, .stride = stride, .rank = rank};
    realm_parallel(thresholds_range, &task, count, 1, threads);
}

static inline int better(const realm_scored *a, const realm_scored *b) {
    return a->score > b->score || (a->score == b->score && a->row < b->row);
}

/* Runs of `width` in order become runs of twice that. */
static void merge_runs(const realm_scored *from, realm_scored *to, int64_t count, int64_t width) {
    for (int64_t start = 0; start < count; start += 2 * width) {
        const int64_t middle = start + width < count ? start + width : count, stop = middle + width < count ? middle + width : count;
        int64_t left = start, right = middle;
        for (int64_t at = start; at < stop; at++) {
            const int take_right = left == middle || (right < stop && better(from + right, from + left));
            to[at] = from[take_right ? right : left];
            right += take_right;
            left += !take_right;
        }
    }
}

static void order_by_merging(realm_scored *scored, int64_t count, realm_scored *scratch) {
    realm_scored *from = scored, *to = scratch;
    for (int64_t width = 1; width < count; width *= 2) {
        merge_runs(from, to, count, width);
        realm_scored *merged = to;
        to = from;
        from = merged;
    }
    if (from != scored)
        memcpy(scored, from, (size_t)count * sizeof *from);
}

#define FEW 64         /* rows that are merged at once */
#define DIGIT 11       /* bits of a pass over many */
#define BINS (1 << DIGIT)

/* Larger for a smaller score. No score is a negative zero. */
static inline uint64_t key_of(double score) {
    uint64_t bits;
    memcpy(&bits, &score, sizeof bits);
    return bits >> 63 ? bits : ~(bits | UINT64_C(1) << 63);
}

/* One pass: by some bits of the keys' distance from the least, equal ones as they were. */
static void by_digit(const realm_scored *from, realm_scored *to, int64_t count, uint64_t least, int shift) {
    int64_t place[BINS + 1] = {0};
    for (int64_t i = 0; i < count; i++)
        place[((key_of(from[i].score) - least) >> shift) % BINS + 1]++;
    for (int bin = 0; bin < BINS; bin++)
        place[bin + 1] += place[bin];
    for (int64_t i = 0; i < count; i++)
        to[place[((key_of(from[i].score) - least) >> shift) % BINS]++] = from[i];
}

/* By two digits, the highest that tell the scores apart; what those leave equal is merged. */
void realm_order(realm_scored *scored, int64_t count, realm_scored *scratch) {
    if (count <= FEW) {
        order_by_merging(scored, count, scratch);
        return;
    }
    uint64_t least = UINT64_MAX, most = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint64_t key = key_of(scored[i].score);
        least = key < least ? key : least;
        most = key > most ? key : most;
    }
    int shift = 0;
    while ((most - least) >> shift >> (2 * DIGIT))
        shift++;
    by_digit(scored, scratch, count, least, shift);
    by_digit(scratch, scored, count, least, shift + DIGIT);
    for (int64_t start = 0, stop; start < count; start = stop) {
        const uint64_t digits = (key_of(scored[start].score) - least) >> shift;
        for (stop = start + 1; stop < count && (key_of(scored[stop].score) - least) >> shift == digits;)
            stop++;
        if (stop - start > 1)
            order_by_merging(scored + start, stop - start, scratch);
    }
}
