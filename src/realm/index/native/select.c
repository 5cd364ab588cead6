/* What the best of many are: the bound that a number of groups reach, and the order of scored rows. */
#include "kernel.h"

#include <math.h>
#include <string.h>

typedef struct {
    const realm_codes *codes;
    const float *upper;                 /* [count][groups] */
    const float *by_residual, *by_norm; /* [count] */
    float *folded;                      /* [count][folds] */
    float *threshold;                   /* [count] */
    int64_t folds, rank;
    float by_slack;
} threshold_task;

/* The rank-th largest of the values, rank from 1; changes their order. */
static float ranked(float *values, int64_t count, int64_t rank) {
    int64_t first = 0, last = count - 1;
    while (first < last) {
        const float pivot = values[first + (last - first) / 2];
        int64_t i = first, j = last;
        while (i <= j) {
            while (values[i] > pivot)
                i++;
            while (values[j] < pivot)
                j--;
            if (i <= j) {
                const float value = values[i];
                values[i++] = values[j];
                values[j--] = value;
            }
        }
        if (rank - 1 <= j)
            last = j;
        else if (rank - 1 >= i)
            first = i;
        else
            break;
    }
    return values[rank - 1];
}

static void thresholds_range(void *argument, int64_t first, int64_t last) {
    const threshold_task *task = argument;
    const realm_codes *codes = task->codes;
    for (int64_t query = first; query < last; query++) {
        const float by_residual = task->by_residual[query], by_norm = task->by_norm[query];
        const float *upper = task->upper + query * codes->groups;
        float *folded = task->folded + query * task->folds;
        for (int64_t i = 0; i < task->folds; i++)
            folded[i] = -INFINITY;
        for (int64_t start = 0; start < codes->groups; start += task->folds) {
            const int64_t some = codes->groups - start < task->folds ? codes->groups - start : task->folds;
            for (int64_t i = 0; i < some; i++) {
                const int64_t group = start + i;
                const float error = by_residual * codes->residual[group] + by_norm * codes->norm[group] + task->by_slack * codes->slack[group];
                const float value = upper[group] - error; /* not a number where all is infinite: then it is not larger */
                folded[i] = value > folded[i] ? value : folded[i];
            }
        }
        task->threshold[query] = ranked(folded, task->folds, task->rank);
    }
}

/* For each query the rank-th largest of folds of the groups' bounds less a share of what those allow for; every folds-th group is in a fold. */
void realm_thresholds(const realm_codes *codes, const float *upper, const float *by_residual, const float *by_norm, float by_slack,
                      float *folded, int64_t count, int64_t folds, int64_t rank, float *threshold, int32_t threads) {
    threshold_task task = {.codes = codes, .upper = upper, .by_residual = by_residual, .by_norm = by_norm, .by_slack = by_slack,
                           .folded = folded, .threshold = threshold, .folds = folds, .rank = rank};
    realm_parallel(thresholds_range, &task, count, 1, threads);
}

typedef struct {
    const int64_t *start; /* [count + 1], where each query's entries begin */
    realm_scored *scored, *scratch;
} order_task;

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

static void order_range(void *argument, int64_t first, int64_t last) {
    const order_task *task = argument;
    for (int64_t query = first; query < last; query++) {
        const int64_t start = task->start[query], count = task->start[query + 1] - start;
        realm_scored *from = task->scored + start, *to = task->scratch + start;
        for (int64_t width = 1; width < count; width *= 2) {
            merge_runs(from, to, count, width);
            realm_scored *merged = to;
            to = from;
            from = merged;
        }
        if (from != task->scored + start)
            memcpy(to, from, (size_t)count * sizeof *from);
    }
}

/* Put the scored rows of each query in order: the best first, equal scores by row. `scratch` has room for as many. */
void realm_order(const int64_t *start, int64_t count, realm_scored *scored, realm_scored *scratch, int32_t threads) {
    order_task task = {.start = start, .scored = scored, .scratch = scratch};
    realm_parallel(order_range, &task, count, 1, threads);
}
