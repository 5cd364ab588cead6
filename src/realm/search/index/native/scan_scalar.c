/* Plain C: the yardstick of the other levels, for every processor. */
#include "kernel.h"

#include <math.h>

#define TARGET
#define NAME(x) x##_scalar
#define VECTOR float
#define LANES 1
#define PARTS 1
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define LARGEST_LANE(a) (a)
#define LOWEST (-INFINITY)
#define STORE(pointer, value) (*(pointer) = (value))
#define REACHING(pointer, floor) (unsigned)(*(pointer) >= (floor))

static inline void part_scalar(const realm_codes *codes, const realm_queries *queries, int64_t plane, int64_t group, int row, int planes,
                               int used, int cached, float scores[PANEL][PARTS]) {
    (void)cached;
    const uint8_t *x = codes->codes + ((group * GROUP + row / BUNDLE * BUNDLE) * codes->quads + row % BUNDLE) * 4;
    const int8_t *q = queries->panels + plane / PANEL * codes->quads * PANEL * 4 + plane % PANEL * 4;
    int32_t sums[PANEL] = {0};
    for (int64_t quad = 0; quad < codes->quads; quad++, x += BUNDLE * 4, q += PANEL * 4)
        for (int i = 0; i < used; i++)
            for (int component = 0; component < 4; component++)
                sums[i] += (x[component] - 128) * q[i * 4 + component];
    for (int query = 0; query < used / planes; query++) {
        float score = 0;
        for (int i = query * planes; i < (query + 1) * planes; i++)
            score += (float)sums[i] * queries->step[plane + i];
        scores[query][0] = score * codes->scale[group * GROUP + row] + codes->offset[group * GROUP + row];
    }
}

static inline void bundle_scalar(const realm_codes *codes, const realm_queries *queries, int64_t plane, int64_t group, int row, int planes,
                                 float scores[BUNDLE]) {
    float found[PANEL][PARTS];
    for (int i = 0; i < BUNDLE; i++) {
        part_scalar(codes, queries, plane, group, row + i, planes, planes, 1, found);
        scores[i] = found[0][0];
    }
}

#include "scan_template.h"
