/* The simulated CUDA driver: what its parts know of each other. docs/dev/testing.md says how it works. */
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <cuda.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define API __attribute__((visibility("default")))
#define MOST_GPUS 64
#define MIB (1ul << 20)
#define GRANULARITY (2 * MIB) /* of cuMemCreate, as on every GPU so far */
#define ALIGN_UP(n, to) (((n) + (to) - 1) / (to) * (to))

/* Every call that needs a working driver begins with this: a child forked after the parent's cuInit has none. */
#define ENTER do { CUresult entered_ = sim_enter(); if (entered_) return entered_; } while (0)
#define DONE(...) do { sim_log(2, __VA_ARGS__); return CUDA_SUCCESS; } while (0)

/* ---- log.c: level 0 is said always, 1 with SIMCUDA_LOG=1 (calls that fail), 2 every call */
void sim_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));
void *sim_refusal(const char *name); /* a function of any signature that logs the name and returns NOT_SUPPORTED */

/* ---- machine.c: the answers of the machine's file, which the simulated NVML reads too */
const char *sim_answer(const char *format, ...) __attribute__((format(printf, 1, 2))); /* NULL where there is none */
const char *sim_setting(const char *name); /* SIMCUDA_<name> of the environment, else of the machine's file, else NULL */
long sim_number(const char *name, long otherwise);
const char *sim_machine_path(void);

typedef struct {
    int index;      /* on the machine, as NVML counts */
    int domain, bus, slot;
    char bdf[16];   /* 0000:18:00.0 */
    char uuid_text[48];
    char name[96];
    CUuuid uuid;
    int major, minor;
    size_t memory;  /* bytes */
} Gpu;

/* ---- device.c: the GPUs that this process sees, by CUDA's ordinal */
int sim_gpu_count(void);
const Gpu *sim_gpu(int ordinal); /* NULL where there is none */
int sim_driver_version(void);
CUresult sim_enter(void);
int sim_device_attribute(int attribute, const Gpu *gpu);
int sim_p2p_status(int a, int b, int capability); /* machine's indices; 0 is NVML's OK */
int sim_can_access(int a, int b);

/* ---- context.c */
typedef struct Context { int ordinal, live; unsigned flags; } Context;
Context *sim_context(void);
int sim_ordinal(void); /* of the current context; 0 where there is none */
CUresult sim_use(int ordinal);

/* ---- faults.c: a pair is of machine's indices, in any order */
enum { FAULT_NONE, FAULT_LOSES, FAULT_CHANGES };
int sim_names_pair(const char *setting, int a, int b); /* "0-1,2-3" or "all" */
long sim_way_mb_s(int from, int to); /* WAY_SLOW="2>3:50", 0: as fast as memory */
int sim_peer_fault(int mine, int theirs);
int sim_is_chosen(const char *setting, int gpu, long *number); /* "2", "0,3" or "2:NUMBER"; "all" is every GPU */
CUresult sim_gpu_health(int gpu);   /* an error of CUDA's where it has died */
void sim_count_launch(int gpu);
void sim_meet_rank_fault(int gpu);  /* may not return */

/* ---- memory.c */
enum { MEMORY_DEVICE, MEMORY_HOST, MEMORY_REGISTERED, MEMORY_MAPPED };
typedef struct Memory {
    uintptr_t base;
    size_t size;
    int fd, kind;
    int ordinal; /* of the context it was made in */
    int gpu;     /* whose memory it is, by the machine's index; -1 for the host's */
    int peer;    /* opened from another process */
    size_t charged;
    struct Memory *next;
} Memory;
int sim_find(uintptr_t address, Memory *out); /* 0 where it is in no allocation */
CUresult sim_allocate(void **out, size_t size, int kind);
CUresult sim_release(uintptr_t base);
void sim_remember(Memory memory);
int sim_forget(uintptr_t base, Memory *out);
int sim_is_device(uintptr_t address);
void sim_move(void *to, const void *from, size_t size); /* as the copy engines would, with the faults of peer access */
void sim_store(void *to, const void *from, size_t size, int gpu); /* the same by a kernel on that GPU */
CUresult sim_fill(uintptr_t to, unsigned value, int width, size_t count);
int sim_memfd(int gpu);             /* gpu -1: of the host */
int sim_memfd_owner(int fd);        /* the machine's index, -1 for the host's, -2 for none of ours */

/* ---- account.c: who has how much of each GPU, over all processes */
CUresult sim_charge(int gpu, size_t bytes);
void sim_credit(int gpu, size_t bytes);
size_t sim_used(int gpu);

/* ---- stream.c: a thread per stream runs what was queued, in order */
typedef struct Stream Stream;
typedef void (*Work)(void *argument);
Stream *sim_stream(CUstream handle); /* 0, 1 and 2 are the default stream of the current device */
uint64_t sim_queue(Stream *stream, Work work, void *argument);
CUresult sim_wait(Stream *stream, uint64_t ticket);
CUresult sim_wait_device(int ordinal);
CUresult sim_run(CUstream handle, Work work, void *argument, int wait);
int sim_stream_ordinal(Stream *stream);
void sim_break(int ordinal, CUresult error); /* the sticky error of a context */
CUresult sim_broken(int ordinal);
double sim_now(void);

/* ---- code.c, collectives */
typedef struct { char name[256]; } Function;
Function *sim_function(const char *name);
CUresult sim_launch(const Function *function, unsigned grid, void **parameters, void **extra, CUstream stream);
int sim_nccl_launch(const Function *function, void *arguments, size_t size, CUstream stream); /* CUresult; -1: not NCCL's */

int sim_torch_launch(const Function *function, void **parameters, CUstream stream); /* as above; torch_kernels.c */
int sim_diagnosis_launch(const Function *function, void **parameters, CUstream stream); /* as above; diagnosis_kernels.c */
CUresult sim_sleep(CUstream stream, long ns);

/* ---- lookup.c, attach.c */
void *sim_driver_function(const char *name, int version);
const char *sim_symbol_name(const void *address); /* a function of the NCCL that is attached */
const char *sim_registered_name(const void *host); /* a kernel of a program that is linked to libcudart */
void *sim_symbol(const char *name, size_t *size);
