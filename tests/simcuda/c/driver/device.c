/* The GPUs: which of the machine's this process sees, and what CUDA says of them. */
#include "simcuda.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static Gpu all[MOST_GPUS], seen[MOST_GPUS];
static int all_count, seen_count;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pid_t initialised_in; /* 0: not yet */

static void read_gpu(Gpu *gpu, int i) {
    const char *bus = sim_answer("nvmlDeviceGetPciInfo/%d", i), *uuid = sim_answer("nvmlDeviceGetUUID/%d", i);
    const char *name = sim_answer("nvmlDeviceGetName/%d", i), *sm = sim_answer("nvmlDeviceGetCudaComputeCapability/%d", i);
    const char *memory = sim_answer("nvmlDeviceGetMemoryInfo/%d", i);
    long mib = sim_number("MEMORY_MIB", 0);
    gpu->index = i;
    if (bus) sscanf(bus, "%x:%x:%x", (unsigned *)&gpu->domain, (unsigned *)&gpu->bus, (unsigned *)&gpu->slot);
    snprintf(gpu->bdf, sizeof gpu->bdf, "%04x:%02x:%02x.0", gpu->domain & 0xffff, gpu->bus & 0xff, gpu->slot & 0xff);
    snprintf(gpu->uuid_text, sizeof gpu->uuid_text, "%s", uuid ? uuid : "");
    snprintf(gpu->name, sizeof gpu->name, "%s", name ? name : "GPU");
    int digits = 0;
    for (const char *c = strncmp(gpu->uuid_text, "GPU-", 4) ? "" : gpu->uuid_text + 4; *c && digits < 32; c++)
        if (isxdigit((unsigned char)*c)) {
            unsigned digit = (unsigned)(isdigit((unsigned char)*c) ? *c - '0' : tolower(*c) - 'a' + 10);
            unsigned char *byte = (unsigned char *)&gpu->uuid.bytes[digits / 2];
            *byte = (unsigned char)(*byte << 4 | digit);
            digits++;
        }
    gpu->major = 8;
    if (sm) sscanf(sm, "%d %d", &gpu->major, &gpu->minor);
    gpu->memory = mib ? (size_t)mib * MIB : memory ? strtoull(memory, NULL, 10) : 512 * MIB;
}

/* As CUDA reads it: by ordinal or by the beginning of a UUID that only one GPU has; what follows a wrong one is not seen. */
static int find_visible(const char *word) {
    if (!strncmp(word, "GPU-", 4)) {
        int found = -1;
        for (int i = 0; i < all_count; i++)
            if (!strncmp(all[i].uuid_text, word, strlen(word))) {
                if (found >= 0) return -1;
                found = i;
            }
        return found;
    }
    char *end;
    long number = strtol(word, &end, 10);
    return end != word && number >= 0 && number < all_count ? (int)number : -1;
}

static void look(void) {
    const char *count = sim_answer("nvmlDeviceGetCount"), *visible = getenv("CUDA_VISIBLE_DEVICES");
    all_count = count ? atoi(count) : 0;
    for (int i = 0; i < all_count && i < MOST_GPUS; i++) read_gpu(&all[i], i);
    if (!visible) {
        memcpy(seen, all, sizeof all);
        seen_count = all_count;
        return;
    }
    char *words = strdup(visible), *rest = NULL;
    for (char *word = strtok_r(words, ", ", &rest); word; word = strtok_r(NULL, ", ", &rest)) {
        int i = find_visible(word);
        if (i < 0) break;
        for (int k = 0; k < seen_count; k++)
            if (seen[k].index == i) { /* named twice: CUDA then shows no GPU at all */
                seen_count = 0;
                goto out;
            }
        seen[seen_count++] = all[i];
    }
out:
    free(words);
}

int sim_gpu_count(void) {
    pthread_once(&once, look);
    return seen_count;
}

const Gpu *sim_gpu(int ordinal) { return ordinal >= 0 && ordinal < sim_gpu_count() ? &seen[ordinal] : NULL; }

int sim_driver_version(void) {
    const char *text = sim_answer("nvmlSystemGetCudaDriverVersion");
    return (int)sim_number("DRIVER", text ? atoi(text) : 12080);
}

