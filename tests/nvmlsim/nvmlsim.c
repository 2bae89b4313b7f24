/* A libnvidia-ml.so.1 that answers from a text file beside it, so that the real pynvml runs through real ctypes.
 *
 * The file has one answer a line: `FUNCTION/ARG/ARG VALUE VALUE ...`. A value `!N` makes the call return the NVML error
 * N, `hang` makes it never return, `die` ends the process. What the file does not name is NVML_ERROR_NOT_SUPPORTED.
 * Calls are counted by line in FILE.calls where that file exists, so that a test can see what was asked again.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, UNKNOWN = 999 };
typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct { u32 index; } Device;

static Device devices[64];
static char *lines[1 << 16];
static char is_open[1 << 16];
static int line_count, started;
static char calls_path[4096], awake_path[4096];

static int by_key(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int key_against_line(const void *key, const void *line) {
    const char *text = *(char *const *)line;
    size_t length = strcspn(text, " ");
    int order = strncmp(key, text, length);
    return order ? order : (strlen(key) > length ? 1 : 0);
}

static void load(void) {
    Dl_info info;
    char path[4096];
    if (line_count || !dladdr((void *)load, &info)) return;
    snprintf(awake_path, sizeof awake_path, "%s.awake", info.dli_fname);
    snprintf(path, sizeof path, "%s.machine", info.dli_fname);
    snprintf(calls_path, sizeof calls_path, "%s.calls", info.dli_fname);
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t size = 0;
    while (file && getline(&text, &size, file) > 0 && line_count < (int)(sizeof lines / sizeof *lines)) {
        text[strcspn(text, "\n")] = 0;
        lines[line_count++] = strdup(text);
    }
    free(text);
    if (file) fclose(file);
    qsort(lines, line_count, sizeof *lines, by_key);
    for (u32 i = 0; i < 64; i++) devices[i].index = i;
}

static void count_call(const char *key) {
    int fd = open(calls_path, O_WRONLY | O_APPEND);
    if (fd < 0) return;
    dprintf(fd, "%s\n", key);
    close(fd);
}

/* As the driver does: the first to open a GPU waits until it is awake, who opens it meanwhile waits for the same, and it
 * stays awake as long as a process that opened it (or a child of such a process) lives. */
static void wake(int line, double seconds) {
    if (is_open[line]++) return;
    char path[4200];
    snprintf(path, sizeof path, "%s-%d", awake_path, line);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || !flock(fd, LOCK_EX | LOCK_NB)) usleep((useconds_t)(seconds * 1e6));
    if (fd >= 0) flock(fd, LOCK_SH); /* held to the end of the process */
}

