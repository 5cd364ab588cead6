/* From listed rows to the best of them: those that may be among the best are scored, and put in order.
 *
 * The k of the largest bounds are scored first: their scores are a better floor than any bound. Pairs are scored in the order of rows, whatever
 * their queries are: memory that is read in order of its addresses comes three times as fast as at random. */
#include "kernel.h"

#include <math.h>
#include <string.h>

#define RANGES 4096 /* of rows that are scored together */

typedef struct {
    realm_listed *const *listed; /* [count] */
    const int64_t *start;        /* [count + 1], where each query's rows begin in what follows */
    realm_scored *scored, *scratch;
    int64_t *first; /* [count], rows of the largest bounds, at the front of the listed */
    int64_t *kept;  /* [count], all rows that are left */
    int64_t k;
    const float *floor;
    const double *margin, *squares; /* squares: of |q|; NULL for inner products */
    int64_t *row;                   /* [count][k] */
    double *score;                  /* [count][k] */
} best_task;

/* Move the rows from `first` on whose bound is at least the floor to the front of those; returns where they end. */
static int64_t keep(realm_listed *rows, int64_t first, int64_t last, float floor) {
    for (int64_t i = first; i < last; i++)
        if (rows[i].upper >= floor) {
            const realm_listed row = rows[i];
            rows[i] = rows[first];
            rows[first++] = row;
        }
    return first;
}

static void by_bounds(void *argument, int64_t first, int64_t last) {
    const best_task *task = argument;
    for (int64_t query = first; query < last; query++) {
        realm_listed *rows = task->listed[query];
        const int64_t kept = keep(rows, 0, task->start[query + 1] - task->start[query], task->floor[query]);
        task->kept[query] = task->first[query] = kept;
        if (kept <= task->k)
            continue;
        float *upper = (float *)(task->scratch + task->start[query]);
        for (int64_t i = 0; i < kept; i++)
            upper[i] = rows[i].upper;
        task->first[query] = keep(rows, 0, kept, realm_ranked_float(upper, kept, task->k));
    }
}

/* Of the rows that are not scored yet, drop those that cannot reach the k-th score. */
static void by_scores(void *argument, int64_t first, int64_t last) {
    const best_task *task = argument;
    for (int64_t query = first; query < last; query++) {
        if (task->first[query] == task->kept[query])
            continue;
        double *scores = (double *)(task->scratch + task->start[query]);
        for (int64_t i = 0; i < task->first[query]; i++)
            scores[i] = task->scored[task->start[query] + i].score;
        double floor = realm_ranked_double(scores, task->first[query], task->k);
        if (task->squares) /* as bounds are: of q.x - |x|^2 / 2 */
            floor = (floor + task->squares[query]) / 2;
        floor = fmax(fmin(floor - task->margin[query], 3e38), -3e38); /* beyond, queries are scanned exactly */
        const float below = nextafterf((float)floor, -INFINITY);
        task->kept[query] = keep(task->listed[query], task->first[query], task->kept[query], below);
    }
}

static void in_order(void *argument, int64_t first, int64_t last) {
    const best_task *task = argument;
    for (int64_t query = first; query < last; query++) {
        realm_scored *scored = task->scored + task->start[query];
        realm_order(scored, task->kept[query], task->scratch + task->start[query]);
        for (int64_t i = 0; i < task->k && i < task->kept[query]; i++) {
            task->row[query * task->k + i] = scored[i].row;
            task->score[query * task->k + i] = scored[i].score;
        }
    }
}

/* The listed rows from[query] to to[query] of each query (from NULL: from the first), by ranges of rows. Returns how many. */
static int64_t pairs_of(const best_task *task, const int64_t *from, const int64_t *to, int64_t count, int64_t rows, realm_pair *pairs) {
    int64_t place[RANGES + 1] = {0}, all;
    int shift = 0;
    while ((rows - 1) >> shift >= RANGES)
        shift++;
    for (int64_t query = 0; query < count; query++)
        for (int64_t i = from ? from[query] : 0; i < to[query]; i++)
            place[(task->listed[query][i].row >> shift) + 1]++;
    for (int range = 0; range < RANGES; range++)
        place[range + 1] += place[range];
    all = place[RANGES];
    for (int64_t query = 0; query < count; query++)
        for (int64_t i = from ? from[query] : 0; i < to[query]; i++) {
            const int64_t row = task->listed[query][i].row;
            pairs[place[row >> shift]++] = (realm_pair){.row = row, .query = (int32_t)query, .place = (int32_t)i};
        }
    return all;
}

/* The best k of the listed rows of each query, by score, equal scores by row; changes the order of the listed.
 *
 * pairs, scored, scratch: as many as rows are listed, start[count]. first: [count]. kept: [count], how many rows of each query were scored;
 * beyond the k-th or the last of them row and score stay as they are. */
void realm_best(const float *vectors, int64_t rows, int64_t dim, const double *queries, int64_t count, realm_listed *const *listed,
                const int64_t *start, int64_t k, const float *floor, const double *margin, const double *squares, realm_pair *pairs,
                realm_scored *scored, realm_scored *scratch, int64_t *first, int64_t *kept, int64_t *row, double *score, int32_t threads,
                int32_t level) {
    best_task task = {.listed = listed, .start = start, .scored = scored, .scratch = scratch, .first = first, .kept = kept, .k = k,
                      .floor = floor, .margin = margin, .squares = squares, .row = row, .score = score};
    realm_parallel(by_bounds, &task, count, 1, threads);
    int64_t some = pairs_of(&task, NULL, first, count, rows, pairs);
    realm_score(vectors, dim, queries, pairs, some, squares != NULL, start, scored, threads, level);
    realm_parallel(by_scores, &task, count, 1, threads);
    some = pairs_of(&task, first, kept, count, rows, pairs);
    realm_score(vectors, dim, queries, pairs, some, squares != NULL, start, scored, threads, level);
    realm_parallel(in_order, &task, count, 1, threads);
}

typedef struct {
    realm_listed *const *listed;
    const int64_t *start;
    float *scratch, *lower;
    int64_t k;
} lower_task;

static void lower_range(void *argument, int64_t first, int64_t last) {
    const lower_task *task = argument;
    for (int64_t query = first; query < last; query++) {
        const int64_t count = task->start[query + 1] - task->start[query];
        float *values = task->scratch + task->start[query];
        for (int64_t i = 0; i < count; i++)
            values[i] = task->listed[query][i].lower;
        task->lower[query] = count < task->k ? -INFINITY : realm_ranked_float(values, count, task->k);
    }
}

/* The k-th largest lower bound of each query, minus infinity where fewer rows are listed. scratch: [start[count]]. */
void realm_kth_lower(realm_listed *const *listed, const int64_t *start, int64_t count, int64_t k, float *scratch, float *lower, int32_t threads) {
    lower_task task = {.listed = listed, .start = start, .scratch = scratch, .lower = lower, .k = k};
    realm_parallel(lower_range, &task, count, 1, threads);
}
