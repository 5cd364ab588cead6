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

/* Upper bounds of the groups' best scores: upper[count][groups]. */
void realm_scan(const realm_codes *codes, const realm_queries *queries, float *upper, int32_t threads, int32_t level) {
    realm_task task = {.codes = codes, .queries = queries, .upper = upper};
    range_function scan = realm_scan_scalar;
#if defined(__x86_64__)
    if (level == LEVEL_AVX2)
        scan = realm_scan_avx2;
    if (level == LEVEL_VNNI)
        scan = realm_scan_vnni;
#endif
    (void)level;
    realm_parallel(scan, &task, codes->groups, 64, threads);
}

/* Upper bounds of the scores of all rows of (query, group) pairs: upper[pairs][GROUP]. */
void realm_rows(const realm_codes *codes, const realm_queries *queries, const int64_t *query, const int64_t *group, int64_t pairs,
                float *upper, int32_t threads, int32_t level) {
    realm_task task = {.codes = codes, .queries = queries, .upper = upper, .query = query, .group = group};
    range_function rows = realm_rows_scalar;
#if defined(__x86_64__)
    if (level == LEVEL_AVX2)
        rows = realm_rows_avx2;
    if (level == LEVEL_VNNI)
        rows = realm_rows_vnni;
#endif
    (void)level;
    realm_parallel(rows, &task, pairs, 64, threads);
}

/* Rows whose bounds reach their query's floor: listed[count][limit], found[count] of them, at most the limit of which are there. */
void realm_list(const realm_codes *codes, const realm_queries *queries, const float *upper, const float *floor, const int64_t *hidden,
                const int64_t *hidden_start, realm_listed *listed, int64_t *found, int64_t limit, int32_t threads, int32_t level) {
    realm_listing listing = {.codes = codes, .queries = queries, .upper = upper, .floor = floor, .hidden = hidden,
                             .hidden_start = hidden_start, .listed = listed, .found = (_Atomic int64_t *)found, .limit = limit};
    range_function list = realm_list_scalar;
#if defined(__x86_64__)
    if (level == LEVEL_AVX2)
        list = realm_list_avx2;
    if (level == LEVEL_VNNI)
        list = realm_list_vnni;
#endif
    (void)level;
    realm_parallel(list, &listing, codes->groups, 1024, threads);
}
