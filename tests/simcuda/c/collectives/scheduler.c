/* Tasks that take turns on one thread: NCCL's blocks and warps wait for each other, and a thread each would be hundreds. */
#include "collectives.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { STACK_BYTES = 128 << 10, PATIENT_ROUNDS = 40 };
static const long PAUSE_NS = 100000, LONG_PAUSE_NS = 2000000;
static const double SLOW_AFTER_S = 1.0;

static void enter(unsigned high, unsigned low) {
    Task *task = (Task *)((uintptr_t)high << 32 | low);
    task->body(task);
    task->done = 1;
    task->launch->moved++;
    _longjmp(task->launch->scheduler, 1);
}

/* Tasks change places by _setjmp: swapcontext makes a system call each time, and a GPU that waits changes places all the while. */
static void resume(Launch *launch, Task *task) {
    if (_setjmp(launch->scheduler)) return;
    if (task->begun) _longjmp(task->where, 1);
    task->begun = 1;
    setcontext(&task->context);
}

Task *task_add(Launch *launch, Channel *channel, int number, void (*body)(Task *), void *argument) {
    Task *task = calloc(1, sizeof *task), **last = &launch->first;
    *task = (Task){.launch = launch, .channel = channel, .number = number, .body = body, .argument = argument};
    task->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (task->stack == MAP_FAILED) abort();
    getcontext(&task->context);
    task->context.uc_stack.ss_sp = task->stack;
    task->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&task->context, (void (*)(void))enter, 2, (unsigned)((uintptr_t)task >> 32), (unsigned)(uintptr_t)task);
    while (*last) last = &(*last)->next;
    *last = task;
    return task;
}

void task_yield(Task *task) {
    if (!_setjmp(task->where)) _longjmp(task->launch->scheduler, 1);
}

int task_wait(Task *task, volatile uint64_t *at, uint64_t ahead, uint64_t until, const char *what, int rank) {
    Launch *launch = task->launch;
    task->waits_for = what;
    task->waits_for_rank = rank;
    task->waits_until = until;
    while (__atomic_load_n(at, __ATOMIC_ACQUIRE) + ahead < until) {
        if (launch->aborted || launch->failed) return 0;
        task_yield(task);
    }
    launch->moved++;
    task->waits_for = NULL;
    return 1;
}

static void tell_what_waits(Launch *launch, double waited_s) {
    launch->told = 1;
    for (Task *task = launch->first; task; task = task->next)
        if (!task->done && task->waits_for)
            sim_log(0, "HANGS for %.0f s: rank %d, channel %d waits to %s rank %d, step %lu", waited_s, launch->arguments->comm->rank,
                    task->number, task->waits_for, task->waits_for_rank, (unsigned long)task->waits_until);
}

static void pause_a_little(Launch *launch, int rounds) {
    double waited_s = sim_now() - launch->waiting_since_s;
    volatile uint32_t *flag = launch->arguments->comm->abort_flag;
    if (flag && *flag && !launch->aborted) { /* ncclCommAbort: the kernel ends without its data */
        sim_log(1, "rank %d: the kernel is aborted", launch->arguments->comm->rank);
        launch->aborted = 1;
    }
    if (sim_gpu_health(launch->gpu)) launch->failed = 1;
    if (!launch->told && waited_s > SLOW_AFTER_S && waited_s > (double)sim_number("HANG_TOLD_S", 5)) tell_what_waits(launch, waited_s);
    if (rounds < PATIENT_ROUNDS) sched_yield();
    else nanosleep(&(struct timespec){0, waited_s > SLOW_AFTER_S ? LONG_PAUSE_NS : PAUSE_NS}, NULL);
}

void launch_run(Launch *launch) {
    int idle_rounds = 0, left = 1;
    while (left) {
        unsigned long before = launch->moved;
        left = 0;
        for (Task *task = launch->first; task; task = task->next) {
            if (task->done) continue;
            left = 1;
            resume(launch, task);
        }
        if (launch->moved != before) {
            idle_rounds = 0;
            launch->waiting_since_s = 0;
        } else if (left) {
            if (!idle_rounds++) launch->waiting_since_s = sim_now();
            pause_a_little(launch, idle_rounds);
        }
    }
    while (launch->first) {
        Task *task = launch->first;
        launch->first = task->next;
        munmap(task->stack, STACK_BYTES);
        free(task);
    }
}
