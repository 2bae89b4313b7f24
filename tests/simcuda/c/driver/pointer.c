/* What a pointer is, and copies and fills between them. */
#include "simcuda.h"

#include <stdlib.h>
#include <string.h>

static CUresult answer(void *out, CUpointer_attribute attribute, CUdeviceptr p) {
    Memory memory = {0};
    int found = sim_find(p, &memory), host = found && memory.gpu < 0;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(void **)out = NULL;
        return found ? cuDevicePrimaryCtxRetain(out, memory.ordinal) : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)out = !found ? 0 : host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)out = found ? p : 0; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: *(CUdeviceptr *)out = !found || host ? p : 0; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)out = 0; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: *(unsigned *)out = 0; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)out = found ? memory.ordinal : -2; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(unsigned long long *)out = found ? memory.base : 0; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)out = found ? memory.base : 0; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)out = found ? memory.size : 0; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED: *(unsigned *)out = (unsigned)found; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: *(unsigned *)out = found && memory.kind == MEMORY_DEVICE; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: *(unsigned long long *)out = found && memory.kind == MEMORY_MAPPED; return CUDA_SUCCESS;
    default: sim_log(0, "pointer attribute %d is not simulated: refused", attribute); return CUDA_ERROR_NOT_SUPPORTED;
    }
}

API CUresult cuPointerGetAttribute(void *out, CUpointer_attribute attribute, CUdeviceptr p) { ENTER; return answer(out, attribute, p); }
API CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **out, CUdeviceptr p) {
    ENTER;
    for (unsigned i = 0; i < count; i++) answer(out[i], attributes[i], p);
    return CUDA_SUCCESS;
}
API CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr p) {
    (void)value; (void)p;
    return attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

typedef struct { uintptr_t to, from; size_t count; unsigned value; int width; } Transfer;

static void copy_now(void *argument) {
    Transfer *t = argument;
    sim_move((void *)t->to, (const void *)t->from, t->count);
    free(t);
}
static void fill_now(void *argument) {
    Transfer *t = argument;
    sim_fill(t->to, t->value, t->width, t->count);
    free(t);
}
static CUresult start(Work work, Transfer transfer, CUstream stream, int wait) {
    Transfer *kept = malloc(sizeof *kept);
    *kept = transfer;
    return sim_run(stream, work, kept, wait);
}

/* A copy that touches memory which is not pinned is done when the call returns, as CUDA's is. */
static CUresult copy(uintptr_t to, uintptr_t from, size_t size, CUstream stream, int wait) {
    Memory memory;
    if (!size) return CUDA_SUCCESS;
    return start(copy_now, (Transfer){.to = to, .from = from, .count = size}, stream, wait || !sim_find(to, &memory) || !sim_find(from, &memory));
}
#define AT(p) ((uintptr_t)(p))
API CUresult cuMemcpy(CUdeviceptr d, CUdeviceptr s, size_t n) { return copy(d, s, n, NULL, 1); }
API CUresult cuMemcpyAsync(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream t) { return copy(d, s, n, t, 0); }
API CUresult cuMemcpyHtoD(CUdeviceptr d, const void *s, size_t n) { return copy(d, AT(s), n, NULL, 1); }
API CUresult cuMemcpyHtoDAsync(CUdeviceptr d, const void *s, size_t n, CUstream t) { return copy(d, AT(s), n, t, 0); }
API CUresult cuMemcpyDtoH(void *d, CUdeviceptr s, size_t n) { return copy(AT(d), s, n, NULL, 1); }
API CUresult cuMemcpyDtoHAsync(void *d, CUdeviceptr s, size_t n, CUstream t) { return copy(AT(d), s, n, t, 0); }
API CUresult cuMemcpyDtoD(CUdeviceptr d, CUdeviceptr s, size_t n) { return copy(d, s, n, NULL, 1); }
API CUresult cuMemcpyDtoDAsync(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream t) { return copy(d, s, n, t, 0); }
API CUresult cuMemcpyPeerAsync(CUdeviceptr d, CUcontext dc, CUdeviceptr s, CUcontext sc, size_t n, CUstream t) {
    (void)dc; (void)sc;
    return copy(d, s, n, t, 0);
}
#define FILL(p, v, w, n, s, wait) start(fill_now, (Transfer){.to = (p), .value = (v), .width = (w), .count = (n)}, s, wait)
API CUresult cuMemsetD8(CUdeviceptr p, unsigned char v, size_t n) { return FILL(p, v, 1, n, NULL, 1); }
API CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char v, size_t n, CUstream s) { return FILL(p, v, 1, n, s, 0); }
API CUresult cuMemsetD16(CUdeviceptr p, unsigned short v, size_t n) { return FILL(p, v, 2, n, NULL, 1); }
API CUresult cuMemsetD16Async(CUdeviceptr p, unsigned short v, size_t n, CUstream s) { return FILL(p, v, 2, n, s, 0); }
API CUresult cuMemsetD32(CUdeviceptr p, unsigned v, size_t n) { return FILL(p, v, 4, n, NULL, 1); }
API CUresult cuMemsetD32Async(CUdeviceptr p, unsigned v, size_t n, CUstream s) { return FILL(p, v, 4, n, s, 0); }
