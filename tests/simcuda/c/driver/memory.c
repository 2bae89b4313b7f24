/* Device memory: host memory in memfds, so that other ranks can map it; a GPU's name is the memfd's. */
#include "simcuda.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CHANGED_EVERY = 4096 }; /* bytes: a page of a peer's that arrives changed has one bit wrong */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Memory *known;

int sim_memfd(int gpu) {
    char name[32];
    snprintf(name, sizeof name, gpu < 0 ? "simcuda-host" : "simcuda-gpu%d", gpu);
    return memfd_create(name, MFD_CLOEXEC);
}

int sim_memfd_owner(int fd) {
    char path[64], name[96] = "";
    int gpu;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (readlink(path, name, sizeof name - 1) < 0) return -2;
    if (strstr(name, "memfd:simcuda-host")) return -1;
    return sscanf(name, "/memfd:simcuda-gpu%d", &gpu) == 1 ? gpu : -2;
}

void sim_remember(Memory memory) {
    Memory *made = malloc(sizeof *made);
    *made = memory;
    pthread_mutex_lock(&lock);
    made->next = known;
    known = made;
    pthread_mutex_unlock(&lock);
}

int sim_forget(uintptr_t base, Memory *out) {
    int found = 0;
    pthread_mutex_lock(&lock);
    for (Memory **at = &known; *at && !found; at = &(*at)->next)
        if ((*at)->base == base) {
            Memory *gone = *at;
            *out = *gone;
            *at = gone->next;
            free(gone);
            found = 1;
            break;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

int sim_find(uintptr_t address, Memory *out) {
    int found = 0;
    pthread_mutex_lock(&lock);
    for (Memory *each = known; each && !found; each = each->next)
        if (address >= each->base && address - each->base < each->size) {
            *out = *each;
            found = 1;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

int sim_is_device(uintptr_t address) {
    Memory memory;
    return sim_find(address, &memory) && (memory.kind == MEMORY_DEVICE || memory.kind == MEMORY_MAPPED) && memory.gpu >= 0;
}

CUresult sim_allocate(void **out, size_t size, int kind) {
    ENTER;
    int ordinal = sim_ordinal(), gpu = kind == MEMORY_DEVICE ? sim_gpu(ordinal)->index : -1;
    if (!size) return CUDA_ERROR_INVALID_VALUE;
    size = ALIGN_UP(size, 4096);
    CUresult result = gpu < 0 ? CUDA_SUCCESS : sim_broken(ordinal);
    if (!result && gpu >= 0) result = sim_charge(gpu, size);
    if (result) return result;
    int fd = sim_memfd(gpu);
    void *at = fd < 0 || ftruncate(fd, (off_t)size) ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        if (fd >= 0) close(fd);
        if (gpu >= 0) sim_credit(gpu, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_remember((Memory){.base = (uintptr_t)at, .size = size, .fd = fd, .kind = kind, .ordinal = ordinal, .gpu = gpu, .charged = gpu < 0 ? 0 : size});
    *out = at;
    return CUDA_SUCCESS;
}

CUresult sim_release(uintptr_t base) {
    ENTER;
    Memory memory;
    if (!base) return CUDA_SUCCESS;
    if (!sim_forget(base, &memory)) return CUDA_ERROR_INVALID_VALUE;
    munmap((void *)memory.base, memory.size);
    if (memory.fd >= 0) close(memory.fd);
    if (memory.charged) sim_credit(memory.gpu, memory.charged);
    return CUDA_SUCCESS;
}

/* ---- copies */
static int fault_between(const Memory *to, int knows_to, const Memory *from, int knows_from, int gpu) {
    int a = knows_to ? to->gpu : -1, b = knows_from ? from->gpu : -1;
    if (gpu >= 0 && a >= 0 && a != gpu) return sim_peer_fault(gpu, a);
    if (gpu >= 0 && b >= 0 && b != gpu) return sim_peer_fault(gpu, b);
    if (gpu >= 0 || a < 0 || b < 0 || a == b || !sim_can_access(a, b)) return FAULT_NONE; /* without peer access it goes through the host */
    return sim_peer_fault(b, a); /* from the source to the target */
}

static void move(void *to, const void *from, size_t size, int gpu) {
    Memory target, source;
    int knows_to = sim_find((uintptr_t)to, &target), knows_from = sim_find((uintptr_t)from, &source);
    int fault = fault_between(&target, knows_to, &source, knows_from, gpu);
    if (gpu < 0 && knows_to && knows_from && target.gpu != source.gpu && sim_names_pair("COPY_HANGS", source.gpu, target.gpu)) for (;;) pause();
    if (fault == FAULT_LOSES && gpu < 0) return; /* a kernel's store is lost by the mapping itself, see sharing.c */
    memmove(to, from, size);
    if (size < (size_t)sim_number("CHANGES_FROM", 0)) fault = FAULT_NONE;
    for (size_t at = 0; fault == FAULT_CHANGES && at < size; at += CHANGED_EVERY) ((unsigned char *)to)[at] ^= 0x10;
}

void sim_move(void *to, const void *from, size_t size) { move(to, from, size, -1); }
void sim_store(void *to, const void *from, size_t size, int gpu) { move(to, from, size, gpu); }

CUresult sim_fill(uintptr_t to, unsigned value, int width, size_t count) {
    Memory memory;
    size_t bytes = count * (size_t)width;
    /* Zeroes of a whole buffer give its pages back: NCCL clears more than eight ranks could have here. */
    if (!value && bytes >= 65536 && sim_find(to, &memory) && memory.fd >= 0 && !memory.peer && memory.kind != MEMORY_MAPPED &&
        !fallocate(memory.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(to - memory.base), (off_t)bytes))
        return CUDA_SUCCESS;
    if (width == 1) memset((void *)to, (int)value, bytes);
    else if (width == 2) for (size_t i = 0; i < count; i++) ((uint16_t *)to)[i] = (uint16_t)value;
    else for (size_t i = 0; i < count; i++) ((uint32_t *)to)[i] = value;
    return CUDA_SUCCESS;
}

/* ---- the calls */
API CUresult cuMemAlloc(CUdeviceptr *p, size_t n) { return sim_allocate((void **)p, n, MEMORY_DEVICE); }
API CUresult cuMemFree(CUdeviceptr p) { sim_wait_device(sim_ordinal()); return sim_release(p); }
API CUresult cuMemAllocAsync(CUdeviceptr *p, size_t n, CUstream s) { (void)s; return cuMemAlloc(p, n); }
API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *p, size_t n, CUmemoryPool pool, CUstream s) { (void)pool; (void)s; return cuMemAlloc(p, n); }
API CUresult cuMemAllocManaged(CUdeviceptr *p, size_t n, unsigned flags) { (void)flags; return cuMemAlloc(p, n); }
static void free_later(void *p) { sim_release((uintptr_t)p); }
API CUresult cuMemFreeAsync(CUdeviceptr p, CUstream s) { return sim_run(s, free_later, (void *)p, 0); }
API CUresult cuMemHostAlloc(void **p, size_t n, unsigned flags) { (void)flags; return sim_allocate(p, n, MEMORY_HOST); }
API CUresult cuMemAllocHost(void **p, size_t n) { return sim_allocate(p, n, MEMORY_HOST); }
API CUresult cuMemFreeHost(void *p) { return sim_release((uintptr_t)p); }
API CUresult cuMemHostRegister(void *p, size_t n, unsigned flags) {
    (void)flags;
    ENTER;
    sim_remember((Memory){.base = (uintptr_t)p, .size = n, .fd = -1, .kind = MEMORY_REGISTERED, .ordinal = sim_ordinal(), .gpu = -1});
    return CUDA_SUCCESS;
}
API CUresult cuMemHostUnregister(void *p) {
    Memory gone;
    return sim_forget((uintptr_t)p, &gone) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}
API CUresult cuMemHostGetDevicePointer(CUdeviceptr *d, void *p, unsigned flags) { (void)flags; *d = (CUdeviceptr)p; return CUDA_SUCCESS; }
API CUresult cuMemHostGetFlags(unsigned *flags, void *p) { (void)p; *flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP; return CUDA_SUCCESS; }
API CUresult cuMemGetInfo(size_t *free_bytes, size_t *total) {
    ENTER;
    const Gpu *gpu = sim_gpu(sim_ordinal());
    *total = gpu->memory;
    *free_bytes = gpu->memory - sim_used(gpu->index);
    return CUDA_SUCCESS;
}
API CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *size, CUdeviceptr p) {
    Memory memory;
    if (!sim_find(p, &memory)) return CUDA_ERROR_NOT_FOUND;
    if (base) *base = memory.base;
    if (size) *size = memory.size;
    return CUDA_SUCCESS;
}
