/* What listing rows needs beside the bounds themselves, the same on all levels. */
#ifndef REALM_LISTING_H
#define REALM_LISTING_H

#include "kernel.h"

#include <string.h>

#define BLOCK_OF_PAIRS 64 /* groups and queries that are compared together */
#define PAIRS_AT_ONCE (BLOCK_OF_PAIRS * BLOCK_OF_PAIRS)

typedef struct {
    int32_t query, group;
} listed_pair;

/* Pairs of some groups from `start` on and some queries from `first` on whose bound reaches the floor, ordered by group: queries that look at
 * the same group find it in the cache. Returns how many, at most PAIRS_AT_ONCE. */
static inline int64_t pairs_that_reach(const realm_listing *task, int64_t start, int64_t stop, int64_t first, listed_pair *pairs) {
    listed_pair found[PAIRS_AT_ONCE + 1];
    int64_t count = 0, place[BLOCK_OF_PAIRS + 1] = {0};
    const int64_t groups = stop - start < BLOCK_OF_PAIRS ? stop - start : BLOCK_OF_PAIRS;
    const int64_t rest = task->queries->count - first, queries = rest < BLOCK_OF_PAIRS ? rest : BLOCK_OF_PAIRS;
    for (int64_t query = first; query < first + queries; query++) {
        const float *upper = task->upper + query * task->codes->groups + start, floor = task->floor[query];
        int any = 0;
        for (int64_t i = 0; i < groups; i++)
            any |= upper[i] >= floor;
        for (int64_t i = 0; any && i < groups; i++) {
            const int reaches = upper[i] >= floor;
            found[count].query = (int32_t)query;
            found[count].group = (int32_t)(start + i);
            count += reaches;
            place[i + 1] += reaches;
        }
    }
    for (int64_t i = 0; i < groups; i++)
        place[i + 1] += place[i];
    for (int64_t i = 0; i < count; i++)
        pairs[place[found[i].group - start]++] = found[i];
    return count;
}

/* Take the rows out of `reached` that the query must not get; both are in order. Returns how many are left. */
static inline int without_hidden(const realm_listing *task, int64_t query, realm_listed *reached, int count) {
    int64_t low = task->hidden_start[query], high = task->hidden_start[query + 1];
    const int64_t stop = high;
    while (count && low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (task->hidden[middle] < reached[0].row)
            low = middle + 1;
        else
            high = middle;
    }
    int left = 0;
    for (int i = 0; i < count; i++) {
        while (low < stop && task->hidden[low] < reached[i].row)
            low++;
        if (low == stop || task->hidden[low] != reached[i].row)
            reached[left++] = reached[i];
    }
    return left;
}

/* Rows that were found, in the order of groups and for up to BLOCK_OF_PAIRS queries from `first` on, until they are handed over: lists that
 * two threads write to at every row take longer than finding them. */
#define NOTED 2048

typedef struct {
    int64_t first;
    int count;
    uint8_t query[NOTED]; /* less the first */
    realm_listed row[NOTED];
} noted_rows;

/* Append what is noted to the lists of its queries, hidden ones aside. */
static void hand_over(const realm_listing *task, noted_rows *noted) {
    realm_listed sorted[NOTED];
    int place[BLOCK_OF_PAIRS + 1] = {0};
    for (int i = 0; i < noted->count; i++)
        place[noted->query[i] + 1]++;
    for (int i = 0; i < BLOCK_OF_PAIRS; i++)
        place[i + 1] += place[i];
    for (int i = 0; i < noted->count; i++)
        sorted[place[noted->query[i]]++] = noted->row[i]; /* then a query begins where the one before it ended */
    for (int i = 0; i < BLOCK_OF_PAIRS; i++) {
        realm_listed *rows = sorted + (i ? place[i - 1] : 0);
        int count = place[i] - (i ? place[i - 1] : 0);
        if (!count)
            continue;
        const int64_t query = noted->first + i;
        if (task->hidden_start[query + 1] > task->hidden_start[query])
            count = without_hidden(task, query, rows, count);
        const int64_t at = atomic_fetch_add_explicit(&task->found[query], count, memory_order_relaxed);
        if (at + count <= task->limit)
            memcpy(task->listed + query * task->limit + at, rows, (size_t)count * sizeof *rows);
    }
    noted->count = 0;
}

/* Whether a query has more rows than it can list. */
static inline int overfull(const realm_listing *task, int64_t query) {
    return atomic_load_explicit(&task->found[query], memory_order_relaxed) > task->limit;
}

#endif
