/* The scan of one level. Include after defining
 *   TARGET, NAME(x)        function attributes and suffix of the level,
 *   VECTOR, LANES, PARTS   a vector of LANES floats; PARTS * LANES rows are worked on at a time,
 *   LARGER(a, b), LOWEST, STORE(pointer, vector),
 *   NAME(part)(...)        the scan's scores of PARTS * LANES rows for the queries of a panel. */
#include <math.h>
#include <stddef.h>

/* How far the true scores of a group may lie above the scan's. */
static inline float NAME(error)(const realm_codes *codes, const realm_queries *queries, int64_t query, int64_t group) {
    return queries->by_residual[query] * codes->residual[group] + queries->by_norm[query] * codes->norm[group] + codes->slack[group];
}

/* The largest score of a group for each query of a panel. */
TARGET static inline void NAME(best)(const realm_codes *codes, const realm_queries *queries, int64_t panel, int64_t group, int planes,
                                     float best[PANEL]) {
    VECTOR largest[PANEL], scores[PANEL][PARTS];
    for (int query = 0; query < PANEL; query++)
        largest[query] = LOWEST;
    for (int row = 0; row < GROUP; row += PARTS * LANES) {
        NAME(part)(codes, queries, panel, group, row, planes, scores);
        for (int query = 0; query < PANEL / planes; query++)
            for (int part = 0; part < PARTS; part++)
                largest[query] = LARGER(largest[query], scores[query][part]);
    }
    for (int query = 0; query < PANEL / planes; query++) {
        float lanes[LANES];
        STORE(lanes, largest[query]);
        best[query] = lanes[0];
        for (int lane = 1; lane < LANES; lane++)
            best[query] = lanes[lane] > best[query] ? lanes[lane] : best[query];
    }
}

TARGET void NAME(realm_scan)(void *argument, int64_t first, int64_t last) {
    const realm_task *task = argument;
    const realm_codes *codes = task->codes;
    const realm_queries *queries = task->queries;
    const int64_t per_panel = PANEL / queries->planes;
    float best[PANEL];
    for (int64_t group = first; group < last; group++)
        for (int64_t query = 0; query < queries->count; query += per_panel) {
            if (queries->planes == 1)
                NAME(best)(codes, queries, query / PANEL, group, 1, best);
            else
                NAME(best)(codes, queries, query / (PANEL / 2), group, 2, best);
            for (int64_t one = query; one < query + per_panel && one < queries->count; one++)
                task->upper[one * codes->groups + group] = best[one - query] + NAME(error)(codes, queries, one, group);
        }
}

TARGET void NAME(realm_rows)(void *argument, int64_t first, int64_t last) {
    const realm_task *task = argument;
    const realm_codes *codes = task->codes;
    const realm_queries *queries = task->queries;
    const int64_t per_panel = PANEL / queries->planes;
    VECTOR scores[PANEL][PARTS];
    for (int64_t pair = first; pair < last; pair++) {
        const int64_t query = task->query[pair], group = task->group[pair];
        float *upper = task->upper + pair * GROUP;
        for (int row = 0; row < GROUP; row += PARTS * LANES) {
            NAME(part)(codes, queries, query / per_panel, group, row, (int)queries->planes, scores);
            for (int part = 0; part < PARTS; part++)
                STORE(upper + row + part * LANES, scores[query % per_panel][part]);
        }
        const float error = NAME(error)(codes, queries, query, group);
        for (int row = 0; row < GROUP; row++)
            upper[row] += error;
    }
}
