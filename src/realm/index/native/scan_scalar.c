/* Plain C: the yardstick of the other levels, for every processor. */
#include "kernel.h"

#include <math.h>

#define TARGET
#define NAME(x) x##_scalar
#define VECTOR float
#define LANES 1
#define PARTS 1
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define LOWEST (-INFINITY)
#define STORE(pointer, value) (*(pointer) = (value))

static inline void part_scalar(const realm_codes *codes, const realm_queries *queries, int64_t panel, int64_t group, int row, int planes,
                               float scores[PANEL][PARTS]) {
    const uint8_t *x = codes->codes + (group * codes->quads * GROUP + row) * 4;
    const int8_t *q = queries->panels + panel * codes->quads * PANEL * 4;
    int32_t sums[PANEL] = {0};
    for (int64_t quad = 0; quad < codes->quads; quad++, x += GROUP * 4, q += PANEL * 4)
        for (int plane = 0; plane < PANEL; plane++)
            for (int i = 0; i < 4; i++)
                sums[plane] += (x[i] - 128) * q[plane * 4 + i];
    for (int query = 0; query < PANEL / planes; query++) {
        float score = 0;
        for (int plane = query * planes; plane < (query + 1) * planes; plane++)
            score += (float)sums[plane] * queries->step[panel * PANEL + plane];
        scores[query][0] = score * codes->scale[group * GROUP + row] + codes->offset[group * GROUP + row];
    }
}

#include "scan_template.h"
