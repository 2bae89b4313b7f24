/* libcudart.so.12: the runtime's names (written by cudart.py) lead to libcuda.so.1; what only a whole CUDA 12 has is here. */
#include "simcuda.h"

#include <driver_types.h>
#include <stdio.h>
#include <string.h>
#undef cudaGetDeviceProperties

extern int simrt_cudaGetDeviceCount(int *);

API int cudaGetDeviceProperties_v2(struct cudaDeviceProp *out, int d) {
    int count = 0, value;
    CUuuid uuid;
    int code = simrt_cudaGetDeviceCount(&count);
    if (code || d < 0 || d >= count) return code ? code : CUDA_ERROR_INVALID_DEVICE;
    memset(out, 0, sizeof *out);
    cuDeviceGetName(out->name, sizeof out->name, d);
    cuDeviceGetUuid_v2(&uuid, d);
    memcpy(&out->uuid, &uuid, sizeof out->uuid);
    cuDeviceTotalMem(&out->totalGlobalMem, d);
#define IS(member, attribute) do { cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_##attribute, d); out->member = value; } while (0)
    IS(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK);
    IS(regsPerBlock, MAX_REGISTERS_PER_BLOCK);
    IS(warpSize, WARP_SIZE);
    IS(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK);
    IS(maxThreadsDim[0], MAX_BLOCK_DIM_X);
    IS(maxThreadsDim[1], MAX_BLOCK_DIM_Y);
    IS(maxThreadsDim[2], MAX_BLOCK_DIM_Z);
    IS(maxGridSize[0], MAX_GRID_DIM_X);
    IS(maxGridSize[1], MAX_GRID_DIM_Y);
    IS(maxGridSize[2], MAX_GRID_DIM_Z);
    IS(major, COMPUTE_CAPABILITY_MAJOR);
    IS(minor, COMPUTE_CAPABILITY_MINOR);
    IS(multiProcessorCount, MULTIPROCESSOR_COUNT);
    IS(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR);
    IS(pciBusID, PCI_BUS_ID);
    IS(pciDeviceID, PCI_DEVICE_ID);
    IS(pciDomainID, PCI_DOMAIN_ID);
    IS(l2CacheSize, L2_CACHE_SIZE);
    IS(memoryClockRate, MEMORY_CLOCK_RATE);
    IS(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH);
    IS(clockRate, CLOCK_RATE);
    IS(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    IS(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    IS(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR);
    out->unifiedAddressing = out->managedMemory = out->concurrentKernels = out->streamPrioritiesSupported = 1;
    out->canMapHostMemory = 1;
    out->asyncEngineCount = 3;
    return 0;
}
API int cudaGetDeviceProperties(struct cudaDeviceProp *out, int d) { return cudaGetDeviceProperties_v2(out, d); }
