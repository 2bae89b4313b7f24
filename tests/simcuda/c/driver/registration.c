/* What a program compiled by nvcc tells the runtime of its kernels, so that a launch can be told by name. Only torch's come here. */
#include "simcuda.h"

#include <stdlib.h>
#include <string.h>

#define RT(result, name) API result simrt_##name
typedef struct { const void *host; const char *name; } Registered;
typedef struct { unsigned x, y, z; } Dim;
static Registered *registered;
static size_t count, room;
static int sorted;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

RT(void **, __cudaRegisterFatBinary)(void *binary) {
    static void *handle[4];
    (void)binary;
    return handle;
}
RT(void, __cudaRegisterFatBinaryEnd)(void **handle) { (void)handle; }
RT(void, __cudaUnregisterFatBinary)(void **handle) { (void)handle; }
RT(void, __cudaRegisterVar)(void) {}
RT(void, __cudaRegisterManagedVar)(void) {}
RT(char, __cudaInitModule)(void **handle) { (void)handle; return 1; }
RT(void, __cudaRegisterFunction)(void **handle, const void *host, char *device, const char *name) {
    (void)handle; (void)device;
    pthread_mutex_lock(&lock);
    if (count == room) registered = realloc(registered, (room = room ? 2 * room : 4096) * sizeof *registered);
    registered[count++] = (Registered){host, name};
    sorted = 0;
    pthread_mutex_unlock(&lock);
}

static int by_address(const void *a, const void *b) {
    const Registered *x = a, *y = b;
    return x->host < y->host ? -1 : x->host > y->host;
}
const char *sim_registered_name(const void *host) {
    Registered wanted = {host, NULL};
    pthread_mutex_lock(&lock);
    if (!sorted) qsort(registered, count, sizeof *registered, by_address);
    sorted = 1;
    Registered *found = count ? bsearch(&wanted, registered, count, sizeof *registered, by_address) : NULL;
    pthread_mutex_unlock(&lock);
    return found ? found->name : NULL;
}

/* kernel<<<grid, block, shared, stream>>>(...) */
static __thread struct { Dim grid, block; size_t shared; void *stream; } pushed;
RT(unsigned, __cudaPushCallConfiguration)(Dim grid, Dim block, size_t shared, void *stream) {
    pushed.grid = grid;
    pushed.block = block;
    pushed.shared = shared;
    pushed.stream = stream;
    return 0;
}
RT(int, __cudaPopCallConfiguration)(Dim *grid, Dim *block, size_t *shared, void **stream) {
    *grid = pushed.grid;
    *block = pushed.block;
    *shared = pushed.shared;
    *stream = pushed.stream;
    return 0;
}
RT(int, __cudaGetKernel)(void **kernel, const void *host) { *kernel = (void *)host; return 0; }
RT(int, cudaLaunchKernel)(const void *, Dim, Dim, void **, size_t, CUstream);
RT(int, __cudaLaunchKernel)(const void *f, Dim grid, Dim block, void **arguments, size_t shared, CUstream s) {
    return simrt_cudaLaunchKernel(f, grid, block, arguments, shared, s);
}
RT(int, cudaOccupancyMaxActiveBlocksPerMultiprocessor)(int *out, const void *f, int block, size_t shared) { (void)f; (void)block; (void)shared; *out = 2; return 0; }
RT(int, cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(int *out, const void *f, int block, size_t shared, unsigned flags) { (void)f; (void)block; (void)shared; (void)flags; *out = 2; return 0; }
