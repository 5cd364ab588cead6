/* Exact compressed search: the shapes that the Python side and the kernels share.
 *
 * Rows are kept as 8-bit codes, a group of 64 rows together, in bundles of 16: codes[group][bundle][quad][row][4], where a quad is
 * four consecutive components: a scan reads memory from end to end. A code c stands for the component scale[row] * (c - 128). Every group knows how far its rows lie from their codes, so that a scan
 * of the codes gives an upper bound on every true inner product:
 *
 *     q.x + bias <= scan + |q| * residual[group] + (|q - decoded q| + rounding) * norm[group] + slack[group]
 */
#ifndef REALM_KERNEL_H
#define REALM_KERNEL_H

#include <stdatomic.h>
#include <stdint.h>

#define GROUP 64 /* rows of a group */
#define BUNDLE 16 /* rows of a bundle */
#define PANEL 4  /* coded queries that one pass over a group serves */
#define ABI 3    /* changes with anything in this file */

enum level { LEVEL_SCALAR = 0, LEVEL_AVX2 = 1, LEVEL_VNNI = 2 };

typedef struct {
    uint8_t *codes;  /* [groups][GROUP / BUNDLE][quads][BUNDLE][4] */
    float *scale;    /* [groups * GROUP] */
    float *offset;   /* [groups * GROUP], added to the scan's score; minus infinity hides a row */
    float *residual; /* [groups], largest |x - decoded x|, rounded up */
    float *norm;     /* [groups], largest |decoded x|, rounded up */
    float *slack;    /* [groups], rounding of the offsets */
    int64_t rows;    /* of which the last group may lack some */
    int64_t dim;
    int64_t groups;
    int64_t quads;
} realm_codes;

/* Queries as 8-bit codes. Each has one or two planes (coarse and fine); panel p holds the planes 4p..4p+3, unused ones are zero.
 * No sum of 255 * (codes of one sign) over the same half of four consecutive quads exceeds 32767: AVX2 adds those up in 16 bits. */
typedef struct {
    const int8_t *panels;     /* [panels][quads][PANEL][4] */
    const int32_t *shift;     /* [panels * PANEL], 128 * the sum of the plane's codes */
    const float *step;        /* [panels * PANEL], what one unit of the plane stands for */
    const float *by_residual; /* [count], |q|, rounded up */
    const float *by_norm;     /* [count], |q - decoded q| and rounding, rounded up */
    int64_t count;
    int64_t planes; /* of each query: 1 or 2 */
} realm_queries;

/* What the levels provide: bounds of the groups first..last-1 for all queries, and of the rows of (query, group) pairs. */
typedef struct {
    const realm_codes *codes;
    const realm_queries *queries;
    float *upper;   /* scan: [count][of every stride-th group], rows: [pairs][GROUP] */
    int64_t stride;
    const int64_t *query; /* rows: [pairs] */
    const int64_t *group; /* rows: [pairs] */
    const float *floor;   /* refine: [count] */
} realm_task;

/* A row whose bound reaches what was asked for: its score lies between lower and upper. */
typedef struct {
    int64_t row;
    float upper, lower;
} realm_listed;

/* A row and its score. */
typedef struct {
    double score;
    int64_t row;
} realm_scored;

/* Rows whose bounds reach their query's floor, of the groups whose bounds do. */
typedef struct {
    const realm_codes *codes;
    const realm_queries *queries; /* of the rows' bounds; upper may be by coarser ones */
    const float *upper;           /* [count][groups] */
    const float *floor;           /* [count] */
    const int64_t *hidden;        /* rows that are left out, ascending for each query */
    const int64_t *hidden_start;  /* [count + 1] */
    realm_listed *listed;         /* [count][limit] */
    _Atomic int64_t *found;       /* [count], zero at first; beyond the limit: not all are listed */
    int64_t limit;
} realm_listing;

/* A pair to be scored: its score becomes scored[start[query] + place]. */
typedef struct {
    int64_t row;
    int32_t query, place;
} realm_pair;

/* A scan that lists on its way: the rows of a group that reaches are looked at while its codes are in the cache. */
typedef struct {
    realm_listing listing;        /* upper: NULL */
    const realm_queries *scanned; /* of one plane, or those of the listing */
    const float *sample;          /* [count][of every stride-th group], of a scan */
    int64_t stride;
} realm_sweep;

typedef void (*range_function)(void *task, int64_t first, int64_t last);

void realm_scan_scalar(void *task, int64_t first, int64_t last);
void realm_rows_scalar(void *task, int64_t first, int64_t last);
void realm_list_scalar(void *listing, int64_t first, int64_t last);
void realm_sweep_scalar(void *sweep, int64_t first, int64_t last);
void realm_refine_scalar(void *task, int64_t first, int64_t last);
void realm_scan_avx2(void *task, int64_t first, int64_t last);
void realm_rows_avx2(void *task, int64_t first, int64_t last);
void realm_list_avx2(void *listing, int64_t first, int64_t last);
void realm_sweep_avx2(void *sweep, int64_t first, int64_t last);
void realm_refine_avx2(void *task, int64_t first, int64_t last);
void realm_scan_vnni(void *task, int64_t first, int64_t last);
void realm_rows_vnni(void *task, int64_t first, int64_t last);
void realm_list_vnni(void *listing, int64_t first, int64_t last);
void realm_sweep_vnni(void *sweep, int64_t first, int64_t last);
void realm_refine_vnni(void *task, int64_t first, int64_t last);

/* Scores of pairs: inner products, or minus squared distances. */
void realm_score(const float *vectors, int64_t dim, const double *queries, const realm_pair *pairs, int64_t count, int32_t distance,
                 const int64_t *start, realm_scored *scored, int32_t threads, int32_t level);

/* The rank-th largest of the values, rank from 1; changes their order. */
float realm_ranked_float(float *values, int64_t count, int64_t rank);
double realm_ranked_double(double *values, int64_t count, int64_t rank);

/* Put rows in order, the best first, equal scores by row; the scratch holds as many. */
void realm_order(realm_scored *scored, int64_t count, realm_scored *scratch);

/* Run function(task, first, last) over 0..count-1 in pieces of `piece`, on `threads` threads, the caller's included. */
void realm_parallel(range_function function, void *task, int64_t count, int64_t piece, int threads);

#endif
