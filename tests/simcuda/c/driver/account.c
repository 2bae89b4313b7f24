/* Who has how much of each GPU: a table in a file beside the machine's, since a GPU is shared by processes. */
#include "simcuda.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SEATS = 256 };
typedef struct { pid_t pid; int gpu; size_t bytes; } Seat;

static Seat *table;
static int file = -1;
static pid_t opened_in;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int ready(void) {
    char path[PATH_MAX];
    const char *named = sim_setting("STATE");
    if (table && opened_in == getpid()) return 1;
    if (file >= 0 && opened_in != getpid()) close(file); /* a lock of flock belongs to the open file, which a fork shares */
    if (named) snprintf(path, sizeof path, "%s", named);
    else snprintf(path, sizeof path, "%.4000s.state", sim_machine_path());
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0 || ftruncate(file, SEATS * sizeof *table)) {
        sim_log(0, "GPU memory is counted in this process only: %s can't be written", path);
        file = -1;
    }
    void *mapped = mmap(NULL, SEATS * sizeof *table, PROT_READ | PROT_WRITE, file < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) return 0;
    table = mapped;
    opened_in = getpid();
    return 1;
}

static int begin(void) {
    pthread_mutex_lock(&lock);
    if (!ready()) return 0;
    if (file >= 0) flock(file, LOCK_EX);
    return 1;
}

static void end(void) {
    if (file >= 0) flock(file, LOCK_UN);
    pthread_mutex_unlock(&lock);
}

static size_t sum(int gpu) {
    size_t total = 0;
    for (Seat *seat = table; seat < table + SEATS; seat++) {
        if (seat->pid && kill(seat->pid, 0) && errno == ESRCH) *seat = (Seat){0};
        if (seat->pid && seat->gpu == gpu) total += seat->bytes;
    }
    return total;
}

static Seat *seat_of(int gpu) {
    Seat *empty = NULL;
    for (Seat *seat = table; seat < table + SEATS; seat++) {
        if (seat->pid == getpid() && seat->gpu == gpu) return seat;
        if (!seat->pid && !empty) empty = seat;
    }
    if (empty) *empty = (Seat){getpid(), gpu, 0};
    return empty;
}

static size_t taken_by_others(int gpu) {
    long mib = 0;
    if (!sim_is_chosen("GPU_FULL", gpu, &mib)) return 0;
    return mib ? (size_t)mib * MIB : SIZE_MAX / 2;
}

static size_t capacity(int gpu) {
    for (int i = 0; i < sim_gpu_count(); i++)
        if (sim_gpu(i)->index == gpu) return sim_gpu(i)->memory;
    return 0;
}

CUresult sim_charge(int gpu, size_t bytes) {
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (begin()) {
        size_t used = sum(gpu) + taken_by_others(gpu), all = capacity(gpu);
        Seat *seat = used <= all && bytes <= all - used ? seat_of(gpu) : NULL;
        if (seat) {
            seat->bytes += bytes;
            result = CUDA_SUCCESS;
        } else {
            sim_log(1, "GPU %d is out of memory: %zu bytes wanted, %zu of %zu used", gpu, bytes, used, all);
        }
    }
    end();
    return result;
}

void sim_credit(int gpu, size_t bytes) {
    if (begin()) {
        sum(gpu);
        Seat *seat = seat_of(gpu);
        if (seat) seat->bytes = seat->bytes > bytes ? seat->bytes - bytes : 0;
    }
    end();
}

size_t sim_used(int gpu) {
    size_t used = begin() ? sum(gpu) + taken_by_others(gpu) : 0;
    end();
    size_t all = capacity(gpu);
    return used < all ? used : all;
}
