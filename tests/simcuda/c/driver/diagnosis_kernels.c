/* The kernels of NCCL's own diagnosis (NCCL_RUN_DIAGNOSTICS=1, 2.31 and later): each rank writes a value of its own into
 * every peer's slot and reads one back. The structures are those of 2.32.3, found by what NCCL prints of them. */
#include "simcuda.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { uint64_t written, verified, to_read; } Slot; /* by sender, in the receiver's memory */
typedef struct { Slot *slots; int from, to, slot, unused; } Operation; /* `slots` is the peer's memory */
typedef struct { int kind, count, me, gpu; const void *at; const int *peers; uint64_t *out; } Job;
enum { INIT, WRITE, VERIFY, READ };

enum { OF_WRITES = 62, OF_READS }; /* the bit that marks a value */
static uint64_t value(int bit, int owner, int peer) { return 1ul << bit | (uint64_t)owner << 31 | (uint64_t)peer; }

static void run(void *argument) {
    Job *job = argument;
    if (job->kind == READ && sim_is_chosen("DIAGNOSIS_HANGS", job->gpu, NULL)) for (;;) pause();
    for (int i = 0; i < job->count; i++) {
        Slot *own = (Slot *)job->at + i;
        const Operation *o = (const Operation *)job->at + i;
        uint64_t sent;
        switch (job->kind) {
        case INIT: *own = (Slot){.to_read = value(OF_READS, job->me, job->peers[i])}; break;
        case WRITE: sent = value(OF_WRITES, o->from, o->to), sim_store(&o->slots[o->slot].written, &sent, sizeof sent, job->gpu); break;
        case VERIFY: own->verified = own->written; break;
        default: sim_store(&job->out[i], &o->slots[o->slot].to_read, sizeof sent, job->gpu);
        }
    }
    free(job);
}

int sim_diagnosis_launch(const Function *function, void **p, CUstream stream) {
    static const char *const names[] = {"diagP2pInitSlots", "diagP2pRemoteWrite", "diagP2pVerifyWrites", "diagP2pRemoteRead"};
    for (int kind = INIT; kind <= READ && p; kind++) {
        if (!strstr(function->name, names[kind])) continue;
        Job *job = calloc(1, sizeof *job);
        *job = (Job){.kind = kind, .at = *(void **)p[0], .count = *(int *)p[kind == INIT ? 2 : 1]};
        job->gpu = sim_gpu(sim_stream_ordinal(sim_stream(stream)))->index;
        if (kind == INIT) job->peers = *(int **)p[1], job->me = *(int *)p[3];
        if (kind == READ) job->out = *(uint64_t **)p[2];
        return (int)sim_run(stream, run, job, 0);
    }
    return -1;
}
