/* N ranks of plain NCCL, a process each: a communicator, then the collectives that are named, and whether they were right.
 *
 * ranks N LIBNCCL LIBCUDA [COLLECTIVE[:ELEMENTS]...], with COLLECTIVE of all_reduce, all_gather, reduce_scatter, broadcast,
 * all_to_all, barrier (all float32). Environment: RANK_GPUS=2,3 the ranks' CUDA ordinals; RANK_NODES=2 so many nodes, told
 * apart by NCCL_HOSTID; RANK_FROM=4 RANK_OF=8 RANK_ID=FILE for a part of the ranks, the NCCL id by way of a file.
 * Prints `rank R WHAT CODE TEXT` and `rank R data COLLECTIVE WRONG ELEMENTS` lines.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct { char bytes[128]; } Id;
typedef void *Comm;
enum { FLOAT32 = 7, SUM = 0, IN_PROGRESS = 7 };

static void *nccl, *cuda;
static int rank, size;
static _Atomic int *through; /* how many ranks here have come to the end */

static void *find(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "there is no %s\n", name);
        exit(3);
    }
    return found;
}
#define NCCL(result, name, ...) ((result(*)(__VA_ARGS__))find(nccl, name))
#define CUDA(name, ...) ((int (*)(__VA_ARGS__))find(cuda, name))

static int say(const char *what, int code) {
    printf("rank %d %s %d %s\n", rank, what, code, NCCL(const char *, "ncclGetErrorString", int)(code));
    fflush(stdout);
    return code;
}

/* Element i of what rank r contributes; small whole numbers, so that any order of adding is exact. */
static float value(int r, size_t i) { return (float)(r + 1 + (int)(i % 13)); }

static int all_to_all(Comm comm, float *send, float *receive, size_t each) {
    int code = NCCL(int, "ncclGroupStart", void)();
    for (int r = 0; r < size && !code; r++) {
        code = NCCL(int, "ncclSend", const void *, size_t, int, int, Comm, void *)(send + (size_t)r * each, each, FLOAT32, r, comm, NULL);
        if (!code) code = NCCL(int, "ncclRecv", void *, size_t, int, int, Comm, void *)(receive + (size_t)r * each, each, FLOAT32, r, comm, NULL);
    }
    int ended = NCCL(int, "ncclGroupEnd", void)();
    return code ? code : ended;
}

/* count is of one rank's share; send and receive have size * count elements. */
static int start(const char *what, Comm comm, float *send, float *receive, size_t count) {
    if (!strcmp(what, "all_reduce") || !strcmp(what, "barrier"))
        return NCCL(int, "ncclAllReduce", const void *, void *, size_t, int, int, Comm, void *)(send, receive, count, FLOAT32, SUM, comm, NULL);
    if (!strcmp(what, "broadcast"))
        return NCCL(int, "ncclBroadcast", const void *, void *, size_t, int, int, Comm, void *)(send, receive, count, FLOAT32, size - 1, comm, NULL);
    if (!strcmp(what, "all_gather"))
        return NCCL(int, "ncclAllGather", const void *, void *, size_t, int, Comm, void *)(send, receive, count, FLOAT32, comm, NULL);
    if (!strcmp(what, "reduce_scatter"))
        return NCCL(int, "ncclReduceScatter", const void *, void *, size_t, int, int, Comm, void *)(send, receive, count, FLOAT32, SUM, comm, NULL);
    if (!strcmp(what, "all_to_all")) return all_to_all(comm, send, receive, count);
    fprintf(stderr, "no collective is called %s\n", what);
    exit(2);
}

static float expected(const char *what, size_t i, size_t count) {
    float sum = 0;
    if (!strcmp(what, "broadcast")) return value(size - 1, i);
    if (!strcmp(what, "all_gather")) return value((int)(i / count), i % count);
    if (!strcmp(what, "all_to_all")) return value((int)(i / count), (size_t)rank * count + i % count);
    if (!strcmp(what, "reduce_scatter")) i += (size_t)rank * count;
    for (int r = 0; r < size; r++) sum += value(r, i);
    return sum;
}

