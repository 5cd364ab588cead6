/* The scan of one level. Include after defining
 *   TARGET, NAME(x)        function attributes and suffix of the level,
 *   VECTOR, LANES, PARTS   a vector of LANES floats; PARTS * LANES rows are worked on at a time,
 *   LARGER(a, b), LARGEST_LANE(a), LOWEST, STORE(pointer, vector),
 *   REACHING(pointer, floor)   which of LANES floats are at least the floor: a bit for each,
 *   NAME(part)(...)        the scan's scores of PARTS * LANES rows for `used` planes of a panel, from `plane` on; `cached`: of rows that were
 *                          asked for before,
 *   NAME(bundle)(...)      those of a bundle for one query, `row` being its first in the group: [BUNDLE]. */
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

/* Note the rows of a group, whose scores the scan gave, that reach the floor of a query; where that was coarse, by finer scores of their bundles. */
TARGET static void NAME(note)(const realm_sweep *task, int64_t query, int64_t group, const float *coarse, noted_rows *noted) {
    const realm_listing *listing = &task->listing;
    const realm_codes *codes = listing->codes;
    const float floor = listing->floor[query], by_coarse = NAME(error)(codes, task->scanned, query, group);
    const float by_fine = NAME(error)(codes, listing->queries, query, group), room = 2.00001f * by_fine;
    const int finest = task->scanned == listing->queries;
    const float least = floor - by_coarse - 1e-6f * (fabsf(floor) + by_coarse); /* a little less: the sum is rounded */
    unsigned bundles = coarse ? 0 : (1u << GROUP / BUNDLE) - 1;
    float fine[BUNDLE];
    for (int row = 0; coarse && row < GROUP; row += LANES)
        bundles |= (unsigned)(REACHING(coarse + row, least) != 0) << row / BUNDLE;
    for (; bundles; bundles &= bundles - 1) {
        const int row = __builtin_ctz(bundles) * BUNDLE;
        if (coarse && finest)
            memcpy(fine, coarse + row, sizeof fine);
        else
            NAME(bundle)(codes, listing->queries, query * listing->queries->planes, group, row, (int)listing->queries->planes, fine);
        for (int i = 0; i < BUNDLE; i++)
            fine[i] += by_fine;
        for (int at = 0; at < BUNDLE; at += LANES)
            for (unsigned rows = REACHING(fine + at, floor); rows; rows &= rows - 1) {
                const int i = at + __builtin_ctz(rows);
                noted->query[noted->count] = (uint8_t)(query - noted->first);
                noted->row[noted->count++] = (realm_listed){.row = group * GROUP + row + i, .upper = fine[i], .lower = fine[i] - room};
            }
    }
}

/* Bounds of the best scores of a group for the queries of a panel; and all scores of those that reach the floor, where there is one. */
TARGET static inline __attribute__((always_inline)) void NAME(best)(const realm_codes *codes, const realm_queries *queries, int64_t plane,
                                                                    int64_t group, int planes, int used, float best[PANEL],
                                                                    const float *floor, float (*all)[GROUP]) {
    VECTOR largest[PANEL], scores[PANEL][PARTS];
    for (int query = 0; query < used / planes; query++)
        largest[query] = LOWEST;
    for (int row = 0; row < GROUP; row += PARTS * LANES) {
        NAME(part)(codes, queries, plane, group, row, planes, used, 0, scores);
        for (int query = 0; query < used / planes; query++)
            for (int part = 0; part < PARTS; part++) {
                largest[query] = LARGER(largest[query], scores[query][part]);
                if (floor && PARTS * LANES < GROUP)
                    STORE(all[query] + row + part * LANES, scores[query][part]);
            }
    }
    for (int query = 0; query < used / planes && plane / planes + query < queries->count; query++) {
        best[query] = LARGEST_LANE(largest[query]) + NAME(error)(codes, queries, plane / planes + query, group);
        if (PARTS * LANES == GROUP && floor && best[query] >= floor[plane / planes + query])
            for (int part = 0; part < PARTS; part++)
                STORE(all[query] + part * LANES, scores[query][part]);
    }
}

/* The same for any number of planes. A function of its own, so that nothing else wants the registers of its loops. */
TARGET static __attribute__((noinline)) void NAME(panel)(const realm_codes *codes, const realm_queries *queries, int64_t plane, int64_t group,
                                                         float best[PANEL], const float *floor, float (*all)[GROUP]) {
    const int half = queries->count * queries->planes - plane <= PANEL / 2; /* constants below, so that each case is compiled for itself */
    if (queries->planes == 1 && half)
        NAME(best)(codes, queries, plane, group, 1, PANEL / 2, best, floor, all);
    else if (queries->planes == 1)
        NAME(best)(codes, queries, plane, group, 1, PANEL, best, floor, all);
    else if (half)
        NAME(best)(codes, queries, plane, group, 2, PANEL / 2, best, floor, all);
    else
        NAME(best)(codes, queries, plane, group, 2, PANEL, best, floor, all);
}

