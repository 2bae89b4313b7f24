/* The public runtime calls, as simrt_NAME: NCCL's own copy is redirected to them, the stand-in for libcudart jumps to them. */
#include "simcuda.h"

#include <driver_types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Error; /* cudaError_t: the driver's number, for all errors that we return */
#define RT(name) API Error simrt_##name
static __thread Error last;
static __thread int chosen;

static Error keep(CUresult result) {
    if (result && result != CUDA_ERROR_NOT_READY) sim_log(1, "a runtime call fails: %d", result);
    if (result) last = (Error)result;
    return (Error)result;
}
RT(refuse)(const char *name) {
    sim_log(0, "REFUSED: %s is not simulated", name);
    last = CUDA_ERROR_NOT_SUPPORTED;
    return last;
}

/* The runtime makes the context of the chosen device at the first call that needs one. */
static CUresult ready(void) {
    CUresult entered = sim_enter();
    return entered ? entered : sim_context() ? CUDA_SUCCESS : sim_use(chosen);
}
#define READY do { CUresult ready_ = ready(); if (ready_) return keep(ready_); } while (0)
#define CALL(call) do { READY; return keep(call); } while (0)

/* ---- devices */
RT(cudaGetDevice)(int *d) { CUresult entered = sim_enter(); *d = sim_context() ? sim_ordinal() : chosen; return keep(entered); }
RT(cudaSetDevice)(int d) {
    CUresult result = sim_use(d);
    if (!result) chosen = d;
    return keep(result);
}
RT(cudaGetDeviceCount)(int *n) { *n = 0; return keep(cuDeviceGetCount(n)); }
RT(cudaDriverGetVersion)(int *v) { *v = sim_driver_version(); return 0; }
RT(cudaRuntimeGetVersion)(int *v) { *v = (int)sim_number("RUNTIME", 12080); return 0; }
RT(cudaDeviceGetAttribute)(int *v, int a, int d) { return keep(cuDeviceGetAttribute(v, (CUdevice_attribute)a, d)); }
RT(cudaDeviceGetPCIBusId)(char *text, int n, int d) { return keep(cuDeviceGetPCIBusId(text, n, d)); }
RT(cudaDeviceGetByPCIBusId)(int *d, const char *text) { return keep(cuDeviceGetByPCIBusId(d, text)); }
RT(cudaDeviceCanAccessPeer)(int *can, int a, int b) { return keep(cuDeviceCanAccessPeer(can, a, b)); }
RT(cudaDeviceGetP2PAttribute)(int *v, int attribute, int a, int b) { return keep(cuDeviceGetP2PAttribute(v, (CUdevice_P2PAttribute)attribute, a, b)); }
RT(cudaDeviceEnablePeerAccess)(int d, unsigned flags) {
    static char enabled[MOST_GPUS][MOST_GPUS];
    (void)flags;
    READY;
    const Gpu *theirs = sim_gpu(d);
    if (!theirs) return keep(CUDA_ERROR_INVALID_DEVICE);
    if (!sim_can_access(sim_gpu(sim_ordinal())->index, theirs->index)) return keep(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    if (enabled[sim_ordinal()][d]++) return keep(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    return 0;
}
RT(cudaDeviceSetLimit)(int limit, size_t v) { (void)limit; (void)v; return 0; }
RT(cudaDeviceGetLimit)(size_t *v, int limit) { (void)limit; *v = 1024; return 0; }
RT(cudaDeviceSynchronize)(void) { CALL(sim_wait_device(sim_ordinal())); }
RT(cudaDeviceGetStreamPriorityRange)(int *least, int *greatest) { return keep(cuCtxGetStreamPriorityRange(least, greatest)); }
RT(cudaSetDeviceFlags)(unsigned flags) { (void)flags; return 0; }
RT(cudaGetDeviceFlags)(unsigned *flags) { *flags = 0; return 0; }
RT(cudaDeviceGetDefaultMemPool)(void **out, int d) { return keep(cuDeviceGetDefaultMemPool((CUmemoryPool *)out, d)); }

/* ---- errors */
RT(cudaGetLastError)(void) { Error was = last; last = 0; return was; }
RT(cudaPeekAtLastError)(void) { return last; }
API const char *simrt_cudaGetErrorString(Error e) { const char *text; cuGetErrorString((CUresult)e, &text); return text; }
/* The runtime's names differ from the driver's; two are known to be read by programs. */
API const char *simrt_cudaGetErrorName(Error e) {
    const char *text;
    if (e == CUDA_ERROR_OUT_OF_MEMORY) return "cudaErrorMemoryAllocation";
    if (e == CUDA_ERROR_NOT_INITIALIZED) return "cudaErrorInitializationError";
    cuGetErrorName((CUresult)e, &text);
    return text;
}

/* ---- memory */
RT(cudaMalloc)(void **p, size_t n) { CALL(n ? cuMemAlloc((CUdeviceptr *)p, n) : (*p = NULL, CUDA_SUCCESS)); }
RT(cudaMallocAsync)(void **p, size_t n, void *s) { (void)s; return simrt_cudaMalloc(p, n); }
RT(cudaMallocFromPoolAsync)(void **p, size_t n, void *pool, void *s) { (void)pool; (void)s; return simrt_cudaMalloc(p, n); }
RT(cudaMallocManaged)(void **p, size_t n, unsigned flags) { (void)flags; return simrt_cudaMalloc(p, n); }
RT(cudaFree)(void *p) { CALL(p ? cuMemFree((CUdeviceptr)p) : CUDA_SUCCESS); }
RT(cudaFreeAsync)(void *p, CUstream s) { CALL(cuMemFreeAsync((CUdeviceptr)p, s)); }
RT(cudaFreeHost)(void *p) { CALL(cuMemFreeHost(p)); }
RT(cudaHostAlloc)(void **p, size_t n, unsigned flags) { CALL(cuMemHostAlloc(p, n, flags)); }
RT(cudaMallocHost)(void **p, size_t n) { CALL(cuMemHostAlloc(p, n, 0)); }
RT(cudaHostRegister)(void *p, size_t n, unsigned flags) { CALL(cuMemHostRegister(p, n, flags)); }
RT(cudaHostUnregister)(void *p) { CALL(cuMemHostUnregister(p)); }
RT(cudaHostGetDevicePointer)(void **d, void *p, unsigned flags) { (void)flags; *d = p; return 0; }
RT(cudaMemGetInfo)(size_t *left, size_t *total) { CALL(cuMemGetInfo(left, total)); }
RT(cudaMemset)(void *p, int v, size_t n) { CALL(cuMemsetD8((CUdeviceptr)p, (unsigned char)v, n)); }
RT(cudaMemsetAsync)(void *p, int v, size_t n, CUstream s) { CALL(cuMemsetD8Async((CUdeviceptr)p, (unsigned char)v, n, s)); }
RT(cudaMemcpy)(void *d, const void *s, size_t n, int kind) { (void)kind; CALL(cuMemcpy((CUdeviceptr)d, (CUdeviceptr)s, n)); }
RT(cudaMemcpyAsync)(void *d, const void *s, size_t n, int kind, CUstream t) { (void)kind; CALL(cuMemcpyAsync((CUdeviceptr)d, (CUdeviceptr)s, n, t)); }
RT(cudaMemcpyPeerAsync)(void *d, int to, const void *s, int from, size_t n, CUstream t) { (void)to; (void)from; CALL(cuMemcpyAsync((CUdeviceptr)d, (CUdeviceptr)s, n, t)); }
RT(cudaPointerGetAttributes)(struct cudaPointerAttributes *out, const void *p) {
    Memory memory;
    READY;
    int found = sim_find((uintptr_t)p, &memory), host = !found || memory.gpu < 0;
    out->type = !found ? cudaMemoryTypeUnregistered : host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    out->device = found ? memory.ordinal : -2;
    out->devicePointer = found ? (void *)p : NULL;
    out->hostPointer = host ? (void *)p : NULL;
    return 0;
}
RT(cudaIpcGetMemHandle)(CUipcMemHandle *handle, void *p) { CALL(cuIpcGetMemHandle(handle, (CUdeviceptr)p)); }
RT(cudaIpcOpenMemHandle)(void **p, CUipcMemHandle handle, unsigned flags) { CALL(cuIpcOpenMemHandle((CUdeviceptr *)p, handle, flags)); }
RT(cudaIpcCloseMemHandle)(void *p) { CALL(cuIpcCloseMemHandle((CUdeviceptr)p)); }
RT(cudaMemPoolCreate)(void **out, const void *p) { return keep(cuMemPoolCreate((CUmemoryPool *)out, p)); }
RT(cudaMemPoolDestroy)(void *p) { (void)p; return 0; }
RT(cudaMemPoolSetAttribute)(void *p, int a, void *v) { (void)p; (void)a; (void)v; return 0; }

/* ---- streams and events */
RT(cudaStreamCreate)(CUstream *s) { CALL(cuStreamCreate(s, 0)); }
RT(cudaStreamCreateWithFlags)(CUstream *s, unsigned flags) { CALL(cuStreamCreate(s, flags)); }
RT(cudaStreamCreateWithPriority)(CUstream *s, unsigned flags, int priority) { CALL(cuStreamCreateWithPriority(s, flags, priority)); }
RT(cudaStreamDestroy)(CUstream s) { CALL(cuStreamDestroy(s)); }
RT(cudaStreamSynchronize)(CUstream s) { CALL(cuStreamSynchronize(s)); }
RT(cudaStreamQuery)(CUstream s) { CALL(cuStreamQuery(s)); }
RT(cudaStreamWaitEvent)(CUstream s, CUevent e, unsigned flags) { CALL(cuStreamWaitEvent(s, e, flags)); }
RT(cudaStreamGetId)(CUstream s, unsigned long long *id) { CALL(cuStreamGetId(s, id)); }
RT(cudaStreamGetPriority)(CUstream s, int *p) { CALL(cuStreamGetPriority(s, p)); }
RT(cudaStreamIsCapturing)(CUstream s, int *c) { return keep(cuStreamIsCapturing(s, (CUstreamCaptureStatus *)c)); }
static Error no_capture(int *status, unsigned long long *id) {
    *status = 0;
    if (id) *id = 0;
    return 0;
}
RT(cudaStreamGetCaptureInfo)(CUstream s, int *c, unsigned long long *id) { (void)s; return no_capture(c, id); }
RT(cudaStreamGetCaptureInfo_v2)(CUstream s, int *c, unsigned long long *id) { (void)s; return no_capture(c, id); }
RT(cudaStreamGetCaptureInfo_v3)(CUstream s, int *c, unsigned long long *id) { (void)s; return no_capture(c, id); }
RT(cudaThreadExchangeStreamCaptureMode)(int *mode) { return keep(cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)mode)); }
RT(cudaEventCreate)(CUevent *e) { CALL(cuEventCreate(e, 0)); }
RT(cudaEventCreateWithFlags)(CUevent *e, unsigned flags) { CALL(cuEventCreate(e, flags)); }
RT(cudaEventDestroy)(CUevent e) { CALL(cuEventDestroy(e)); }
RT(cudaEventRecord)(CUevent e, CUstream s) { CALL(cuEventRecord(e, s)); }
RT(cudaEventRecordWithFlags)(CUevent e, CUstream s, unsigned flags) { (void)flags; CALL(cuEventRecord(e, s)); }
RT(cudaEventQuery)(CUevent e) { CALL(cuEventQuery(e)); }
RT(cudaEventSynchronize)(CUevent e) { CALL(cuEventSynchronize(e)); }
RT(cudaEventElapsedTime)(float *ms, CUevent a, CUevent b) { CALL(cuEventElapsedTime(ms, a, b)); }
RT(cudaLaunchHostFunc)(CUstream s, CUhostFn function, void *data) { CALL(cuLaunchHostFunc(s, function, data)); }