static int run(char *job, Comm comm) {
    char *colon = strchr(job, ':');
    size_t count = colon ? strtoul(colon + 1, NULL, 10) : 1 << 16;
    if (colon) *colon = 0;
    size_t all = count * (size_t)size, results = !strcmp(job, "all_gather") || !strcmp(job, "all_to_all") ? all : count;
    float *send, *receive;
    if (CUDA("cuMemAlloc_v2", void *, size_t)(&send, all * 4) || CUDA("cuMemAlloc_v2", void *, size_t)(&receive, all * 4)) return say("allocate", 1);
    for (size_t i = 0; i < all; i++) send[i] = value(rank, i), receive[i] = -1;
    int code = start(job, comm, send, receive, count);
    if (!code && CUDA("cuStreamSynchronize", void *)(NULL)) code = 1;
    say(job, code);
    if (code || getenv("RANK_NO_DATA")) return code;
    size_t wrong = 0;
    for (size_t i = 0; i < results; i++) wrong += receive[i] != expected(job, i, count);
    printf("rank %d data %s %zu %zu\n", rank, job, wrong, results);
    fflush(stdout);
    CUDA("cuMemFree_v2", void *)(send);
    CUDA("cuMemFree_v2", void *)(receive);
    return 0;
}

static int ordinal_of(int r, int per_node) {
    const char *text = getenv("RANK_GPUS");
    int at = r % per_node;
    char *words = strdup(text ? text : ""), *rest = NULL, *word = strtok_r(words, ",", &rest);
    for (int i = 0; word && i < at; i++) word = strtok_r(NULL, ",", &rest);
    return word ? atoi(word) : at;
}

static Id exchange(int first, int pipes[2], int here) {
    Id id;
    const char *path = getenv("RANK_ID");
    FILE *file = NULL;
    if (rank == 0) {
        int code = NCCL(int, "ncclGetUniqueId", Id *)(&id);
        if (code) {
            say("id", code);
            exit(5);
        }
        if (path) {
            char partial[4096];
            snprintf(partial, sizeof partial, "%s.partial", path);
            if (!(file = fopen(partial, "w")) || fwrite(&id, sizeof id, 1, file) != 1 || fclose(file) || rename(partial, path)) exit(5);
        }
    } else if (rank == first) {
        while (!path || !(file = fopen(path, "r"))) usleep(5000);
        if (fread(&id, sizeof id, 1, file) != 1) exit(5);
    }
    if (rank == first)
        for (int i = 1; i < here; i++)
            if (write(pipes[1], &id, sizeof id) != sizeof id) exit(5);
    close(pipes[1]); /* so that nobody waits for a rank that could not make the id */
    if (rank != first && read(pipes[0], &id, sizeof id) != sizeof id) exit(5);
    return id;
}

static int serve(int first, int here, int pipes[2], char **jobs) {
    Comm comm = NULL;
    void *context;
    int nodes = getenv("RANK_NODES") ? atoi(getenv("RANK_NODES")) : 1, per_node = nodes > 1 ? size / nodes : here;
    if (nodes > 1) {
        char name[32];
        snprintf(name, sizeof name, "node%d", rank / per_node);
        setenv("NCCL_HOSTID", name, 1);
    }
    int code = CUDA("cuInit", unsigned)(0);
    if (!code) code = CUDA("cuDevicePrimaryCtxRetain", void *, int)(&context, ordinal_of(rank - first, per_node));
    if (code) {
        printf("rank %d device %d no such GPU, or it is dead\n", rank, code);
        return 4;
    }
    CUDA("cuCtxSetCurrent", void *)(context);
    Id id = exchange(first, pipes, here);
    code = say("init", NCCL(int, "ncclCommInitRank", Comm *, int, Id, int)(&comm, size, id, rank));
    for (; *jobs && !code; jobs++) code = run(*jobs, comm);
    if (getenv("RANK_NO_DATA")) {
        /* Nothing ran, so a proxy may wait for it for ever: leave without a word, but not before the others have connected. */
        for (++*through; *through < here && !code;) usleep(1000);
        return code != 0;
    }
    if (!code) code = say("destroy", NCCL(int, "ncclCommDestroy", Comm)(comm));
    return code != 0;
}

int main(int count, char **words) {
    if (count < 4) return 2;
    int here = atoi(words[1]), first = getenv("RANK_FROM") ? atoi(getenv("RANK_FROM")) : 0, pipes[2], status, bad = 0;
    size = getenv("RANK_OF") ? atoi(getenv("RANK_OF")) : here;
    if (pipe(pipes) || !(cuda = dlopen(words[3], RTLD_NOW | RTLD_GLOBAL)) || !(nccl = dlopen(words[2], RTLD_NOW))) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    through = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    /* Loaded and redirected once, before the ranks are forked: it is 300 MB, and CUDA is not initialised by it. */
    if (((int (*)(void *))find(cuda, "simcuda_attach"))(nccl) <= 0) return 3;
    for (int r = 0; r < here; r++)
        if (!fork()) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            rank = first + r;
            _exit(serve(first, here, pipes, words + 4));
        }
    close(pipes[0]);
    close(pipes[1]);
    for (int r = 0; r < here; r++) {
        wait(&status);
        bad |= status != 0;
        if (bad) *through += here; /* a rank that failed will not come */
    }
    return bad;
}
