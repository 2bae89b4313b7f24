/* The ring algorithms, as NCCL's src/device/ describes them: which chunk goes where in which step. */
#include "collectives.h"

#include <string.h>

static const size_t GRAIN[PROTOCOLS] = {16, 1920, 512}; /* bytes: chunks are counted in these */
typedef struct { size_t total, offset, count, chunk; } Part; /* elements */

static Part part_of(const CollectiveWork *w, int channel, const Kernel *kernel) {
    size_t per_grain = GRAIN[kernel->protocol] / type_bytes(kernel->type), middle = (size_t)(w->channel_high - w->channel_low - 1);
    Part part = {.total = w->count_low + w->count_middle * middle + w->count_high};
    if (w->channel_high == w->channel_low) part.total = w->count_low;
    if (channel == (int)w->channel_low) {
        part.count = w->count_low;
        part.chunk = w->grains_low * per_grain;
    } else if (channel == (int)w->channel_high) {
        part.offset = w->count_low + middle * w->count_middle;
        part.count = w->count_high;
        part.chunk = w->grains_high * per_grain;
    } else {
        part.offset = w->count_low + (size_t)(channel - (int)w->channel_low - 1) * w->count_middle;
        part.count = w->count_middle;
        part.chunk = w->grains_middle * per_grain;
    }
    return part;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

typedef struct { Pipe pipe; const CollectiveWork *work; size_t width; int ranks; const int *order; Part part; } Ring;
static int step(Ring *ring, int how, const char *own, size_t own_at, char *kept, size_t kept_at, size_t count) {
    return pipe_move(&ring->pipe, how, own ? own + own_at * ring->width : NULL, kept ? kept + kept_at * ring->width : NULL, (ssize_t)(count * ring->width));
}

static int all_reduce(Ring *r) {
    const CollectiveWork *w = r->work;
    size_t n = (size_t)r->ranks, me = (size_t)r->pipe.task->channel->index, chunk = r->part.chunk;
    for (size_t at = 0; at < r->part.count; at += n * r->part.chunk) {
        size_t left = r->part.count - at;
        chunk = r->part.chunk;
        if (left < n * chunk) chunk = ALIGN_UP((left + n - 1) / n, 16 / r->width ? 16 / r->width : 1);
        for (size_t i = 0; i < 2 * n - 1; i++) {
            size_t which = i < n ? (me + 2 * n - 1 - i) % n : (me + 2 * n - (i - n + 1)) % n;
            size_t here = which * chunk, count = here < left ? least(chunk, left - here) : 0, offset = r->part.offset + at + here;
            int how = (i ? TAKE : 0) | (i < 2 * n - 2 ? GIVE : 0), adds = i < n;
            if (!step(r, how, adds ? w->send : NULL, offset, i >= n - 1 ? w->receive : NULL, offset, count)) return 0;
        }
    }
    return 1;
}

static int all_gather(Ring *r) {
    const CollectiveWork *w = r->work;
    for (size_t at = 0; at < r->part.count; at += r->part.chunk) {
        size_t count = least(r->part.chunk, r->part.count - at), offset = r->part.offset + at;
        for (int i = 0; i < r->ranks; i++) {
            size_t place = offset + (size_t)r->order[i ? r->ranks - i : 0] * r->part.total;
            int how = (i ? TAKE : 0) | (i < r->ranks - 1 ? GIVE : 0), in_place = w->send + offset * r->width == w->receive + place * r->width;
            if (!step(r, how, i ? NULL : w->send, offset, !i && in_place ? NULL : w->receive, place, count)) return 0;
        }
    }
    return 1;
}

static int reduce_scatter(Ring *r) {
    const CollectiveWork *w = r->work;
    for (size_t at = 0; at < r->part.count; at += r->part.chunk) {
        size_t count = least(r->part.chunk, r->part.count - at), offset = r->part.offset + at;
        for (int i = 0; i < r->ranks; i++) {
            int last = i == r->ranks - 1;
            size_t place = offset + (size_t)r->order[last ? 0 : r->ranks - 1 - i] * r->part.total;
            if (!step(r, (i ? TAKE : 0) | (last ? 0 : GIVE), w->send, place, last ? w->receive : NULL, offset, count)) return 0;
        }
    }
    return 1;
}

static int broadcast(Ring *r) {
    const CollectiveWork *w = r->work;
    int root = (int)w->root, first = r->order[0] == root, last = r->order[1] == root;
    for (size_t at = 0; at < r->part.count; at += r->part.chunk) {
        size_t count = least(r->part.chunk, r->part.count - at), offset = r->part.offset + at;
        if (!step(r, (first ? 0 : TAKE) | (last ? 0 : GIVE), first ? w->send : NULL, offset, first && w->send == w->receive ? NULL : w->receive, offset, count)) return 0;
    }
    return 1;
}

int ring_run(Task *task, const Kernel *kernel, const CollectiveWork *work) {
    Kernel used = *kernel;
    int moves_only = kernel->collective == ALL_GATHER || kernel->collective == BROADCAST, one_step = kernel->collective == BROADCAST;
    if (moves_only) used.type = 1; /* bytes: uint8 */
    Ring ring = {.work = work, .width = type_bytes(used.type), .ranks = task->launch->arguments->comm->ranks, .order = task->channel->user_ranks};
    ring.part = part_of(work, task->number, &used);
    pipe_open(&ring.pipe, task, &used, 0, task->channel->previous, task->channel->next, one_step ? 1 : 2, one_step ? 1 : 2);
    ring.pipe.operand = work->operand;
    int whole = kernel->collective == ALL_REDUCE ? all_reduce(&ring) : kernel->collective == ALL_GATHER ? all_gather(&ring)
              : kernel->collective == REDUCE_SCATTER ? reduce_scatter(&ring) : broadcast(&ring);
    pipe_close(&ring.pipe);
    return whole;
}
