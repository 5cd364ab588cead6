/* Runs the kernel at all levels of this processor, for the sanitizers: arrays of just the right size, awkward numbers, two threads. */
#include "kernel.h"

#include <stdio.h>
#include <stdlib.h>

int32_t realm_level(void);
int64_t realm_quantise(const realm_codes *, const float *, const float *, int32_t, int32_t);
void realm_scan(const realm_codes *, const realm_queries *, float *, int32_t, int32_t);
void realm_rows(const realm_codes *, const realm_queries *, const int64_t *, const int64_t *, int64_t, float *, int32_t, int32_t);
void realm_thresholds(const realm_codes *, const float *, const float *, const float *, float, float *, int64_t, int64_t, int64_t, float *,
                      int32_t);
void realm_list(const realm_codes *, const realm_queries *, const float *, const float *, const int64_t *, const int64_t *, realm_listed *,
                int64_t *, int64_t, int32_t, int32_t);
void realm_score(const float *, int64_t, const double *, const int64_t *, const int64_t *, int64_t, int32_t, double *, int32_t, int32_t);
void realm_order(const int64_t *, int64_t, realm_scored *, realm_scored *, int32_t);

static float number(int64_t i) {
    const float sizes[] = {1e-41f, 1e-20f, 1, 1, 1, 1e3f, 0, 1e18f, 3e38f, -1};
    return ((float)(i * 2654435761u % 1000) / 500 - 1) * sizes[i / 97 % 10];
}

static float *numbers(int64_t count) {
    float *values = malloc((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i] = number(i);
    return values;
}

/* Rows of all groups, of few, and of too many; every second row is hidden from the first query. */
static void list(const realm_codes *codes, const realm_queries *queries, const float *upper, int level) {
    const int64_t count = queries->count, folds = (codes->groups + 2) / 3;
    int64_t *hidden = malloc((size_t)(codes->rows + 1) / 2 * 8), *start = malloc((size_t)(count + 1) * 8);
    float *folded = malloc((size_t)(count * folds) * 4), *floor = malloc((size_t)count * 4);
    start[0] = 0;
    for (int64_t i = 0; i < count; i++)
        start[i + 1] = (codes->rows + 1) / 2;
    for (int64_t i = 0; i < start[1]; i++)
        hidden[i] = i * 2;
    realm_thresholds(codes, upper, queries->by_residual, queries->by_norm, 2, folded, count, folds, (folds + 1) / 2, floor, 2);
    for (int64_t limit = 1; limit <= codes->groups * GROUP; limit *= 7) {
        realm_listed *listed = malloc((size_t)(count * limit) * sizeof *listed);
        int64_t *found = calloc((size_t)count, 8);
        realm_list(codes, queries, upper, floor, hidden, start, listed, found, limit, 2, level);
        free(listed), free(found);
        for (int64_t i = 0; i < count; i++)
            floor[i] = -3e38f;
    }
    free(hidden), free(start), free(folded), free(floor);
}

static void search(const realm_codes *codes, int64_t count, int64_t planes, int level) {
    const int64_t panels = (count * planes + PANEL - 1) / PANEL, size = panels * codes->quads * PANEL * 4;
    int8_t *panel = malloc((size_t)size);
    int32_t *shift = malloc((size_t)panels * PANEL * 4);
    float *upper = malloc((size_t)(count * codes->groups) * 4), *single = malloc((size_t)(count * codes->groups * GROUP) * 4);
    int64_t *query = malloc((size_t)(count * codes->groups) * 8), *group = malloc((size_t)(count * codes->groups) * 8);
    for (int64_t i = 0; i < size; i++)
        panel[i] = (int8_t)(i * 7 % 33 - 16);
    for (int64_t i = 0; i < panels * PANEL; i++)
        shift[i] = (int32_t)i * 128;
    for (int64_t i = 0; i < count * codes->groups; i++) {
        query[i] = i / codes->groups;
        group[i] = i % codes->groups;
    }
    float *step = numbers(panels * PANEL), *by_residual = numbers(count), *by_norm = numbers(count);
    const realm_queries queries = {panel, shift, step, by_residual, by_norm, count, planes};
    realm_scan(codes, &queries, upper, 2, level);
    realm_rows(codes, &queries, query, group, count * codes->groups, single, 2, level);
    list(codes, &queries, upper, level);
    free(panel), free(shift), free(upper), free(single), free(query), free(group), free(step), free(by_residual), free(by_norm);
}

static void order(int64_t count) {
    realm_scored *scored = malloc((size_t)count * sizeof *scored), *scratch = malloc((size_t)count * sizeof *scored);
    const int64_t start[] = {0, count / 3, count / 3, count};
    for (int64_t i = 0; i < count; i++)
        scored[i] = (realm_scored){.score = number(i / 2), .row = i * 7 % count};
    realm_order(start, 3, scored, scratch, 2);
    free(scored), free(scratch);
}

static void everything(int64_t rows, int64_t dim, int level) {
    const int64_t groups = (rows + GROUP - 1) / GROUP, quads = (dim + 3) / 4;
    uint8_t *code = malloc((size_t)(groups * GROUP * quads * 4));
    float *per_row[2], *per_group[3], *vectors = numbers(rows * dim), *bias = numbers(rows);
    for (int i = 0; i < 2; i++)
        per_row[i] = malloc((size_t)(groups * GROUP) * 4);
    for (int i = 0; i < 3; i++)
        per_group[i] = malloc((size_t)groups * 4);
    const realm_codes codes = {code, per_row[0], per_row[1], per_group[0], per_group[1], per_group[2], rows, dim, groups, quads};
    if (realm_quantise(&codes, vectors, bias, 2, level) != -1 || realm_quantise(&codes, vectors, NULL, 2, level) != -1)
        exit(2);
    for (int64_t count = 1; count <= 5; count++)
        for (int64_t planes = 1; planes <= 2; planes++)
            search(&codes, count, planes, level);
    int64_t pairs = (rows + 1) / 2, *row = malloc((size_t)pairs * 8), *query = calloc((size_t)pairs, 8);
    double *q = calloc((size_t)dim, 8), *score = malloc((size_t)pairs * 8);
    for (int64_t i = 0; i < pairs; i++)
        row[i] = i * 2;
    realm_score(vectors, dim, q, query, row, pairs, level & 1, score, 2, level);
    order(rows);
    free(code), free(vectors), free(bias), free(row), free(query), free(q), free(score);
    for (int i = 0; i < 3; i++)
        free(per_group[i]), i < 2 ? free(per_row[i]) : (void)0;
}

int main(void) {
    for (int level = 0; level <= realm_level(); level++) {
        everything(1, 1, level);
        everything(64, 8, level);
        everything(2500, 13, level);
        everything(300, 66, level);
        everything(70, 2048, level);
    }
    puts("sound");
    return 0;
}
