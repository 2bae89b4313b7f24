/* Modules, kernels and launches. A kernel is its name; what no part of us computes is refused when it is launched. */
#include "simcuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Function *sim_function(const char *name) {
    Function *made = calloc(1, sizeof *made);
    snprintf(made->name, sizeof made->name, "%s", name ? name : "an unnamed kernel");
    return made;
}

static void *token(void) { return calloc(1, 64); }
API CUresult cuLibraryLoadData(CUlibrary *out, const void *code, CUjit_option *a, void **b, unsigned n, CUlibraryOption *o, void **p, unsigned m) {
    (void)code; (void)a; (void)b; (void)n; (void)o; (void)p; (void)m;
    ENTER;
    *out = token();
    return CUDA_SUCCESS;
}
API CUresult cuLibraryUnload(CUlibrary l) { free(l); return CUDA_SUCCESS; }
API CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary l, const char *name) { (void)l; *out = (CUkernel)sim_function(name); return CUDA_SUCCESS; }
API CUresult cuLibraryGetModule(CUmodule *out, CUlibrary l) { *out = (CUmodule)l; return CUDA_SUCCESS; }
API CUresult cuKernelGetFunction(CUfunction *out, CUkernel k) { *out = (CUfunction)k; return CUDA_SUCCESS; }
API CUresult cuFuncGetModule(CUmodule *out, CUfunction f) { (void)f; *out = token(); return CUDA_SUCCESS; }
API CUresult cuFuncLoad(CUfunction f) { (void)f; return CUDA_SUCCESS; }
API CUresult cuModuleLoadData(CUmodule *out, const void *image) { (void)image; ENTER; *out = token(); return CUDA_SUCCESS; }
API CUresult cuModuleUnload(CUmodule m) { free(m); return CUDA_SUCCESS; }
API CUresult cuModuleGetFunction(CUfunction *out, CUmodule m, const char *name) { (void)m; *out = (CUfunction)sim_function(name); return CUDA_SUCCESS; }

static int function_attribute(int attribute) {
    int sm = sim_device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, sim_gpu(sim_ordinal())) * 10;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return 640; /* of NCCL's kernels */
    case CU_FUNC_ATTRIBUTE_NUM_REGS: return 96;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: return sm;
    default: return 0;
    }
}
API CUresult cuFuncGetAttribute(int *out, CUfunction_attribute a, CUfunction f) { (void)f; *out = function_attribute((int)a); return CUDA_SUCCESS; }
API CUresult cuKernelGetAttribute(int *out, CUfunction_attribute a, CUkernel k, CUdevice d) { (void)k; (void)d; *out = function_attribute((int)a); return CUDA_SUCCESS; }
API CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) { (void)f; (void)a; (void)v; return CUDA_SUCCESS; }
API CUresult cuKernelSetAttribute(CUfunction_attribute a, int v, CUkernel k, CUdevice d) { (void)a; (void)v; (void)k; (void)d; return CUDA_SUCCESS; }
API CUresult cuFuncSetCacheConfig(CUfunction f, CUfunc_cache c) { (void)f; (void)c; return CUDA_SUCCESS; }
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *out, CUfunction f, int b, size_t s, unsigned x) {
    (void)f; (void)b; (void)s; (void)x;
    *out = 1;
    return CUDA_SUCCESS;
}

/* ---- memory pools: names, since an allocation in stream order is made at once */
API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice d) { static char only; (void)d; *out = (CUmemoryPool)&only; return CUDA_SUCCESS; }
API CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice d) { return cuDeviceGetDefaultMemPool(out, d); }
API CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *p) { (void)p; *out = token(); return CUDA_SUCCESS; }
API CUresult cuMemPoolDestroy(CUmemoryPool p) { (void)p; return CUDA_SUCCESS; }
API CUresult cuMemPoolSetAttribute(CUmemoryPool p, CUmemPool_attribute a, void *v) { (void)p; (void)a; (void)v; return CUDA_SUCCESS; }
API CUresult cuMemPoolGetAttribute(CUmemoryPool p, CUmemPool_attribute a, void *v) { (void)p; (void)a; *(uint64_t *)v = 0; return CUDA_SUCCESS; }
API CUresult cuMemPoolTrimTo(CUmemoryPool p, size_t n) { (void)p; (void)n; return CUDA_SUCCESS; }

/* ---- launches */
static CUresult slow_down(int gpu, CUstream stream) {
    long ms = 0;
    if (!sim_is_chosen("GPU_SLOW", gpu, &ms)) return CUDA_SUCCESS;
    return sim_sleep(stream, (ms ? ms : 20) * 1000000);
}

CUresult sim_launch(const Function *function, unsigned grid, void **parameters, void **extra, CUstream stream) {
    ENTER;
    int ordinal = sim_stream_ordinal(sim_stream(stream)), gpu = sim_gpu(ordinal)->index;
    CUresult result = sim_broken(ordinal);
    if (!result) result = slow_down(gpu, stream);
    if (result) return result;
    sim_count_launch(gpu);
    sim_log(2, "kernel %s, %u blocks", function->name, grid);
    void *arguments = extra ? extra[1] : parameters ? parameters[0] : NULL;
    int nccl = sim_nccl_launch(function, arguments, extra ? *(size_t *)extra[3] : 0, stream);
    if (nccl >= 0) return (CUresult)nccl;
    int torch = sim_torch_launch(function, parameters, stream);
    if (torch >= 0) return (CUresult)torch;
    int diagnosis = sim_diagnosis_launch(function, parameters, stream);
    if (diagnosis >= 0) return (CUresult)diagnosis;
    const char *kernels = sim_setting("KERNELS"); /* "ignored": whoever asks for connections only says so */
    if (kernels && !strcmp(kernels, "ignored")) {
        sim_log(1, "kernel %s is ignored: SIMCUDA_KERNELS", function->name);
        return CUDA_SUCCESS;
    }
    sim_log(0, "REFUSED: no kernel %s is simulated", function->name);
    return CUDA_ERROR_NOT_SUPPORTED;
}
API CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream s, void **p, void **extra) {
    (void)gy; (void)gz; (void)bx; (void)by; (void)bz; (void)shared;
    return sim_launch((Function *)f, gx, p, extra, s);
}
API CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **p, void **extra) {
    return sim_launch((Function *)f, c->gridDimX, p, extra, c->hStream);
}
