/* Contexts: one primary context a GPU, and the stack that each thread has. */
#include "simcuda.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { DEEPEST = 32 };
static Context primary[MOST_GPUS];
static __thread Context *stack[DEEPEST];
static __thread int depth;

Context *sim_context(void) { return depth ? stack[depth - 1] : NULL; }
int sim_ordinal(void) { return depth && stack[depth - 1] ? stack[depth - 1]->ordinal : 0; }

static Context *retain(int ordinal) {
    primary[ordinal].ordinal = ordinal;
    primary[ordinal].live = 1;
    return &primary[ordinal];
}

static void set_current(Context *context) {
    if (depth) depth--;
    if (context) stack[depth++] = context;
}

/* SIMCUDA_EXCLUSIVE=1: compute mode EXCLUSIVE_PROCESS, the first process with a context keeps all others out. */
static CUresult may_enter(const Gpu *gpu) {
    static int held[MOST_GPUS];
    if (!sim_number("EXCLUSIVE", 0) || held[gpu->index]) return CUDA_SUCCESS;
    char path[4096];
    snprintf(path, sizeof path, "%s.exclusive.%d", sim_machine_path(), gpu->index);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB)) { if (fd >= 0) close(fd); return CUDA_ERROR_DEVICE_UNAVAILABLE; }
    held[gpu->index] = fd + 1;
    return CUDA_SUCCESS;
}

CUresult sim_use(int ordinal) {
    ENTER;
    const Gpu *gpu = sim_gpu(ordinal);
    if (!gpu) return CUDA_ERROR_INVALID_DEVICE;
    CUresult health = sim_gpu_health(gpu->index);
    if (!health) health = may_enter(gpu);
    if (!health) set_current(retain(ordinal));
    return health;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice d) {
    ENTER;
    const Gpu *gpu = sim_gpu(d);
    if (!gpu) return CUDA_ERROR_INVALID_DEVICE;
    *context = (CUcontext)retain(d);
    CUresult entered = may_enter(gpu);
    return entered ? entered : sim_gpu_health(gpu->index);
}
API CUresult cuDevicePrimaryCtxRelease(CUdevice d) { ENTER; return sim_gpu(d) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE; }
API CUresult cuDevicePrimaryCtxSetFlags(CUdevice d, unsigned flags) {
    ENTER;
    if (!sim_gpu(d)) return CUDA_ERROR_INVALID_DEVICE;
    primary[d].flags = flags;
    return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active) {
    ENTER;
    if (!sim_gpu(d)) return CUDA_ERROR_INVALID_DEVICE;
    if (flags) *flags = primary[d].flags;
    if (active) *active = primary[d].live;
    return CUDA_SUCCESS;
}
API CUresult cuCtxGetCurrent(CUcontext *context) { ENTER; *context = (CUcontext)sim_context(); return CUDA_SUCCESS; }
API CUresult cuCtxSetCurrent(CUcontext context) { ENTER; set_current((Context *)context); return CUDA_SUCCESS; }
API CUresult cuCtxPushCurrent(CUcontext context) {
    ENTER;
    if (depth == DEEPEST) return CUDA_ERROR_OUT_OF_MEMORY;
    stack[depth++] = (Context *)context;
    return CUDA_SUCCESS;
}
API CUresult cuCtxPopCurrent(CUcontext *context) {
    ENTER;
    if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
    if (context) *context = (CUcontext)sim_context();
    depth--;
    return CUDA_SUCCESS;
}
API CUresult cuCtxGetDevice(CUdevice *d) {
    ENTER;
    if (!sim_context()) return CUDA_ERROR_INVALID_CONTEXT;
    *d = sim_ordinal();
    return CUDA_SUCCESS;
}
API CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *p, int n, unsigned flags, CUdevice d) {
    (void)p; (void)n;
    ENTER;
    if (!sim_gpu(d)) return CUDA_ERROR_INVALID_DEVICE;
    Context *made = calloc(1, sizeof *made);
    *made = (Context){.ordinal = d, .live = 1, .flags = flags};
    *context = (CUcontext)made;
    return cuCtxPushCurrent(*context);
}
API CUresult cuCtxDestroy(CUcontext context) { ENTER; if (sim_context() == (Context *)context) depth--; return CUDA_SUCCESS; }
API CUresult cuCtxSynchronize(void) { ENTER; return sim_wait_device(sim_ordinal()); }
API CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version) { (void)context; *version = 3020; return CUDA_SUCCESS; }
API CUresult cuCtxGetId(CUcontext context, unsigned long long *id) {
    *id = (uintptr_t)(context ? (Context *)context : sim_context());
    return CUDA_SUCCESS;
}
API CUresult cuCtxGetFlags(unsigned *flags) { *flags = sim_context() ? sim_context()->flags : 0; return CUDA_SUCCESS; }
API CUresult cuCtxGetLimit(size_t *value, CUlimit limit) { (void)limit; *value = 1024; return CUDA_SUCCESS; }
API CUresult cuCtxSetLimit(CUlimit limit, size_t value) { (void)limit; (void)value; return CUDA_SUCCESS; }
API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return CUDA_SUCCESS;
}
API CUresult cuCtxEnablePeerAccess(CUcontext context, unsigned flags) {
    (void)flags;
    ENTER;
    const Gpu *mine = sim_gpu(sim_ordinal()), *theirs = sim_gpu(((Context *)context)->ordinal);
    if (!mine || !theirs) return CUDA_ERROR_INVALID_DEVICE;
    return sim_can_access(mine->index, theirs->index) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}
API CUresult cuCtxDisablePeerAccess(CUcontext context) { (void)context; return CUDA_SUCCESS; }
API CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) { *mode = CU_MODULE_LAZY_LOADING; return CUDA_SUCCESS; }
