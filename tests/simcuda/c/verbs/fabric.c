/* A file that the processes of all nodes map, and a door to the memory of each.
 *
 * A process opens /proc/self/mem and hands the descriptor to whoever calls at its socket in the folder SIMCUDA_FABRIC.
 * So a card's write is a pwrite: across network, mount and PID namespaces, and into a process that is stopped.
 */
#include "fabric.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

Fabric *fabric;
int own_process = -1;
static int folder = -1, memories[PROCESSES]; /* 0: not asked for yet */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int64_t sv_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

/* The driver's machine.c, which reads the settings here too, logs by this name. */
void sim_log(int level, const char *format, ...) {
    const char *wanted = getenv("SIMCUDA_LOG");
    if (level > (wanted ? atoi(wanted) : 0)) return;
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "[simcuda %d verbs] %s\n", getpid(), text);
}

int sv_claim(_Atomic int *used, size_t stride, int count, int from) {
    for (int i = 0; i < count; i++) {
        int at = (from + i) % count, expected = FREE;
        if (atomic_compare_exchange_strong((_Atomic int *)((char *)used + (size_t)at * stride), &expected, CLAIMED)) return at;
    }
    return -1;
}

static socklen_t door(int process, struct sockaddr_un *out) { /* by the folder's descriptor: a path may be too long */
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(out->sun_path, sizeof out->sun_path, "/proc/self/fd/%d/%d", folder, process);
    return sizeof *out;
}

/* A message of one byte with a descriptor beside it, to be sent or filled. */
typedef struct { char byte, room[CMSG_SPACE(sizeof(int))]; struct iovec part; struct msghdr head; } Parcel;
static void wrap(Parcel *parcel) {
    *parcel = (Parcel){0};
    parcel->part = (struct iovec){&parcel->byte, 1};
    parcel->head.msg_iov = &parcel->part, parcel->head.msg_iovlen = 1;
    parcel->head.msg_control = parcel->room, parcel->head.msg_controllen = sizeof parcel->room;
}

static void *keep_door(void *argument) {
    int listening = (int)(intptr_t)argument, memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC), guest;
    Parcel parcel;
    wrap(&parcel);
    *CMSG_FIRSTHDR(&parcel.head) = (struct cmsghdr){CMSG_LEN(sizeof memory), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&parcel.head)), &memory, sizeof memory);
    while ((guest = accept4(listening, NULL, NULL, SOCK_CLOEXEC)) >= 0 || errno == EINTR || errno == ECONNABORTED) {
        if (guest < 0) continue;
        sendmsg(guest, &parcel.head, MSG_NOSIGNAL);
        close(guest);
    }
    return NULL;
}

int sv_memory(int process) {
    if (process < 0 || process >= PROCESSES) return -1;
    pthread_mutex_lock(&lock);
    if (!memories[process]) {
        struct sockaddr_un address;
        socklen_t size = door(process, &address);
        int calling = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        Parcel parcel;
        wrap(&parcel);
        int came = !connect(calling, (struct sockaddr *)&address, size) && recvmsg(calling, &parcel.head, MSG_CMSG_CLOEXEC) == 1;
        if (came && CMSG_FIRSTHDR(&parcel.head)) memcpy(&memories[process], CMSG_DATA(CMSG_FIRSTHDR(&parcel.head)), sizeof(int));
        else sim_log(1, "process %d does not open: %s", process, strerror(errno));
        close(calling);
    }
    int found = memories[process] ? memories[process] : -1;
    pthread_mutex_unlock(&lock);
    return found;
}

static void be_another_process(void) { own_process = -1; }

static int map_fabric(void) {
    char path[PATH_MAX];
    const char *named = sim_setting("FABRIC");
    snprintf(path, sizeof path, "%s", named ? named : "/tmp");
    folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int file = openat(folder, "fabric", O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0 || ftruncate(file, sizeof(Fabric))) return sim_log(0, "fabric in %s: %s", path, strerror(errno)), -1;
    void *mapped = mmap(NULL, sizeof(Fabric), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return -1;
    pthread_atfork(NULL, NULL, be_another_process);
    fabric = mapped;
    return 0;
}

static int open_door(void) {
    pthread_t thread;
    struct sockaddr_un address;
    int at = sv_claim(fabric->processes, sizeof *fabric->processes, PROCESSES, 0); /* for ever: a run has a folder of its own */
    if (at < 0) return sim_log(0, "more processes than the fabric has room for"), -1;
    socklen_t size = door(at, &address);
    int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listening, (struct sockaddr *)&address, size) || listen(listening, 64)) return sim_log(0, "door: %s", strerror(errno)), -1;
    if (pthread_create(&thread, NULL, keep_door, (void *)(intptr_t)listening)) return -1;
    pthread_detach(thread);
    own_process = at;
    return 0;
}

int sv_begin(void) {
    pthread_mutex_lock(&lock);
    int code = fabric ? 0 : map_fabric();
    if (!code && own_process < 0) code = open_door();
    pthread_mutex_unlock(&lock);
    return code;
}
