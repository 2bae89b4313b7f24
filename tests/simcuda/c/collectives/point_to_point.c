/* ncclSend and ncclRecv: each direction of each pair is a task of its own, as they are warps of their own on a GPU. */
#include "collectives.h"

#include <stdlib.h>
#include <string.h>

typedef struct { char *at; size_t bytes, chunk; int rank, sends, ll; } Direction;

static unsigned reversed(unsigned x, int bits) {
    unsigned out = 0;
    for (int i = 0; i < bits; i++) out |= (x >> i & 1) << (bits - 1 - i);
    return out;
}
/* Which part of a transfer this channel carries; the parts of a pair are spread in bit-reversed order. */
static int part_of(const P2pWork *w, int channel) {
    return (int)reversed((unsigned)(channel - w->channel_base) & (w->parts - 1u), __builtin_popcount(w->parts - 1u));
}
/* Chunk sizes travel in eight bits: three of mantissa. */
static size_t chunk_bytes(uint8_t code) {
    unsigned exponent = code >> 3, mantissa = (code & 7u) | (exponent ? 8u : 0u);
    return (size_t)mantissa << (exponent ? exponent - 1 : 0);
}

static void run(Task *task) {
    Direction *d = task->argument;
    Kernel kernel = {.collective = SEND_RECEIVE, .type = 1, .protocol = d->ll ? PROTO_LL : PROTO_SIMPLE};
    Pipe pipe;
    pipe_open(&pipe, task, &kernel, 1, d->sends ? -1 : d->rank, d->sends ? d->rank : -1, 1, 1);
    size_t done = 0;
    do { /* nothing is sent as one empty chunk */
        size_t part = d->bytes - done < d->chunk ? d->bytes - done : d->chunk;
        if (!pipe_move(&pipe, d->sends ? GIVE : TAKE, d->sends ? d->at + done : NULL, d->sends ? NULL : d->at + done, (ssize_t)part)) break;
        done += part;
    } while (done < d->bytes);
    pipe_close(&pipe);
    free(d);
}

static Task *start(Task *parent, Direction direction, int parts, int part) {
    size_t each = ALIGN_UP((direction.bytes + (size_t)parts - 1) / (size_t)parts, 4096), begin = (size_t)part * each;
    if (begin > direction.bytes) begin = direction.bytes;
    size_t end = begin + each < direction.bytes ? begin + each : direction.bytes;
    Direction *kept = malloc(sizeof *kept);
    direction.at += begin;
    direction.bytes = end - begin;
    *kept = direction;
    return task_add(parent->launch, parent->channel, parent->number, run, kept);
}

void point_to_point_run(Task *task, const Kernel *kernel, const P2pWork *works, int count) {
    int me = task->launch->arguments->comm->rank, started = 0;
    Task *children[2 * 64];
    (void)kernel;
    for (int i = 0; i < count; i++) {
        const P2pWork *w = &works[i];
        int part = part_of(w, task->number), sends = w->send_channels && part < w->send_channels, receives = w->receive_channels && part < w->receive_channels;
        if (w->send_rank == me) { /* to oneself: a copy, which channels share in the same way */
            size_t each = ALIGN_UP((w->send_bytes + w->send_channels - 1) / (w->send_channels ? w->send_channels : 1), 4096), begin = (size_t)part * each;
            if (sends && w->send != w->receive && begin < w->send_bytes)
                memmove(w->receive + begin, w->send + begin, begin + each < w->send_bytes ? each : w->send_bytes - begin);
            continue;
        }
        if (sends)
            children[started++] = start(task, (Direction){w->send, w->send_bytes, chunk_bytes(w->send_chunk), w->send_rank, 1, w->send_ll}, w->send_channels, part);
        if (receives)
            children[started++] = start(task, (Direction){w->receive, w->receive_bytes, chunk_bytes(w->receive_chunk), w->receive_rank, 0, w->receive_ll}, w->receive_channels, part);
    }
    for (int i = 0; i < started; i++)
        while (!children[i]->done) task_yield(task);
}
