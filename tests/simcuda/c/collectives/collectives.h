/* One kernel launch of NCCL's as tasks that take turns on the stream's thread. */
#pragma once
#include "../simcuda.h"
#include "nccl_2_27_5.h"

#include <setjmp.h>
#include <ucontext.h>

enum { ALL_GATHER, BROADCAST, ALL_REDUCE, REDUCE, REDUCE_SCATTER, SEND_RECEIVE, UNKNOWN_COLLECTIVE };
enum { OP_SUM, OP_PROD, OP_MIN_MAX, OP_PRE_MUL_SUM, OP_SUM_POST_DIV };
enum { TYPES = 12, OPERATIONS = 5 };
typedef struct { int collective, operation, type, algorithm, protocol; } Kernel;

typedef struct Launch {
    KernelArguments *arguments;
    size_t size;
    int gpu, ordinal, failed, aborted, wrong;
    unsigned long moved; /* anything that got further */
    double waiting_since_s;
    int told;
    struct Task *first;
    jmp_buf scheduler;
} Launch;

typedef struct Task {
    Launch *launch;
    Channel *channel;
    void (*body)(struct Task *);
    void *argument;
    int done, number;
    const char *waits_for;
    int waits_for_rank;
    uint64_t waits_until;
    ucontext_t context; /* how it begins */
    jmp_buf where;      /* where it goes on */
    int begun;
    char *stack;
    struct Task *parent, *next;
} Task;

/* ---- scheduler.c */
Task *task_add(Launch *launch, Channel *channel, int number, void (*body)(Task *), void *argument);
/* Wait for *at + ahead >= until, 0 where the kernel was aborted. A head may begin at -STEPS: then nothing may be sent yet. */
int task_wait(Task *task, volatile uint64_t *at, uint64_t ahead, uint64_t until, const char *what, int rank);
void task_yield(Task *task);
void launch_run(Launch *launch);

/* ---- primitives.c: one end of a connection, and what moves through it */
typedef struct {
    Connection *connection;
    int protocol, rank, fault;
    long mb_s; /* of a slow way between two GPUs, else 0 */
    double free_at_s;
    size_t slot_bytes; /* of data that one step carries */
    char *scratch;
} End;
typedef struct {
    Task *task;
    End in, out;
    int has_in, has_out, slices, steps_per_slice;
    Kernel kernel;
    uint64_t operand;
} Pipe;
void pipe_open(Pipe *pipe, Task *task, const Kernel *kernel, int connection, int from, int to, int slices, int steps_per_slice);
void pipe_close(Pipe *pipe);
/* Take from `in` where wanted, combine with own, keep in kept, send on; bytes of one chunk. 0 where the kernel was aborted. */
enum { TAKE = 1, GIVE = 2 };
int pipe_move(Pipe *pipe, int how, const char *own, char *kept, ssize_t bytes);

/* ---- reduce.c */
size_t type_bytes(int type);
int can_reduce(const Kernel *kernel);
void combine(const Kernel *kernel, uint64_t operand, char *out, const char *taken, const char *own, size_t bytes);

/* ---- rings.c, point_to_point.c */
int ring_run(Task *task, const Kernel *kernel, const CollectiveWork *work);
void point_to_point_run(Task *task, const Kernel *kernel, const P2pWork *works, int count);
