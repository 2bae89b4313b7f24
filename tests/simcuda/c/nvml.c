/* NVML: tests/nvmlsim's library, which answers from the machine's file, with the calls that only NCCL makes.
 *
 * The memory in use is that of the driver's account (account.c), so that both tell the same.
 */
#define nvmlDeviceGetMemoryInfo simulated_memory_info
#define nvmlDeviceGetMemoryInfo_v2 simulated_memory_info_v2
#include "../../nvmlsim/nvmlsim.c"
#undef nvmlDeviceGetMemoryInfo
#undef nvmlDeviceGetMemoryInfo_v2

#include <limits.h>

typedef struct { pid_t pid; int gpu; size_t bytes; } Seat;
static u64 in_use(u32 gpu) {
    Dl_info info;
    char path[PATH_MAX];
    Seat seat;
    u64 total = 0;
    if (!dladdr((void *)in_use, &info)) return 0;
    const char *named = getenv("SIMCUDA_STATE");
    snprintf(path, sizeof path, named && *named ? "%s" : "%s.machine.state", named && *named ? named : info.dli_fname);
    FILE *file = fopen(path, "re");
    while (file && fread(&seat, sizeof seat, 1, file) == 1)
        if (seat.pid && seat.gpu == (int)gpu && !kill(seat.pid, 0)) total += seat.bytes;
    if (file) fclose(file);
    return total;
}
int nvmlDeviceGetMemoryInfo(Device *d, Memory *out) {
    int code = simulated_memory_info(d, out);
    u64 used = code ? 0 : in_use(d->index);
    if (used > out->free) used = out->free;
    if (!code) out->free -= used, out->used += used;
    return code;
}
int nvmlDeviceGetMemoryInfo_v2(Device *d, Memory2 *out) {
    int code = simulated_memory_info_v2(d, out);
    u64 used = code ? 0 : in_use(d->index);
    if (used > out->free) used = out->free;
    if (!code) out->free -= used, out->used += used;
    return code;
}

/* The first form of the call, by which torch tells who holds the memory when there is none left. */
typedef struct { u32 pid; u64 used; } OldProcess;
int nvmlDeviceGetComputeRunningProcesses(Device *d, u32 *count, OldProcess *out) {
    Process all[128];
    u32 have = 128;
    int code = processes(d, &have, all);
    if (code && code != INSUFFICIENT_SIZE) return code;
    if (*count < have || !out) {
        *count = have;
        return have ? INSUFFICIENT_SIZE : OK;
    }
    for (u32 i = 0; i < have; i++) out[i] = (OldProcess){all[i].pid, all[i].used};
    *count = have;
    return OK;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlInit(void) { return nvmlInitWithFlags(0); }
int nvmlDeviceGetCount(u32 *out) { return nvmlDeviceGetCount_v2(out); }
int nvmlDeviceGetHandleByIndex(u32 index, Device **out) { return nvmlDeviceGetHandleByIndex_v2(index, out); }
int nvmlDeviceGetIndex(Device *d, u32 *out) { *out = d->index; return OK; }
int nvmlDeviceGetHandleByPciBusId(const char *bus, Device **out) {
    u32 wanted[3], have[3];
    int code;
    if (sscanf(bus, "%x:%x:%x", &wanted[0], &wanted[1], &wanted[2]) != 3) return 2; /* NVML_ERROR_INVALID_ARGUMENT */
    for (u32 i = 0; i < 64; i++) {
        const char *text = answer(&code, "nvmlDeviceGetPciInfo/%u", i);
        if (text && sscanf(text, "%x:%x:%x", &have[0], &have[1], &have[2]) == 3 && !memcmp(have, wanted, sizeof have)) {
            *out = &devices[i];
            return OK;
        }
    }
    return 6; /* NVML_ERROR_NOT_FOUND */
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, Device **out) { return nvmlDeviceGetHandleByPciBusId(bus, out); }

/* ---- NVLink */
int nvmlDeviceGetNvLinkCapability(Device *d, u32 link, u32 capability, u32 *out) {
    (void)capability;
    ASK_NUMBERS(1, "nvmlDeviceGetNvLinkState/%u/%u", d->index, link);
    *out = (u32)v[0];
    return OK;
}
typedef struct { char bus[16]; u32 domain, number, device, id, subsystem, reserved[4]; } OldPciInfo;
int nvmlDeviceGetNvLinkRemotePciInfo(Device *d, u32 link, OldPciInfo *out) {
    ASK("nvmlDeviceGetNvLinkRemotePciInfo/%u/%u", d->index, link);
    memset(out, 0, sizeof *out);
    if (sscanf(text, "%x:%x:%x", &out->domain, &out->number, &out->device) != 3) return UNKNOWN;
    snprintf(out->bus, sizeof out->bus, "%04X:%02X:%02X.0", out->domain & 0xffff, out->number & 0xff, out->device & 0xff);
    return OK;
}

/* ---- what newer versions ask */
typedef struct { u32 version, domain, bus, device, id, subsystem, base_class, sub_class; char bus_id[32]; } PciInfoExt;
int nvmlDeviceGetPciInfoExt(Device *d, PciInfoExt *out) {
    PciInfo info;
    int code = nvmlDeviceGetPciInfo_v3(d, &info);
    if (code) return code;
    out->domain = info.domain, out->bus = info.bus, out->device = info.device, out->id = info.id;
    out->subsystem = 0, out->base_class = 3, out->sub_class = 2;
    memcpy(out->bus_id, info.bus_id, sizeof out->bus_id);
    return OK;
}
int nvmlDeviceGetPcieLinkMaxSpeed(Device *d, u32 *mbit_s) {
    ASK_NUMBERS(1, "nvmlDeviceGetMaxPcieLinkGeneration/%u", d->index);
    *mbit_s = v[0] < 3 ? 5000 : 8000u << (v[0] - 3);
    return OK;
}
int nvmlSystemGetConfComputeState(u32 *out) { out[0] = out[1] = out[2] = 0; return OK; }
int nvmlDeviceGetPlatformInfo(Device *d, void *out) { (void)d; (void)out; return NOT_SUPPORTED; }
int nvmlDeviceGetMemoryErrorCounter(Device *d, int kind, int counter, int place, u64 *out) {
    (void)d; (void)kind; (void)counter; (void)place;
    *out = 0;
    return OK;
}
