/* The two ends of NCCL's connections, with its three protocols: slots of a ring buffer, its tail and its head. */
#include "collectives.h"

#include <stdlib.h>
#include <string.h>

enum { LL_LINE = 16, LL_DATA = 8, LL128_LINE = 128, LL128_DATA = 120 };

static size_t data_of(int protocol, size_t bytes) {
    return protocol == PROTO_LL ? bytes / 2 : protocol == PROTO_LL128 ? bytes / LL128_LINE * LL128_DATA : bytes;
}
static size_t lines_of(int protocol, size_t bytes) { /* bytes in the slot */
    if (protocol == PROTO_LL) return (bytes + LL_DATA - 1) / LL_DATA * LL_LINE;
    return protocol == PROTO_LL128 ? (bytes + LL128_DATA - 1) / LL128_DATA * LL128_LINE : bytes;
}

static size_t step_bytes(const End *end, const Task *task) {
    if (end->protocol == PROTO_SIMPLE) return (size_t)end->connection->step_bytes;
    return (size_t)task->launch->arguments->comm->buffer_bytes[end->protocol] / STEPS;
}

static void open_end(End *end, Task *task, Connection *connection, int rank, const Kernel *kernel, int steps, int sends) {
    Memory memory;
    int own = task->launch->gpu;
    *end = (End){.connection = connection, .protocol = kernel->protocol, .rank = rank};
    end->slot_bytes = data_of(kernel->protocol, step_bytes(end, task));
    /* Whose memory the slots are decides whether a broken path lies between: P2P alone goes through it. */
    if (sim_find((uintptr_t)connection->buffers[kernel->protocol], &memory)) {
        end->fault = sim_peer_fault(own, memory.gpu);
        end->mb_s = sends ? sim_way_mb_s(own, memory.gpu) : sim_way_mb_s(memory.gpu, own);
    }
    end->scratch = malloc(end->slot_bytes * (size_t)steps + 256);
}

void pipe_open(Pipe *pipe, Task *task, const Kernel *kernel, int connection, int from, int to, int slices, int steps_per_slice) {
    *pipe = (Pipe){.task = task, .has_in = from >= 0, .has_out = to >= 0, .kernel = *kernel, .slices = slices, .steps_per_slice = steps_per_slice};
    if (kernel->protocol != PROTO_SIMPLE) pipe->slices = pipe->steps_per_slice = 1;
    int whole = pipe->slices * pipe->steps_per_slice;
    if (from >= 0) {
        Connection *c = &task->channel->peers[from]->receive[connection];
        open_end(&pipe->in, task, c, from, kernel, pipe->steps_per_slice, 0);
        if (kernel->protocol == PROTO_SIMPLE) {
            c->step = ALIGN_UP(c->step, (uint64_t)whole);
            __atomic_store_n(c->head, c->step, __ATOMIC_RELEASE); /* the credits of what was rounded up */
        }
    }
    if (to >= 0) {
        Connection *c = &task->channel->peers[to]->send[connection];
        open_end(&pipe->out, task, c, to, kernel, pipe->steps_per_slice, 1);
        if (kernel->protocol == PROTO_SIMPLE) c->step = ALIGN_UP(c->step, (uint64_t)whole);
    }
}

void pipe_close(Pipe *pipe) {
    free(pipe->in.scratch);
    free(pipe->out.scratch);
}

static char *slot(Pipe *pipe, End *end) {
    Connection *c = end->connection;
    size_t at = c->step % STEPS;
    if (end->protocol == PROTO_SIMPLE && c->fifo && c->fifo[at].mode == FIFO_OFFSET) return c->buffers[PROTO_SIMPLE] + c->fifo[at].offset;
    if (end->protocol == PROTO_SIMPLE && c->fifo && c->fifo[at].mode == FIFO_POINTER) {
        sim_log(0, "REFUSED: a registered buffer of a proxy is not simulated");
        pipe->task->launch->failed = 1;
        return NULL;
    }
    return c->buffers[end->protocol] + at * step_bytes(end, pipe->task);
}

/* ---- LL: 4 bytes of data and a flag, twice a line; LL128: 120 bytes and a flag. The flag is the step that follows. */
static void ll_write(char *at, const char *from, size_t bytes, uint32_t flag) {
    for (size_t done = 0; done < bytes; done += LL_DATA, at += LL_LINE) {
        uint32_t data[2] = {0, 0};
        memcpy(data, from + done, bytes - done < LL_DATA ? bytes - done : LL_DATA);
        volatile uint32_t *line = (volatile uint32_t *)at;
        for (int half = 0; half < 2; half++) {
            line[2 * half] = data[half];
            __atomic_store_n(&line[2 * half + 1], flag, __ATOMIC_RELEASE);
        }
    }
}
static int flagged(Pipe *pipe, volatile void *at, int wide, uint64_t flag) {
    Task *task = pipe->task;
    for (;;) {
        uint64_t now = wide ? __atomic_load_n((volatile uint64_t *)at, __ATOMIC_ACQUIRE) : __atomic_load_n((volatile uint32_t *)at, __ATOMIC_ACQUIRE);
        if (now == (wide ? flag : (uint32_t)flag)) return 1;
        if (task->launch->aborted || task->launch->failed) return 0;
        task->waits_for = "receive from";
        task->waits_for_rank = pipe->in.rank;
        task->waits_until = flag;
        task_yield(task);
    }
}
static int ll_read(Pipe *pipe, char *to, char *at, size_t bytes, uint64_t flag) {
    for (size_t done = 0; done < bytes; done += LL_DATA, at += LL_LINE) {
        volatile uint32_t *line = (volatile uint32_t *)at;
        if (!flagged(pipe, &line[1], 0, flag) || !flagged(pipe, &line[3], 0, flag)) return 0;
        uint32_t data[2] = {line[0], line[2]};
        memcpy(to + done, data, bytes - done < LL_DATA ? bytes - done : LL_DATA);
    }
    pipe->task->launch->moved++;
    return 1;
}
static void ll128_write(char *at, const char *from, size_t bytes, uint64_t flag) {
    for (size_t done = 0; done < bytes; done += LL128_DATA, at += LL128_LINE) {
        memcpy(at, from + done, bytes - done < LL128_DATA ? bytes - done : LL128_DATA);
        __atomic_store_n((volatile uint64_t *)(at + LL128_DATA), flag, __ATOMIC_RELEASE);
    }
}
static int ll128_read(Pipe *pipe, char *to, char *at, size_t bytes, uint64_t flag) {
    for (size_t done = 0; done < bytes; done += LL128_DATA, at += LL128_LINE) {
        if (!flagged(pipe, at + LL128_DATA, 1, flag)) return 0;
        memcpy(to + done, at, bytes - done < LL128_DATA ? bytes - done : LL128_DATA);
    }
    pipe->task->launch->moved++;
    return 1;
}