TARGET void NAME(realm_scan)(void *argument, int64_t first, int64_t last) {
    const realm_task *task = argument;
    const realm_queries *queries = task->queries;
    const int64_t in_panel = PANEL / queries->planes, width = (task->codes->groups + task->stride - 1) / task->stride;
    for (int64_t at = first; at < last; at++)
        for (int64_t query = 0; query < queries->count; query += in_panel) {
            float best[PANEL];
            NAME(panel)(task->codes, queries, query * queries->planes, at * task->stride, best, NULL, NULL);
            for (int64_t i = 0; i < in_panel && query + i < queries->count; i++)
                task->upper[(query + i) * width + at] = best[i];
        }
}

TARGET void NAME(realm_sweep)(void *argument, int64_t first, int64_t last) {
    const realm_sweep *task = argument;
    const realm_codes *codes = task->listing.codes;
    const realm_queries *queries = task->scanned;
    const int64_t in_panel = PANEL / queries->planes, samples = (codes->groups + task->stride - 1) / task->stride;
    noted_rows noted = {.count = 0};
    float best[PANEL], all[PANEL][GROUP];
    for (noted.first = 0; noted.first < queries->count; noted.first += BLOCK_OF_PAIRS) {
        const int64_t rest = queries->count - noted.first, stop = noted.first + (rest < BLOCK_OF_PAIRS ? rest : BLOCK_OF_PAIRS);
        for (int64_t group = first; group < last; group++) {
            const int sampled = group % task->stride == 0;
            for (int64_t query = noted.first; query < stop; query += in_panel) {
                if (noted.count > NOTED - PANEL * GROUP)
                    hand_over(&task->listing, &noted);
                if (!sampled)
                    NAME(panel)(codes, queries, query * queries->planes, group, best, task->listing.floor, all);
                for (int i = 0; i < in_panel && query + i < stop; i++) {
                    if (sampled)
                        best[i] = task->sample[(query + i) * samples + group / task->stride];
                    if (best[i] >= task->listing.floor[query + i] && !overfull(&task->listing, query + i))
                        NAME(note)(task, query + i, group, sampled ? NULL : all[i], &noted);
                }
            }
        }
        hand_over(&task->listing, &noted);
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

/* Bounds of sampled groups that reach the floor of a query by finer codes, the others' made minus infinity. */
TARGET void NAME(realm_refine)(void *argument, int64_t first, int64_t last) {
    const realm_task *task = argument;
    const int64_t width = (task->codes->groups + task->stride - 1) / task->stride;
    float rows[GROUP];
    for (int64_t at = first; at < last; at++)
        for (int64_t query = 0; query < task->queries->count; query++) {
            float *upper = task->upper + query * width + at;
            const int reaches = *upper >= task->floor[query];
            *upper = -INFINITY;
            if (!reaches)
                continue;
            NAME(group_rows)(task->codes, task->queries, query, at * task->stride, -1, rows);
            for (int row = 0; row < GROUP; row++)
                *upper = rows[row] > *upper ? rows[row] : *upper;
        }
}

/* Note the rows of a group whose bounds reach the floor of a query. */
TARGET static inline void NAME(note_bounds)(const realm_listing *task, int64_t query, int64_t group, const float *upper, noted_rows *noted) {
    const float floor = task->floor[query], room = 2.00001f * NAME(error)(task->codes, task->queries, query, group);
    for (int row = 0; row < GROUP; row += LANES)
        for (unsigned rows = REACHING(upper + row, floor); rows; rows &= rows - 1) {
            const int at = row + __builtin_ctz(rows);
            noted->query[noted->count] = (uint8_t)(query - noted->first);
            noted->row[noted->count++] = (realm_listed){.row = group * GROUP + at, .upper = upper[at], .lower = upper[at] - room};
        }
}

TARGET void NAME(realm_list)(void *argument, int64_t first, int64_t last) {
    const realm_listing *task = argument;
    listed_pair pairs[PAIRS_AT_ONCE];
    noted_rows noted = {.count = 0};
    float upper[GROUP];
    for (noted.first = 0; noted.first < task->queries->count; noted.first += BLOCK_OF_PAIRS) {
        for (int64_t start = first; start < last; start += BLOCK_OF_PAIRS) {
            const int64_t count = pairs_that_reach(task, start, last, noted.first, pairs);
            for (int64_t i = 0; i < count; i++) {
                const int64_t other = i + 1 < count ? pairs[i + 1].group : -1;
                if (overfull(task, pairs[i].query))
                    continue;
                if (noted.count > NOTED - GROUP)
                    hand_over(task, &noted);
                NAME(group_rows)(task->codes, task->queries, pairs[i].query, pairs[i].group, other == pairs[i].group ? -1 : other, upper);
                NAME(note_bounds)(task, pairs[i].query, pairs[i].group, upper, &noted);
            }
        }
        hand_over(task, &noted);
    }
}
