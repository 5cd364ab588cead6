/* What listing rows needs beside the bounds themselves, the same on all levels. */
#ifndef REALM_LISTING_H
#define REALM_LISTING_H

#include "kernel.h"

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

#endif