/* ---- a slice */
static void carry(Pipe *pipe, End *end, size_t bytes) { /* over a way that is slow; the other channels go on */
    if (!end->mb_s) return;
    double now_s = sim_now();
    end->free_at_s = (end->free_at_s > now_s ? end->free_at_s : now_s) + (double)bytes / 1e6 / (double)end->mb_s;
    while (sim_now() < end->free_at_s && !pipe->task->launch->aborted && !pipe->task->launch->failed) task_yield(pipe->task);
}
static const char *take(Pipe *pipe, size_t bytes) {
    End *end = &pipe->in;
    Connection *c = end->connection;
    char *at;
    if (end->protocol == PROTO_SIMPLE) {
        if (!task_wait(pipe->task, c->tail, 0, c->step + (uint64_t)pipe->steps_per_slice, "receive from", end->rank)) return NULL;
        if (!(at = slot(pipe, end))) return NULL;
        carry(pipe, end, bytes);
        if (end->fault != FAULT_CHANGES || bytes < (size_t)sim_number("CHANGES_SLICE", 0)) return at;
        memcpy(end->scratch, at, bytes); /* read over a path that changes what goes over it */
    } else {
        at = slot(pipe, end);
        if (end->protocol == PROTO_LL ? !ll_read(pipe, end->scratch, at, bytes, c->step + 1) : !ll128_read(pipe, end->scratch, at, bytes, c->step + 1)) return NULL;
    }
    if (end->fault == FAULT_CHANGES && bytes && bytes >= (size_t)sim_number("CHANGES_SLICE", 0)) end->scratch[0] ^= 0x10;
    return end->scratch;
}
static void give_back(Pipe *pipe) {
    Connection *c = pipe->in.connection;
    c->step += (uint64_t)pipe->steps_per_slice;
    __atomic_store_n(c->head, c->step, __ATOMIC_RELEASE);
}

static char *room(Pipe *pipe, size_t bytes) {
    End *end = &pipe->out;
    Connection *c = end->connection;
    if (!task_wait(pipe->task, c->head, STEPS, c->step + (uint64_t)pipe->steps_per_slice, "send to", end->rank)) return NULL;
    char *at = slot(pipe, end);
    if (at && c->fifo) c->fifo[c->step % STEPS].size = (ssize_t)lines_of(end->protocol, bytes);
    return at && end->protocol != PROTO_SIMPLE ? end->scratch : at;
}
static void hand_over(Pipe *pipe, char *filled, size_t bytes) {
    End *end = &pipe->out;
    Connection *c = end->connection;
    carry(pipe, end, bytes);
    if (end->fault == FAULT_CHANGES && bytes && bytes >= (size_t)sim_number("CHANGES_SLICE", 0)) filled[0] ^= 0x10;
    if (end->protocol == PROTO_LL) ll_write(slot(pipe, end), filled, bytes, (uint32_t)(c->step + 1));
    if (end->protocol == PROTO_LL128) ll128_write(slot(pipe, end), filled, bytes, c->step + 1);
    c->step += (uint64_t)pipe->steps_per_slice;
    if (end->protocol != PROTO_LL && c->tail) __atomic_store_n(c->tail, c->step, __ATOMIC_RELEASE);
}

static int move_slice(Pipe *pipe, int how, const char *own, char *kept, size_t bytes) {
    const char *taken = NULL;
    char *given = NULL;
    if ((how & TAKE) && !(taken = take(pipe, bytes))) return 0;
    if ((how & GIVE) && !(given = room(pipe, bytes))) return 0;
    char *first = kept ? kept : given;
    if (first && bytes) {
        combine(&pipe->kernel, pipe->operand, first, taken, own, bytes);
        if (pipe->task->launch->wrong && (taken || own)) first[0] ^= 0x20; /* SIMCUDA_GPU_WRONG: this GPU's arithmetic is broken */
        if (kept && given) memcpy(given, kept, bytes);
    }
    if (taken) give_back(pipe);
    if (given) hand_over(pipe, given, bytes);
    return 1;
}

int pipe_move(Pipe *pipe, int how, const char *own, char *kept, ssize_t bytes) {
    size_t all = bytes > 0 ? (size_t)bytes : 0, most = ALIGN_UP((all + (size_t)pipe->slices - 1) / (size_t)pipe->slices, 16);
    for (int i = 0; i < pipe->slices; i++) {
        size_t at = (size_t)i * most, part = at >= all ? 0 : all - at < most ? all - at : most;
        if (!move_slice(pipe, how, own ? own + at : NULL, kept ? kept + at : NULL, part)) return 0;
    }
    return 1;
}
