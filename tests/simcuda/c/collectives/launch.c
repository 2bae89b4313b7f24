/* What a launch of an NCCL kernel asks for: read from its arguments, refused where it is not known, else run in stream order. */
#include "collectives.h"

#include <stdlib.h>
#include <string.h>

/* The rows of NCCL's table of device functions, in the order of ncclDevFuncId (src/include/device.h). */
static const struct { int collective, algorithms[6], count, typed; } rows[] = {
    {ALL_GATHER, {1, 2, 4, 6}, 4, 0},
    {BROADCAST, {1}, 1, 0},
    {ALL_REDUCE, {0, 1, 2, 3, 4, 5}, 6, 1},
    {REDUCE, {1}, 1, 1},
    {REDUCE_SCATTER, {1, 2, 4, 6}, 4, 1},
};

static int decode(unsigned function, Kernel *out) {
    static const int *row_to_id;
    static size_t size;
    if (!row_to_id && !(row_to_id = sim_symbol("ncclDevFuncRowToId", &size))) return 0;
    size_t row = 0, all = size / sizeof *row_to_id;
    while (row < all && row_to_id[row] != (int)function) row++;
    if (row == all) return 0;
    *out = (Kernel){.collective = SEND_RECEIVE, .type = 1, .algorithm = ALGO_RING, .protocol = PROTO_SIMPLE};
    if (row-- == 0) return 1;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t each = (size_t)rows[i].count * PROTOCOLS, here = each * (rows[i].typed ? (size_t)OPERATIONS * TYPES : 1);
        if (row >= here) {
            row -= here;
            continue;
        }
        size_t kind = row / each, rest = row % each;
        *out = (Kernel){rows[i].collective, (int)(kind / TYPES), rows[i].typed ? (int)(kind % TYPES) : 1, rows[i].algorithms[rest / PROTOCOLS], (int)(rest % PROTOCOLS)};
        return 1;
    }
    return 0;
}

static const char *const collective_names[] = {"AllGather", "Broadcast", "AllReduce", "Reduce", "ReduceScatter", "SendRecv", "?"};
static const char *const protocol_names[] = {"LL", "LL128", "Simple"};

static int known(const Kernel *k) {
    if (k->collective == SEND_RECEIVE) return 1;
    if (k->algorithm == ALGO_RING && (k->collective == ALL_GATHER || k->collective == BROADCAST)) return 1;
    if (k->algorithm == ALGO_RING && (k->collective == ALL_REDUCE || k->collective == REDUCE_SCATTER) && can_reduce(k)) return 1;
    sim_log(0, "REFUSED: %s, algorithm %d, %s, operation %d of type %d is not simulated (Ring is)", collective_names[k->collective],
            k->algorithm, protocol_names[k->protocol], k->operation, k->type);
    return 0;
}

static const Batch *batch_of(const KernelArguments *arguments, int channel) {
    uint64_t below = arguments->channel_mask & ((1ull << channel) - 1);
    return (const Batch *)(arguments + 1) + __builtin_popcountll(below);
}
static const char *work_at(const KernelArguments *a, uint32_t offset) {
    return a->storage == STORED_IN_ARGUMENTS ? (const char *)a + offset : a->work + (offset & a->work_mask);
}

/* The works of a batch and of those that extend it, in order; returns the batch that follows, NULL at the end. */
enum { MOST_WORKS = 64 };
static const Batch *gather(const KernelArguments *a, const Batch *batch, size_t work_bytes, const char **works, int *count) {
    for (*count = 0;; batch += batch->next_jump) {
        for (int bit = 0; bit < 64 && *count < MOST_WORKS; bit++)
            if (batch->offset_bits >> bit & 1) works[(*count)++] = work_at(a, batch->offset + (uint32_t)(bit * (int)work_bytes));
        if (!batch->next_extends) return batch->next_jump ? batch + batch->next_jump : NULL;
    }
}
static size_t work_bytes(const Batch *batch) { return batch->work_type == WORK_P2P ? sizeof(P2pWork) : sizeof(CollectiveWork); }