CUresult sim_enter(void) {
    if (initialised_in && initialised_in != getpid()) {
        sim_log(1, "refused: CUDA was initialised in process %d, before the fork", initialised_in);
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (!initialised_in) return cuInit(0);
    return CUDA_SUCCESS;
}

API CUresult cuInit(unsigned flags) {
    (void)flags;
    if (initialised_in && initialised_in != getpid()) return CUDA_ERROR_NOT_INITIALIZED;
    if (!sim_gpu_count()) return CUDA_ERROR_NO_DEVICE;
    initialised_in = getpid();
    return CUDA_SUCCESS;
}

API CUresult cuDriverGetVersion(int *version) { *version = sim_driver_version(); return CUDA_SUCCESS; }
API CUresult cuDeviceGetCount(int *count) { ENTER; *count = sim_gpu_count(); return CUDA_SUCCESS; }

#define GPU(ordinal) ENTER; const Gpu *gpu = sim_gpu(ordinal); if (!gpu) return CUDA_ERROR_INVALID_DEVICE
API CUresult cuDeviceGet(CUdevice *device, int ordinal) { GPU(ordinal); (void)gpu; *device = ordinal; return CUDA_SUCCESS; }
API CUresult cuDeviceGetName(char *name, int size, CUdevice d) { GPU(d); snprintf(name, (size_t)size, "%s", gpu->name); return CUDA_SUCCESS; }
API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice d) { GPU(d); *uuid = gpu->uuid; return CUDA_SUCCESS; }
API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice d) { return (cuDeviceGetUuid)(uuid, d); }
API CUresult cuDeviceTotalMem(size_t *bytes, CUdevice d) { GPU(d); *bytes = gpu->memory; return CUDA_SUCCESS; }
API CUresult cuDeviceGetPCIBusId(char *text, int size, CUdevice d) { GPU(d); snprintf(text, (size_t)size, "%s", gpu->bdf); return CUDA_SUCCESS; }
API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice d) {
    GPU(d);
    *value = sim_device_attribute((int)attribute, gpu);
    return CUDA_SUCCESS;
}
API CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text) {
    ENTER;
    int domain, bus, slot;
    if (sscanf(text, "%x:%x:%x", (unsigned *)&domain, (unsigned *)&bus, (unsigned *)&slot) != 3) return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < seen_count; i++)
        if (seen[i].domain == domain && seen[i].bus == bus && seen[i].slot == slot) {
            *device = i;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_DEVICE;
}

/* NVML's nvmlDeviceGetP2PStatus: 0 read, 1 write, 2 NVLink, 3 atomics, 4 PCI; 0 answers OK. */
int sim_p2p_status(int a, int b, int capability) {
    const char *text = sim_answer("nvmlDeviceGetP2PStatus/%d/%d/%d", a < b ? a : b, a < b ? b : a, capability);
    return text ? atoi(text) : 5;
}

int sim_can_access(int a, int b) {
    return a != b && sim_p2p_status(a, b, 0) == 0 && sim_p2p_status(a, b, 1) == 0 && !sim_names_pair("P2P_DENIED", a, b);
}

API CUresult cuDeviceCanAccessPeer(int *can, CUdevice a, CUdevice b) {
    ENTER;
    if (!sim_gpu(a) || !sim_gpu(b)) return CUDA_ERROR_INVALID_DEVICE;
    *can = sim_can_access(sim_gpu(a)->index, sim_gpu(b)->index);
    DONE("cuDeviceCanAccessPeer %d %d: %d", a, b, *can);
}
API CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice a, CUdevice b) {
    int can;
    CUresult result = cuDeviceCanAccessPeer(&can, a, b);
    if (result) return result;
    switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK: *value = can && sim_p2p_status(sim_gpu(a)->index, sim_gpu(b)->index, 2) == 0 ? 0 : 1; break;
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED: *value = can && sim_p2p_status(sim_gpu(a)->index, sim_gpu(b)->index, 3) == 0; break;
    default: *value = can;
    }
    return CUDA_SUCCESS;
}

int sim_device_attribute(int attribute, const Gpu *gpu) {
    int sm = gpu->major * 10 + gpu->minor;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: return 65535;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: return 1410000;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: return 1215000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: return 5120;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return 40 << 20;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return sm >= 90 ? 132 : 108;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return 49152;
    /* NCCL gives its kernels what these allow; they are those of sm 70, 80, 86 and 89, 90. */
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        return sm >= 90 ? 232448 : sm >= 86 ? 101376 : sm >= 80 ? 166912 : 98304;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        return sm >= 90 ? 233472 : sm >= 86 ? 102400 : sm >= 80 ? 167936 : 98304;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: return sm >= 80 ? 1024 : 0;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: return 65536;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return sm == 86 || sm == 89 ? 1536 : 2048;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: return 32;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return gpu->major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return gpu->minor;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return gpu->bus;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: return gpu->slot;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: return gpu->domain;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: return 1;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: return 3;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: return (int)sim_number("CUMEM", 1);
    /* NCCL up to 2.23 asks this before it uses cuMem. */
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED: return sim_number("CUMEM", 1) && !strstr(gpu->name, "GeForce");
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED: return (int)sim_number("GDR", 0); /* c/verbs writes this memory */
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: return 0;
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED: return sim_setting("NVLS") && strcmp(sim_setting("NVLS"), "0");
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: return sm >= 90;
    default: return 0; /* DMA-BUF and all that is not simulated */
    }
}