/* ---- kernels */
static const char *name_of(const void *f) {
    const char *name = sim_registered_name(f);
    return name ? name : sim_symbol_name(f);
}
RT(cudaFuncGetAttributes)(struct cudaFuncAttributes *out, const void *f) {
    (void)f;
    READY;
    /* The members that CUDA 12 and 13 have at the same places; the rest is not ours to write. */
    memset(out, 0, offsetof(struct cudaFuncAttributes, cacheModeCA));
    out->maxThreadsPerBlock = 640;
    out->numRegs = 96;
    out->ptxVersion = out->binaryVersion = sim_gpu(sim_ordinal())->major * 10;
    return 0;
}
RT(cudaFuncSetAttribute)(const void *f, int a, int v) { (void)f; (void)a; (void)v; return 0; }
RT(cudaGetFuncBySymbol)(void **out, const void *f) { *out = sim_function(name_of(f)); return 0; }
typedef struct { unsigned x, y, z; } Dim;
RT(cudaLaunchKernelExC)(const cudaLaunchConfig_t *c, const void *f, void **arguments) {
    Function *function = sim_function(name_of(f));
    CALL(sim_launch(function, c->gridDim.x, arguments, NULL, (CUstream)c->stream));
}
RT(cudaLaunchKernel)(const void *f, Dim grid, Dim block, void **arguments, size_t shared, CUstream s) {
    (void)block; (void)shared;
    Function *function = sim_function(name_of(f));
    CALL(sim_launch(function, grid.x, arguments, NULL, s));
}
RT(cudaGetDriverEntryPoint)(const char *name, void **out, unsigned long long flags, int *status) {
    (void)flags;
    *out = sim_driver_function(name, 12080);
    if (status) *status = 0;
    return 0;
}
RT(cudaGetDriverEntryPointByVersion)(const char *name, void **out, unsigned version, unsigned long long flags, int *status) {
    (void)flags;
    *out = sim_driver_function(name, (int)version);
    if (status) *status = 0;
    return 0;
}

/* The head, which is alike in CUDA 12 and 13; libcudart.so.12's own is in cudart.c. */
RT(cudaGetDeviceProperties)(struct cudaDeviceProp *out, int d) {
    CUresult entered = sim_enter();
    const Gpu *gpu = sim_gpu(d);
    if (entered || !gpu) return keep(entered ? entered : CUDA_ERROR_INVALID_DEVICE);
    memset(out, 0, offsetof(struct cudaDeviceProp, clockRate));
    snprintf(out->name, sizeof out->name, "%s", gpu->name);
    memcpy(&out->uuid, &gpu->uuid, sizeof out->uuid);
    out->totalGlobalMem = gpu->memory;
    out->warpSize = 32;
    out->maxThreadsPerBlock = 1024;
    return 0;
}
RT(cudaGetDeviceProperties_v2)(struct cudaDeviceProp *out, int d) { return simrt_cudaGetDeviceProperties(out, d); }
