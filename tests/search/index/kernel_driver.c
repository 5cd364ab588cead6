/* Runs the kernel at all levels of this processor, for the sanitizers: arrays of just the right size, awkward numbers, two threads. */
#include "kernel.h"

#include <stdio.h>
#include <stdlib.h>

int32_t realm_level(void);
int64_t realm_quantise(const realm_codes *, const float *, const float *, int32_t, int32_t);
void realm_scan(const realm_codes *, const realm_queries *, int64_t, float *, int32_t, int32_t);
void realm_refine(const realm_codes *, const realm_queries *, int64_t, const float *, float *, int32_t, int32_t);
void realm_sweep_and_list(const realm_codes *, const realm_queries *, const realm_queries *, const float *, int64_t, const float *,
                          const int64_t *, const int64_t *, realm_listed *, int64_t *, int64_t, int32_t, int32_t);
void realm_rows(const realm_codes *, const realm_queries *, const int64_t *, const int64_t *, int64_t, float *, int32_t, int32_t);
void realm_thresholds(const realm_codes *, const float *, const float *, const float *, float, float *, int64_t, int64_t, int64_t, float *,
                      int32_t);
void realm_list(const realm_codes *, const realm_queries *, const float *, const float *, const int64_t *, const int64_t *, realm_listed *,
                int64_t *, int64_t, int32_t, int32_t);
void realm_kth_lower(realm_listed *const *, const int64_t *, int64_t, int64_t, float *, float *, int32_t);
void realm_best(const float *, int64_t, int64_t, const double *, int64_t, realm_listed *const *, const int64_t *, int64_t, const float *,
                const double *, const double *, realm_pair *, realm_scored *, realm_scored *, int64_t *, int64_t *, int64_t *, double *, int32_t,
                int32_t);

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
    const int64_t count = queries->count, stride = 3, width = (codes->groups + stride - 1) / stride;
    int64_t *hidden = malloc((size_t)(codes->rows + 1) / 2 * 8), *start = malloc((size_t)(count + 1) * 8);
    float *less = malloc((size_t)(count * width) * 4), *sample = malloc((size_t)(count * width) * 4), *floor = malloc((size_t)count * 4);
    float *refined = malloc((size_t)(count * width) * 4);
    start[0] = 0;
    for (int64_t i = 0; i < count; i++)
        start[i + 1] = (codes->rows + 1) / 2;
    for (int64_t i = 0; i < start[1]; i++)
        hidden[i] = i * 2;
    realm_scan(codes, queries, stride, sample, 2, level);
    realm_scan(codes, queries, stride, refined, 2, level);
    realm_thresholds(codes, sample, queries->by_residual, queries->by_norm, 2, less, count, stride, (width + 1) / 2, floor, 2);
    realm_refine(codes, queries, stride, floor, refined, 2, level);
    for (int64_t limit = 1; limit <= codes->groups * GROUP; limit *= 7) {
        realm_listed *listed = malloc((size_t)(count * limit) * sizeof *listed);
        int64_t *found = calloc((size_t)count, 8);
        realm_list(codes, queries, upper, floor, hidden, start, listed, found, limit, 2, level);
        for (int64_t i = 0; i < count; i++)
            found[i] = 0;
        realm_sweep_and_list(codes, queries, queries, sample, stride, floor, hidden, start, listed, found, limit, 2, level);
        free(listed), free(found);
        for (int64_t i = 0; i < count; i++)
            floor[i] = -3e38f;
    }
    free(hidden), free(start), free(less), free(sample), free(floor), free(refined);
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
    realm_scan(codes, &queries, 1, upper, 2, level);
    realm_rows(codes, &queries, query, group, count * codes->groups, single, 2, level);
    list(codes, &queries, upper, level);
    free(panel), free(shift), free(upper), free(single), free(query), free(group), free(step), free(by_residual), free(by_norm);
}

/* The best of every second row, of no row and of some, for three queries. */
static void best(const float *vectors, int64_t rows, int64_t dim, int64_t k, int level) {
    const int64_t start[] = {0, (rows + 1) / 2, (rows + 1) / 2, (rows + 1) / 2 + rows};
    realm_listed *listed = malloc((size_t)start[3] * sizeof *listed), *each[] = {listed, listed + start[1], listed + start[2]};
    realm_pair *pairs = malloc((size_t)start[3] * sizeof *pairs);
    realm_scored *scored = malloc((size_t)start[3] * sizeof *scored), *scratch = malloc((size_t)start[3] * sizeof *scored);
    double *queries = calloc((size_t)dim * 3, 8), *score = malloc((size_t)k * 3 * 8);
    int64_t first[3], kept[3], *row = malloc((size_t)k * 3 * 8);
    float *scratch_of_bounds = malloc((size_t)start[3] * 4), lower[3];
    const double margin[] = {0, 1, 0};
    for (int64_t i = 0; i < start[3]; i++)
        listed[i] = (realm_listed){.row = i < start[1] ? i * 2 : i - start[2], .upper = number(i), .lower = number(i) - 1};
    for (int64_t i = 0; i < dim * 3; i++)
        queries[i] = 1;
    realm_kth_lower(each, start, 3, k, scratch_of_bounds, lower, 2);
    for (int i = 0; i < 3; i++)
        lower[i] = -3e38f;
    realm_best(vectors, rows, dim, queries, 3, each, start, k, lower, margin, level & 1 ? margin : NULL, pairs, scored, scratch, first, kept, row,
               score, 2, level);
    free(listed), free(pairs), free(scored), free(scratch), free(queries), free(score), free(row), free(scratch_of_bounds);
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
    best(vectors, rows, dim, 1, level);
    best(vectors, rows, dim, 100, level);
    free(code), free(vectors), free(bias);
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
