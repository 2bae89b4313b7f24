/* Memory that other processes map: legacy IPC handles, cuMem handles over file descriptors, multicast objects. */
#include "simcuda.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* As with an IOMMU that redirects peer traffic: the mapping is made, and what is written there arrives nowhere. */
static int mapping_of(int owner) {
    const Gpu *mine = sim_gpu(sim_ordinal());
    return owner >= 0 && mine && sim_peer_fault(mine->index, owner) == FAULT_LOSES ? MAP_PRIVATE : MAP_SHARED;
}

/* The handle names the process and its descriptor; whoever opens it goes through /proc. */
typedef struct { uint32_t magic; int pid, fd, gpu; uint64_t size; } IpcHandle;
enum { IPC_MAGIC = 0x51c0da01 };

API CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr p) {
    ENTER;
    Memory memory;
    if (!sim_find(p, &memory) || memory.kind != MEMORY_DEVICE || memory.peer) return CUDA_ERROR_INVALID_VALUE;
    IpcHandle mine = {IPC_MAGIC, getpid(), memory.fd, memory.gpu, memory.size};
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &mine, sizeof mine);
    return CUDA_SUCCESS;
}

API CUresult cuIpcOpenMemHandle(CUdeviceptr *p, CUipcMemHandle handle, unsigned flags) {
    (void)flags;
    ENTER;
    IpcHandle theirs;
    char path[64];
    memcpy(&theirs, &handle, sizeof theirs);
    const Gpu *mine = sim_gpu(sim_ordinal());
    if (theirs.magic != IPC_MAGIC) return CUDA_ERROR_INVALID_VALUE;
    if (mine->index != theirs.gpu && !sim_can_access(mine->index, theirs.gpu)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", theirs.pid, theirs.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
    void *at = mmap(NULL, theirs.size, PROT_READ | PROT_WRITE, mapping_of(theirs.gpu), fd, 0);
    if (at == MAP_FAILED) {
        close(fd);
        return CUDA_ERROR_MAP_FAILED;
    }
    sim_remember((Memory){.base = (uintptr_t)at, .size = theirs.size, .fd = fd, .kind = MEMORY_DEVICE, .ordinal = sim_ordinal(), .gpu = theirs.gpu, .peer = 1});
    *p = (CUdeviceptr)at;
    DONE("cuIpcOpenMemHandle: GPU %d's, %lu bytes", theirs.gpu, (unsigned long)theirs.size);
}
API CUresult cuIpcCloseMemHandle(CUdeviceptr p) { return sim_release(p); }

/* ---- cuMem: a handle is a memfd, counted */
typedef struct { int fd, uses, gpu, peer; size_t size; CUmemAllocationProp properties; } Handle;
typedef struct Mapped { uintptr_t base; Handle *handle; struct Mapped *next; } Mapped;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Mapped *mapped;

static CUresult create(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *properties, int charge) {
    const Gpu *gpu = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? sim_gpu(properties->location.id) : NULL;
    CUresult result = gpu && charge ? sim_charge(gpu->index, size) : CUDA_SUCCESS;
    if (result) return result;
    int fd = sim_memfd(gpu ? gpu->index : -1);
    if (fd < 0 || ftruncate(fd, (off_t)size)) {
        if (fd >= 0) close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    Handle *made = calloc(1, sizeof *made);
    *made = (Handle){.fd = fd, .uses = 1, .gpu = gpu ? gpu->index : -1, .peer = !charge, .size = size, .properties = *properties};
    *out = (uintptr_t)made;
    return CUDA_SUCCESS;
}

API CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *p, CUmemAllocationGranularity_flags f) {
    (void)p; (void)f;
    *out = GRANULARITY;
    return CUDA_SUCCESS;
}
API CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *properties, unsigned long long flags) {
    (void)flags;
    ENTER;
    if (!size || size % GRANULARITY) return CUDA_ERROR_INVALID_VALUE;
    if (properties->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED; /* fabric handles */
    return create(out, size, properties, 1);
}
static void drop(Handle *handle) {
    pthread_mutex_lock(&lock);
    int left = --handle->uses;
    pthread_mutex_unlock(&lock);
    if (left) return;
    close(handle->fd);
    if (!handle->peer && handle->gpu >= 0) sim_credit(handle->gpu, handle->size);
    free(handle);
}
API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) { ENTER; drop((Handle *)handle); return CUDA_SUCCESS; }
API CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags) {
    (void)flags;
    ENTER;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    *(int *)out = fcntl(((Handle *)handle)->fd, F_DUPFD_CLOEXEC, 3);
    return *(int *)out < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}
