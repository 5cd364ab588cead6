/* What Python calls, by ctypes. Sizes are int64_t, so that nothing depends on a platform's long. */
#include "kernel.h"

int32_t realm_abi(void) { return ABI; }

/* The best level that this processor runs. */
int32_t realm_level(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vnni"))
        return LEVEL_VNNI;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return LEVEL_AVX2;
#endif
    return LEVEL_SCALAR;
}

#if defined(__x86_64__)
#define OF_LEVEL(name) (level == LEVEL_VNNI ? name##_vnni : level == LEVEL_AVX2 ? name##_avx2 : name##_scalar)
#else
#define OF_LEVEL(name) ((void)level, name##_scalar)
#endif

/* Pieces of `most` groups, or smaller ones where that would leave threads without work. */
static int64_t piece_of(int64_t groups, int64_t most, int32_t threads) {
    const int64_t piece = groups / ((int64_t)threads * 4);
    return piece > most ? most : piece < 1 ? 1 : piece;
}

/* Upper bounds of the best scores of every stride-th group: upper[count][of those groups]. */
void realm_scan(const realm_codes *codes, const realm_queries *queries, int64_t stride, float *upper, int32_t threads, int32_t level) {
    realm_task task = {.codes = codes, .queries = queries, .upper = upper, .stride = stride};
    const int64_t groups = (codes->groups + stride - 1) / stride;
    realm_parallel(OF_LEVEL(realm_scan), &task, groups, piece_of(groups, 64, threads), threads);
}

/* Bounds of every stride-th group, of a scan by coarser codes, made those of `queries` where they reach the floor, minus infinity elsewhere. */
void realm_refine(const realm_codes *codes, const realm_queries *queries, int64_t stride, const float *floor, float *upper,
                  int32_t threads, int32_t level) {
    realm_task task = {.codes = codes, .queries = queries, .upper = upper, .stride = stride, .floor = floor};
    const int64_t groups = (codes->groups + stride - 1) / stride;
    realm_parallel(OF_LEVEL(realm_refine), &task, groups, piece_of(groups, 64, threads), threads);
}

/* A scan of all groups that also lists. sample: of a scan of every stride-th group by `scanned`, which are the listing's queries or their
 * first planes. The rest is as for realm_list. */
void realm_sweep_and_list(const realm_codes *codes, const realm_queries *queries, const realm_queries *scanned, const float *sample,
                          int64_t stride, const float *floor, const int64_t *hidden, const int64_t *hidden_start,
                          realm_listed *listed, int64_t *found, int64_t limit, int32_t threads, int32_t level) {
    realm_sweep sweep = {.listing = {.codes = codes, .queries = queries, .floor = floor, .hidden = hidden,
                                     .hidden_start = hidden_start, .listed = listed, .found = (_Atomic int64_t *)found, .limit = limit},
                         .scanned = scanned, .sample = sample, .stride = stride};
    realm_parallel(OF_LEVEL(realm_sweep), &sweep, codes->groups, piece_of(codes->groups, 256, threads), threads);
}

/* Upper bounds of the scores of all rows of (query, group) pairs: upper[pairs][GROUP]. */
void realm_rows(const realm_codes *codes, const realm_queries *queries, const int64_t *query, const int64_t *group, int64_t pairs,
                float *upper, int32_t threads, int32_t level) {
    realm_task task = {.codes = codes, .queries = queries, .upper = upper, .query = query, .group = group};
    realm_parallel(OF_LEVEL(realm_rows), &task, pairs, 64, threads);
}

/* Rows whose bounds reach their query's floor: listed[count][limit], found[count] of them, at most the limit of which are there. */
void realm_list(const realm_codes *codes, const realm_queries *queries, const float *upper, const float *floor, const int64_t *hidden,
                const int64_t *hidden_start, realm_listed *listed, int64_t *found, int64_t limit, int32_t threads, int32_t level) {
    realm_listing listing = {.codes = codes, .queries = queries, .upper = upper, .floor = floor, .hidden = hidden,
                             .hidden_start = hidden_start, .listed = listed, .found = (_Atomic int64_t *)found, .limit = limit};
    realm_parallel(OF_LEVEL(realm_list), &listing, codes->groups, piece_of(codes->groups, 1024, threads), threads);
}
