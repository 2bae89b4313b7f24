/* Names to functions, and errors to names. */
#include "simcuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void *self(void) {
    static void *handle;
    Dl_info info;
    if (!handle && dladdr((void *)sim_driver_function, &info)) handle = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    return handle;
}

/* The newest form that a program for this CUDA version may know; a name that is not written refuses when it is called. */
void *sim_driver_function(const char *name, int version) {
    char full[160];
    void *found = NULL;
    if (!strcmp(name, "cuGetProcAddress") && version < 12000) return dlsym(self(), name);
    if (!strcmp(name, "cuCtxCreate")) name = "cuCtxCreate_v3";
    for (int form = version >= 12030 ? 3 : 2; form >= 2 && !found; form--) {
        snprintf(full, sizeof full, "%s_v%d", name, form);
        found = dlsym(self(), full);
    }
    if (!found) found = dlsym(self(), name);
    return found ? found : sim_refusal(name);
}

API CUresult cuGetProcAddress_v2(const char *name, void **out, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status) {
    (void)flags;
    *out = sim_driver_function(name, version);
    if (status) *status = CU_GET_PROC_ADDRESS_SUCCESS;
    return CUDA_SUCCESS;
}
#undef cuGetProcAddress
API CUresult cuGetProcAddress(const char *name, void **out, int version, cuuint64_t flags) { return cuGetProcAddress_v2(name, out, version, flags, NULL); }

/* CUDA's own words, for those that anything here returns. */
static const struct { CUresult error; const char *name, *words; } errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_MAP_FAILED, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
    {CUDA_ERROR_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};
static int place(CUresult error) {
    int last = (int)(sizeof errors / sizeof *errors) - 1;
    for (int i = 0; i < last; i++)
        if (errors[i].error == error) return i;
    return last;
}
API CUresult cuGetErrorString(CUresult error, const char **out) { *out = errors[place(error)].words; return CUDA_SUCCESS; }
API CUresult cuGetErrorName(CUresult error, const char **out) { *out = errors[place(error)].name; return CUDA_SUCCESS; }

/* NVIDIA's own runtime would come here. It never runs, see attach.c; and we do not pass for NVIDIA's driver. */
API CUresult cuGetExportTable(const void **out, const CUuuid *id) {
    (void)id;
    *out = NULL;
    sim_log(0, "REFUSED: cuGetExportTable");
    return CUDA_ERROR_NOT_FOUND;
}
