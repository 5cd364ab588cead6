/* A loop over pieces of a range on a few threads, started for the call and joined before it returns. */
#include "kernel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#define MOST_THREADS 256

typedef struct {
    range_function function;
    void *task;
    int64_t count, piece;
    _Atomic int64_t next;
} loop;

static void *work(void *argument) {
    loop *shared = argument;
    for (;;) {
        const int64_t first = atomic_fetch_add(&shared->next, shared->piece);
        if (first >= shared->count)
            return NULL;
        const int64_t rest = shared->count - first;
        shared->function(shared->task, first, first + (rest < shared->piece ? rest : shared->piece));
    }
}

void realm_parallel(range_function function, void *task, int64_t count, int64_t piece, int threads) {
    loop shared = {.function = function, .task = task, .count = count, .piece = piece};
    pthread_t others[MOST_THREADS];
    int64_t pieces = (count + piece - 1) / piece;
    int started = 0;
    if (threads > MOST_THREADS)
        threads = MOST_THREADS;
    atomic_init(&shared.next, 0);
    /* A thread that cannot be started leaves its share to the rest. */
    while (started + 1 < threads && started + 1 < pieces && pthread_create(&others[started], NULL, work, &shared) == 0)
        started++;
    work(&shared);
    while (started)
        pthread_join(others[--started], NULL);
}
