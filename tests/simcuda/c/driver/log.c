/* Logging, and functions made at run time that refuse: nothing that is not written may pass for done. */
#include "simcuda.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int level = -1;
static FILE *out;

static void open_log(void) {
    const char *wanted = getenv("SIMCUDA_LOG"), *path = getenv("SIMCUDA_LOG_FILE");
    level = wanted ? atoi(wanted) : 0;
    if (path && *path) {
        char name[4096];
        snprintf(name, sizeof name, "%s.%d", path, getpid());
        out = fopen(name, "ae");
    }
    if (!out) out = stderr;
}

void sim_log(int at, const char *format, ...) {
    if (level < 0) open_log();
    if (at > level) return;
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(out, "[simcuda %d.%ld] %s\n", getpid(), (long)syscall(SYS_gettid), text);
    fflush(out);
}

API int simrt_refuse(const char *name);

/* Machine code: mov rdi, name; mov rax, simrt_refuse; jmp rax. A page holds the refusals of 128 names. */
enum { THUNK_BYTES = 32, THUNKS = 2048 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { char *name; void *code; } refused[THUNKS];

static void *make_thunk(unsigned char *at, const char *name) {
    void *target = (void *)simrt_refuse;
    memcpy(at, (unsigned char[]){0x48, 0xbf}, 2);
    memcpy(at + 2, &name, 8);
    memcpy(at + 10, (unsigned char[]){0x48, 0xb8}, 2);
    memcpy(at + 12, &target, 8);
    memcpy(at + 20, (unsigned char[]){0xff, 0xe0}, 2);
    return at;
}

void *sim_refusal(const char *name) {
    static unsigned char *room;
    void *code = NULL;
    pthread_mutex_lock(&lock);
    if (!room) {
        room = mmap(NULL, THUNKS * THUNK_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (room == MAP_FAILED) abort();
    }
    for (int i = 0; i < THUNKS && !code; i++) {
        if (!refused[i].name) {
            refused[i].name = strdup(name);
            refused[i].code = make_thunk(room + (size_t)i * THUNK_BYTES, refused[i].name);
        }
        if (!strcmp(refused[i].name, name)) code = refused[i].code;
    }
    pthread_mutex_unlock(&lock);
    return code;
}