static int check(const KernelArguments *a) {
    const char *works[MOST_WORKS];
    int count;
    if (a->storage == STORED_FOR_GRAPH) {
        sim_log(0, "REFUSED: a kernel of a CUDA graph is not simulated");
        return 0;
    }
    for (int channel = 0; channel < CHANNELS; channel++) {
        if (!(a->channel_mask >> channel & 1)) continue;
        for (const Batch *batch = batch_of(a, channel); batch;) {
            Kernel kernel;
            if (!decode(batch->function, &kernel) || batch->work_type == WORK_COLLECTIVE_REGISTERED) {
                sim_log(0, "REFUSED: device function %u, work of type %u is not simulated", batch->function, batch->work_type);
                return 0;
            }
            if (!known(&kernel)) return 0;
            const Batch *next = gather(a, batch, work_bytes(batch), works, &count);
            for (int i = 0; i < count && batch->work_type == WORK_COLLECTIVE; i++)
                if (((const CollectiveWork *)works[i])->operand_is_pointer) {
                    sim_log(0, "REFUSED: a reduction whose factor lies in device memory is not simulated");
                    return 0;
                }
            batch = next;
        }
    }
    return 1;
}

static void run_channel(Task *task) {
    const KernelArguments *a = task->launch->arguments;
    const char *works[MOST_WORKS];
    int count;
    for (const Batch *batch = batch_of(a, task->number); batch && !task->launch->failed && !task->launch->aborted;) {
        Kernel kernel;
        decode(batch->function, &kernel);
        const Batch *next = gather(a, batch, work_bytes(batch), works, &count);
        if (batch->work_type == WORK_P2P) {
            P2pWork all[MOST_WORKS];
            for (int i = 0; i < count; i++) memcpy(&all[i], works[i], sizeof all[i]);
            point_to_point_run(task, &kernel, all, count);
        } else {
            for (int i = 0; i < count; i++) {
                CollectiveWork work;
                memcpy(&work, works[i], sizeof work);
                if (!ring_run(task, &kernel, &work)) return;
            }
        }
        batch = next;
    }
}

static void run(void *argument) {
    Launch *launch = argument;
    KernelArguments *a = launch->arguments;
    for (int channel = 0; channel < CHANNELS; channel++)
        if (a->channel_mask >> channel & 1) task_add(launch, &a->comm->channels[channel], channel, run_channel, NULL);
    launch_run(launch);
    if (launch->failed) sim_break(launch->ordinal, CUDA_ERROR_LAUNCH_FAILED);
    free(a);
    free(launch);
}

static int version(void) {
    static int found;
    int (*ask)(int *) = (int (*)(int *))sim_symbol("ncclGetVersion", NULL);
    if (!found && ask) ask(&found);
    return found;
}

int sim_nccl_launch(const Function *function, void *arguments, size_t size, CUstream stream) {
    const char *kernels = sim_setting("KERNELS");
    if (!strstr(function->name, "ncclDevKernel") || (kernels && !strcmp(kernels, "ignored"))) return -1;
    if (version() != NCCL_VERSION_KNOWN) {
        sim_log(0, "REFUSED: kernels of NCCL %d are not simulated, those of %d are", version(), NCCL_VERSION_KNOWN);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!arguments || size < sizeof(KernelArguments)) {
        sim_log(0, "REFUSED: %s was launched without arguments that can be read", function->name);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    Launch *launch = calloc(1, sizeof *launch);
    launch->arguments = malloc(size);
    memcpy(launch->arguments, arguments, size); /* as the driver does: the caller's copy may go */
    launch->size = size;
    launch->ordinal = sim_stream_ordinal(sim_stream(stream));
    launch->gpu = sim_gpu(launch->ordinal)->index;
    launch->wrong = sim_is_chosen("GPU_WRONG", launch->gpu, NULL);
    sim_meet_rank_fault(launch->gpu);
    if (!check(launch->arguments)) {
        free(launch->arguments);
        free(launch);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return (int)sim_run(stream, run, launch, 0);
}