/* Return the text after the key, or NULL with *code set where the call fails. */
static const char *answer(int *code, const char *format, ...) {
    char key[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    load();
    count_call(key);
    char **line = bsearch(key, lines, line_count, sizeof *lines, key_against_line);
    *code = NOT_SUPPORTED;
    if (!line) return NULL;
    const char *value = *line + strcspn(*line, " ");
    value += *value == ' ';
    if (!strcmp(value, "hang")) for (;;) pause();
    if (!strcmp(value, "die")) raise(SIGKILL);
    if (!strncmp(value, "after ", 6)) { /* seconds, for who is the first to open a GPU that the driver has to wake */
        char *rest;
        double seconds = strtod(value + 6, &rest);
        wake((int)(line - lines), seconds);
        value = rest + (*rest == ' ');
    }
    if (*value == '!') { *code = atoi(value + 1); return NULL; }
    *code = OK;
    return value;
}

static int numbers(const char *text, u64 *out, int most) {
    int count = 0;
    while (text && *text && count < most) {
        char *end;
        u64 number = strtoull(text, &end, 0);
        if (end == text) break;
        out[count++] = number;
        text = end;
    }
    return count;
}

#define ASK(...) int code; const char *text = answer(&code, __VA_ARGS__); (void)text; if (code) return code
#define ASK_NUMBERS(n, ...) ASK(__VA_ARGS__); u64 v[n] = {0}; numbers(text, v, n)
#define NUMBER(NAME) int NAME(Device *d, u32 *out) { ASK_NUMBERS(1, #NAME "/%u", d->index); *out = (u32)v[0]; return OK; }
#define WIDE(NAME) int NAME(Device *d, u64 *out) { ASK_NUMBERS(1, #NAME "/%u", d->index); *out = v[0]; return OK; }
#define TWO(NAME) int NAME(Device *d, u32 *a, u32 *b) { \
    ASK_NUMBERS(2, #NAME "/%u", d->index); *a = (u32)v[0]; *b = (u32)v[1]; return OK; }
#define NUMBER_OF(NAME) int NAME(Device *d, u32 which, u32 *out) { \
    ASK_NUMBERS(1, #NAME "/%u/%u", d->index, which); *out = (u32)v[0]; return OK; }

int nvmlInitWithFlags(u32 flags) { (void)flags; ASK("nvmlInit"); started = 1; return OK; }
int nvmlShutdown(void) { started = 0; return OK; }
const char *nvmlErrorString(int code) { static char text[32]; snprintf(text, sizeof text, "error %d", code); return text; }

int nvmlSystemGetDriverVersion(char *out, u32 size) { ASK("nvmlSystemGetDriverVersion"); snprintf(out, size, "%s", text); return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { ASK_NUMBERS(1, "nvmlSystemGetCudaDriverVersion"); *out = (int)v[0]; return OK; }
int nvmlDeviceGetCount_v2(u32 *out) {
    if (!started) return UNINITIALIZED;
    ASK_NUMBERS(1, "nvmlDeviceGetCount"); *out = (u32)v[0]; return OK;
}
int nvmlDeviceGetHandleByIndex_v2(u32 index, Device **out) {
    ASK("nvmlDeviceGetHandleByIndex/%u", index); *out = &devices[index & 63]; return OK;
}
int nvmlDeviceGetName(Device *d, char *out, u32 size) { ASK("nvmlDeviceGetName/%u", d->index); snprintf(out, size, "%s", text); return OK; }
int nvmlDeviceGetUUID(Device *d, char *out, u32 size) { ASK("nvmlDeviceGetUUID/%u", d->index); snprintf(out, size, "%s", text); return OK; }

int nvmlDeviceGetHandleByUUID(const char *uuid, Device **out) {
    int code;
    for (u32 i = 0; i < 64; i++) {
        const char *text = answer(&code, "nvmlDeviceGetUUID/%u", i);
        if (text && !strcmp(text, uuid)) { *out = &devices[i]; return OK; }
    }
    return 6; /* NVML_ERROR_NOT_FOUND */
}

typedef struct { char legacy[16]; u32 domain, bus, device, id, subsystem; char bus_id[32]; } PciInfo;

static void fill_pci(PciInfo *out, const char *text) {
    memset(out, 0, sizeof *out);
    snprintf(out->bus_id, sizeof out->bus_id, "%s", text);
    sscanf(text, "%x:%x:%x", &out->domain, &out->bus, &out->device);
}
int nvmlDeviceGetPciInfo_v3(Device *d, PciInfo *out) { ASK("nvmlDeviceGetPciInfo/%u", d->index); fill_pci(out, text); return OK; }

typedef struct { u64 total, free, used; } Memory;
typedef struct { u32 version; u64 total, reserved, free, used; } Memory2;
typedef struct { u64 total, free, used; } Bar1;
#ifndef OLD_DRIVER
int nvmlDeviceGetMemoryInfo_v2(Device *d, Memory2 *out) {
    ASK_NUMBERS(4, "nvmlDeviceGetMemoryInfo_v2/%u", d->index);
    if (out->version != 0x02000028) return 25;
    out->total = v[0]; out->reserved = v[1]; out->free = v[2]; out->used = v[3];
    return OK;
}
#endif
int nvmlDeviceGetMemoryInfo(Device *d, Memory *out) {
    ASK_NUMBERS(4, "nvmlDeviceGetMemoryInfo/%u", d->index);
    out->total = v[0]; out->free = v[2]; out->used = v[1] + v[3];
    return OK;
}
int nvmlDeviceGetBAR1MemoryInfo(Device *d, Bar1 *out) {
    ASK_NUMBERS(1, "nvmlDeviceGetBAR1MemoryInfo/%u", d->index); out->total = out->free = v[0]; out->used = 0; return OK;
}
int nvmlDeviceGetCudaComputeCapability(Device *d, int *major, int *minor) {
    ASK_NUMBERS(2, "nvmlDeviceGetCudaComputeCapability/%u", d->index); *major = (int)v[0]; *minor = (int)v[1]; return OK;
}

static int fill_words(u64 *out, u32 words, const char *text) {
    u64 bits[4096];
    int count = numbers(text, bits, 4096);
    memset(out, 0, words * sizeof *out);
    for (int i = 0; i < count; i++) {
        if (bits[i] / 64 >= words) return INSUFFICIENT_SIZE;
        out[bits[i] / 64] |= 1ULL << (bits[i] % 64);
    }
    return OK;
}
int nvmlDeviceGetCpuAffinity(Device *d, u32 words, u64 *out) {
    ASK("nvmlDeviceGetCpuAffinity/%u", d->index); return fill_words(out, words, text);
}
int nvmlDeviceGetMemoryAffinity(Device *d, u32 words, u64 *out, u32 scope) {
    (void)scope; ASK("nvmlDeviceGetMemoryAffinity/%u", d->index); return fill_words(out, words, text);
}

typedef struct { u32 gpu, memory; } Utilization;
int nvmlDeviceGetUtilizationRates(Device *d, Utilization *out) {
    ASK_NUMBERS(1, "nvmlDeviceGetUtilizationRates/%u", d->index); out->gpu = (u32)v[0]; out->memory = 0; return OK;
}
typedef struct { u32 pid; u64 used; u32 instance, compute_instance; } Process;
static int processes(Device *d, u32 *count, Process *out) {
    ASK("nvmlDeviceGetComputeRunningProcesses/%u", d->index);
    u64 v[128];
    u32 have = (u32)numbers(text, v, 128) / 2;
    if (have && (!out || *count < have)) { *count = have; return INSUFFICIENT_SIZE; }
    for (u32 i = 0; i < have; i++) out[i] = (Process){(u32)v[2 * i], v[2 * i + 1], ~0u, ~0u};
    *count = have;
    return OK;
}
#ifndef OLD_DRIVER
int nvmlDeviceGetComputeRunningProcesses_v3(Device *d, u32 *count, Process *out) { return processes(d, count, out); }
#endif
int nvmlDeviceGetComputeRunningProcesses_v2(Device *d, u32 *count, Process *out) { return processes(d, count, out); }

NUMBER(nvmlDeviceGetMinorNumber)
NUMBER(nvmlDeviceGetNumaNodeId)
NUMBER(nvmlDeviceGetComputeMode)
NUMBER(nvmlDeviceGetPersistenceMode)
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus)
NUMBER(nvmlDeviceGetPowerUsage)
NUMBER(nvmlDeviceGetEnforcedPowerLimit)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration)
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth)
NUMBER(nvmlDeviceGetPcieReplayCounter)
NUMBER(nvmlDeviceGetVirtualizationMode)
NUMBER_OF(nvmlDeviceGetClockInfo)
NUMBER_OF(nvmlDeviceGetMaxClockInfo)
NUMBER_OF(nvmlDeviceGetTemperature)
TWO(nvmlDeviceGetMigMode)
TWO(nvmlDeviceGetEccMode)
#ifndef OLD_DRIVER
WIDE(nvmlDeviceGetCurrentClocksEventReasons)
#endif
WIDE(nvmlDeviceGetCurrentClocksThrottleReasons)

int nvmlDeviceGetTotalEccErrors(Device *d, u32 kind, u32 counter, u64 *out) {
    ASK_NUMBERS(1, "nvmlDeviceGetTotalEccErrors/%u/%u/%u", d->index, kind, counter); *out = v[0]; return OK;
}
int nvmlDeviceGetRemappedRows(Device *d, u32 *corrected, u32 *uncorrected, u32 *pending, u32 *failed) {
    ASK_NUMBERS(4, "nvmlDeviceGetRemappedRows/%u", d->index);
    *corrected = (u32)v[0]; *uncorrected = (u32)v[1]; *pending = (u32)v[2]; *failed = (u32)v[3];
    return OK;
}
int nvmlDeviceGetRetiredPages(Device *d, u32 cause, u32 *count, u64 *pages) {
    ASK_NUMBERS(1, "nvmlDeviceGetRetiredPages/%u/%u", d->index, cause);
    if (v[0] && (!pages || *count < v[0])) { *count = (u32)v[0]; return INSUFFICIENT_SIZE; }
    for (u32 i = 0; i < v[0]; i++) pages[i] = 0x1000ULL * i;
    *count = (u32)v[0];
    return OK;
}

typedef struct { u32 id, scope; long long timestamp, latency; u32 type; int code; u64 value; } FieldValue;
int nvmlDeviceGetFieldValues(Device *d, int count, FieldValue *values) {
    for (int i = 0; i < count; i++) {
        int code;
        u64 number = 0;
        numbers(answer(&code, "nvmlDeviceGetFieldValues/%u/%u", d->index, values[i].id), &number, 1);
        values[i].code = code;
        values[i].value = number;
    }
    return OK;
}

int nvmlDeviceGetNvLinkState(Device *d, u32 link, u32 *out) {
    ASK_NUMBERS(1, "nvmlDeviceGetNvLinkState/%u/%u", d->index, link); *out = (u32)v[0]; return OK;
}
int nvmlDeviceGetNvLinkVersion(Device *d, u32 link, u32 *out) {
    ASK_NUMBERS(1, "nvmlDeviceGetNvLinkVersion/%u/%u", d->index, link); *out = (u32)v[0]; return OK;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(Device *d, u32 link, u32 *out) {
    ASK_NUMBERS(1, "nvmlDeviceGetNvLinkRemoteDeviceType/%u/%u", d->index, link); *out = (u32)v[0]; return OK;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device *d, u32 link, PciInfo *out) {
    ASK("nvmlDeviceGetNvLinkRemotePciInfo/%u/%u", d->index, link); fill_pci(out, text); return OK;
}
int nvmlDeviceGetNvLinkErrorCounter(Device *d, u32 link, u32 counter, u64 *out) {
    ASK_NUMBERS(1, "nvmlDeviceGetNvLinkErrorCounter/%u/%u/%u", d->index, link, counter); *out = v[0]; return OK;
}

#ifndef OLD_DRIVER
typedef struct { u32 version; unsigned char cluster[16]; int status; u32 clique, state, health; } Fabric;
int nvmlDeviceGetGpuFabricInfoV(Device *d, Fabric *out) {
    ASK_NUMBERS(3, "nvmlDeviceGetGpuFabricInfoV/%u", d->index);
    if (out->version != 0x02000024) return 25;
    out->state = (u32)v[0]; out->status = (int)v[1]; out->health = (u32)v[2]; out->clique = 0;
    memset(out->cluster, 0, sizeof out->cluster);
    return OK;
}
#endif

int nvmlDeviceGetTopologyCommonAncestor(Device *a, Device *b, u32 *out) {
    ASK_NUMBERS(1, "nvmlDeviceGetTopologyCommonAncestor/%u/%u", a->index, b->index); *out = (u32)v[0]; return OK;
}
int nvmlDeviceGetP2PStatus(Device *a, Device *b, u32 capability, u32 *out) {
    ASK_NUMBERS(1, "nvmlDeviceGetP2PStatus/%u/%u/%u", a->index, b->index, capability); *out = (u32)v[0]; return OK;
}

/* One event, `nvmlEventSetWait GPU XID`, then none any more. */
typedef struct { Device *device; u64 type, data; u32 gpu_instance, compute_instance; } Event;
int nvmlEventSetCreate(void **out) { ASK("nvmlEventSetCreate"); *out = devices; return OK; }
int nvmlDeviceRegisterEvents(Device *d, u64 types, void *set) {
    (void)types; (void)set; ASK("nvmlDeviceRegisterEvents/%u", d->index); return OK;
}
int nvmlEventSetWait_v2(void *set, Event *out, u32 wait_ms) {
    static int told;
    (void)set;
    if (told++) { usleep(wait_ms * 1000); return 10; /* NVML_ERROR_TIMEOUT */ }
    int code; const char *text = answer(&code, "nvmlEventSetWait");
    if (!text) return 10;
    u64 v[2] = {0}; numbers(text, v, 2);
    memset(out, 0, sizeof *out);
    out->device = &devices[v[0] & 63]; out->type = 8; out->data = v[1];
    return OK;
}
