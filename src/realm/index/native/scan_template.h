/* The scan of one level. Include after defining
 *   TARGET, NAME(x)        function attributes and suffix of the level,
 *   VECTOR, LANES, PARTS   a vector of LANES floats; PARTS * LANES rows are worked on at a time,
 *   LARGER(a, b), LARGEST_LANE(a), LOWEST, STORE(pointer, vector),
 *   REACHING(pointer, floor)   which of LANES floats are at least the floor: a bit for each,
 *   NAME(part)(...)        the scan's scores of PARTS * LANES rows for `used` planes of a panel, from `plane` on; `cached`: of rows that were
 *                          asked for before. */
#include "listing.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* How far the true scores of a group may lie above the scan's. */
static inline float NAME(error)(const realm_codes *codes, const realm_queries *queries, int64_t query, int64_t group) {
    return queries->by_residual[query] * codes->residual[group] + queries->by_norm[query] * codes->norm[group] + codes->slack[group];
}

/* Ask for the codes of `rows` rows of a group before their turn. A line of four is enough: processors fetch the neighbours themselves. */
static inline void NAME(expect)(const realm_codes *codes, int64_t group, int row, int rows) {
    const uint8_t *first = codes->codes + (group * GROUP + row) * codes->quads * 4;
    for (int64_t at = 0; at < codes->quads * rows * 4; at += 256)
        __builtin_prefetch(first + at);
}

/* The largest score of a group for each query of a panel. */
TARGET static inline __attribute__((always_inline)) void NAME(best)(const realm_codes *codes, const realm_queries *queries, int64_t plane,
                                                                    int64_t group, int planes, int used, float best[PANEL]) {
    VECTOR largest[PANEL], scores[PANEL][PARTS];
    for (int query = 0; query < used / planes; query++)
        largest[query] = LOWEST;
    for (int row = 0; row < GROUP; row += PARTS * LANES) {
        NAME(part)(codes, queries, plane, group, row, planes, used, 0, scores);
        for (int query = 0; query < used / planes; query++)
            for (int part = 0; part < PARTS; part++)
                largest[query] = LARGER(largest[query], scores[query][part]);
    }
    for (int query = 0; query < used / planes; query++)
        best[query] = LARGEST_LANE(largest[query]);
}

TARGET void NAME(realm_scan)(void *argument, int64_t first, int64_t last) {
    const realm_task *task = argument;
    const realm_codes *codes = task->codes;
    const realm_queries *queries = task->queries;
    const int64_t planes = queries->planes, all_planes = queries->count * planes;
    float best[PANEL];
    for (int64_t group = first; group < last; group++) {
        for (int64_t plane = 0; plane < all_planes; plane += PANEL) {
            const int half = all_planes - plane <= PANEL / 2; /* constants below, so that each case is compiled for itself */
            if (planes == 1 && half)
                NAME(best)(codes, queries, plane, group, 1, PANEL / 2, best);
            else if (planes == 1)
                NAME(best)(codes, queries, plane, group, 1, PANEL, best);
            else if (half)
                NAME(best)(codes, queries, plane, group, 2, PANEL / 2, best);
            else
                NAME(best)(codes, queries, plane, group, 2, PANEL, best);
            const int64_t query = plane / planes;
            for (int64_t i = 0; i < PANEL / planes && query + i < queries->count; i++)
                task->upper[(query + i) * codes->groups + group] = best[i] + NAME(error)(codes, queries, query + i, group);
        }
    }
}

/* Bounds of the scores of a group's rows for one query: upper[GROUP]. The group `next` is asked for meanwhile, unless negative. */
TARGET static inline void NAME(group_rows)(const realm_codes *codes, const realm_queries *queries, int64_t query, int64_t group,
                                           int64_t next, float *upper) {
    VECTOR scores[PANEL][PARTS];
    for (int row = 0; row < GROUP; row += PARTS * LANES) {
        if (next >= 0)
            NAME(expect)(codes, next, row, PARTS * LANES);
        if (queries->planes == 1)
            NAME(part)(codes, queries, query, group, row, 1, 1, 1, scores);
        else
            NAME(part)(codes, queries, query * 2, group, row, 2, 2, 1, scores);
        for (int part = 0; part < PARTS; part++)
            STORE(upper + row + part * LANES, scores[0][part]);
    }
    const float error = NAME(error)(codes, queries, query, group);
    for (int row = 0; row < GROUP; row++)
        upper[row] += error;
}

TARGET void NAME(realm_rows)(void *argument, int64_t first, int64_t last) {
    const realm_task *task = argument;
    for (int64_t pair = first; pair < last; pair++) {
        const int64_t next = pair + 1 < last ? task->group[pair + 1] : -1;
        NAME(group_rows)(task->codes, task->queries, task->query[pair], task->group[pair], next, task->upper + pair * GROUP);
    }
}

/* Append the rows of a group that reach the floor of a query, hidden ones aside. */
TARGET static inline void NAME(append)(const realm_listing *task, int64_t query, int64_t group, const float *upper) {
    const float floor = task->floor[query], room = 2.00001f * NAME(error)(task->codes, task->queries, query, group);
    realm_listed reached[GROUP];
    int count = 0;
    for (int row = 0; row < GROUP; row += LANES)
        for (unsigned rows = REACHING(upper + row, floor); rows; rows &= rows - 1) {
            const int at = row + __builtin_ctz(rows);
            reached[count++] = (realm_listed){.row = group * GROUP + at, .upper = upper[at], .lower = upper[at] - room};
        }
    if (task->hidden_start[query + 1] > task->hidden_start[query])
        count = without_hidden(task, query, reached, count);
    if (!count)
        return;
    const int64_t at = atomic_fetch_add_explicit(&task->found[query], count, memory_order_relaxed);
    if (at + count <= task->limit)
        memcpy(task->listed + query * task->limit + at, reached, (size_t)count * sizeof *reached);
}

TARGET void NAME(realm_list)(void *argument, int64_t first, int64_t last) {
    const realm_listing *task = argument;
    listed_pair pairs[2 * PAIRS_AT_ONCE];
    float upper[GROUP];
    int64_t count = 0;
    for (int64_t group = first; group < last; group += BLOCK_OF_PAIRS)
        for (int64_t query = 0; query < task->queries->count; query += BLOCK_OF_PAIRS) {
            count += pairs_that_reach(task, group, last, query, pairs + count);
            const int done = group + BLOCK_OF_PAIRS >= last && query + BLOCK_OF_PAIRS >= task->queries->count;
            if (count < PAIRS_AT_ONCE && !done)
                continue;
            for (int64_t i = 0; i < count; i++) {
                const int64_t other = i + 1 < count ? pairs[i + 1].group : -1;
                if (atomic_load_explicit(&task->found[pairs[i].query], memory_order_relaxed) > task->limit)
                    continue;
                NAME(group_rows)(task->codes, task->queries, pairs[i].query, pairs[i].group, other == pairs[i].group ? -1 : other, upper);
                NAME(append)(task, pairs[i].query, pairs[i].group, upper);
            }
            count = 0;
        }
}