API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *shared, CUmemAllocationHandleType type) {
    ENTER;
    struct stat facts;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    int fd = fcntl((int)(intptr_t)shared, F_DUPFD_CLOEXEC, 3), owner = fd < 0 ? -2 : sim_memfd_owner(fd);
    if (owner == -2 || fstat(fd, &facts)) {
        if (fd >= 0) close(fd);
        return CUDA_ERROR_INVALID_VALUE;
    }
    Handle *made = calloc(1, sizeof *made);
    *made = (Handle){.fd = fd, .uses = 1, .gpu = owner, .peer = 1, .size = (size_t)facts.st_size};
    made->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    made->properties.requestedHandleTypes = type;
    made->properties.location.type = owner < 0 ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
    *out = (uintptr_t)made;
    DONE("cuMemImportFromShareableHandle: of GPU %d, %zu bytes", owner, made->size);
}
API CUresult cuMemAddressReserve(CUdeviceptr *p, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long flags) {
    (void)hint; (void)flags;
    ENTER;
    size_t to = alignment > GRANULARITY ? alignment : GRANULARITY;
    char *at = mmap(NULL, size + to, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    char *used = (char *)ALIGN_UP((uintptr_t)at, to);
    if (used > at) munmap(at, (size_t)(used - at));
    if (at + to > used) munmap(used + size, (size_t)(at + to - used));
    *p = (CUdeviceptr)used;
    return CUDA_SUCCESS;
}
API CUresult cuMemAddressFree(CUdeviceptr p, size_t size) { munmap((void *)p, size); return CUDA_SUCCESS; }

API CUresult cuMemMap(CUdeviceptr p, size_t size, size_t offset, CUmemGenericAllocationHandle of, unsigned long long flags) {
    (void)flags;
    ENTER;
    Handle *handle = (Handle *)of;
    int how = handle->peer ? mapping_of(handle->gpu) : MAP_SHARED;
    if (offset + size > handle->size) return CUDA_ERROR_INVALID_VALUE;
    if (mmap((void *)p, size, PROT_READ | PROT_WRITE, how | MAP_FIXED, handle->fd, (off_t)offset) == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
    sim_remember((Memory){.base = p, .size = size, .fd = -1, .kind = MEMORY_MAPPED, .ordinal = sim_ordinal(), .gpu = handle->gpu, .peer = handle->peer});
    Mapped *made = malloc(sizeof *made);
    pthread_mutex_lock(&lock);
    handle->uses++;
    *made = (Mapped){p, handle, mapped};
    mapped = made;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static Handle *take_mapped(uintptr_t base, int keep) {
    Handle *found = NULL;
    pthread_mutex_lock(&lock);
    for (Mapped **at = &mapped; *at && !found; at = &(*at)->next)
        if ((*at)->base == base) {
            found = (*at)->handle;
            if (keep) {
                found->uses++;
                break;
            }
            Mapped *gone = *at;
            *at = gone->next;
            free(gone);
            break;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

API CUresult cuMemUnmap(CUdeviceptr p, size_t size) {
    ENTER;
    Memory gone;
    Handle *handle = take_mapped(p, 0);
    if (!handle || !sim_forget(p, &gone)) return CUDA_ERROR_INVALID_VALUE;
    mmap((void *)p, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    drop(handle);
    return CUDA_SUCCESS;
}
API CUresult cuMemSetAccess(CUdeviceptr p, size_t size, const CUmemAccessDesc *wanted, size_t count) {
    (void)size;
    ENTER;
    Memory memory;
    if (!sim_find(p, &memory)) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        const Gpu *gpu = wanted[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE ? sim_gpu(wanted[i].location.id) : NULL;
        if (gpu && memory.gpu >= 0 && gpu->index != memory.gpu && !sim_can_access(gpu->index, memory.gpu)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    return CUDA_SUCCESS;
}
API CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr p) {
    (void)location; (void)p;
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
}
API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *p) {
    ENTER;
    Memory memory;
    Handle *handle = sim_find((uintptr_t)p, &memory) ? take_mapped(memory.base, 1) : NULL;
    *out = (uintptr_t)handle;
    return handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *out, CUmemGenericAllocationHandle handle) {
    *out = ((Handle *)handle)->properties;
    return CUDA_SUCCESS;
}

/* ---- multicast (NVLS): the object exists; no kernel that uses it is simulated, so its bytes are nobody's */
API CUresult cuMulticastCreate(CUmemGenericAllocationHandle *out, const CUmulticastObjectProp *wanted) {
    ENTER;
    CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = (CUmemAllocationHandleType)wanted->handleTypes};
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = sim_ordinal();
    return create(out, wanted->size, &p, 0);
}
API CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice d) { (void)handle; ENTER; return sim_gpu(d) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE; }
/* SIMCUDA_NVLS=cannot-bind: what a fabric without its manager answers, CUDA error 401 in NCCL's log. */
static CUresult bind(void) {
    const char *how = sim_setting("NVLS");
    return how && !strcmp(how, "cannot-bind") ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
}
API CUresult cuMulticastBindMem(CUmemGenericAllocationHandle h, size_t o, CUmemGenericAllocationHandle m, size_t mo, size_t n, unsigned long long f) {
    (void)h; (void)o; (void)m; (void)mo; (void)n; (void)f;
    ENTER;
    return bind();
}
API CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle h, size_t o, CUdeviceptr p, size_t n, unsigned long long f) {
    (void)h; (void)o; (void)p; (void)n; (void)f;
    ENTER;
    return bind();
}
API CUresult cuMulticastUnbind(CUmemGenericAllocationHandle h, CUdevice d, size_t o, size_t n) { (void)h; (void)d; (void)o; (void)n; return CUDA_SUCCESS; }
API CUresult cuMulticastGetGranularity(size_t *out, const CUmulticastObjectProp *p, CUmulticastGranularity_flags f) { (void)p; (void)f; *out = GRANULARITY; return CUDA_SUCCESS; }
