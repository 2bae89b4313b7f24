/* The adapters of this node, from the machine's file, and the calls about devices, ports, memory and events.
 *
 * hca/NODE/I NAME GUID                                            the I-th adapter of the node
 * hca/NODE/I/port/N STATE LINK LID WIDTH SPEED MTU NETWORK        codes of the binary interface; who is of another network is not reached
 * hca/NODE/I/gid/N/SLOT VERSION ADDRESS, hca/NODE/I/pkey/N/SLOT PKEY
 */
#include "fabric.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

typedef struct { Device device; uint64_t guid; int index, ports; } Adapter;
typedef struct Told { Event event; struct Told *next; } Told;
typedef struct { Handle context; int seen[PORTS]; Told *told; pthread_mutex_t lock; } Opened;

static Adapter adapters[ADAPTERS];
static int count;

/* Nodes are told apart by SIMCUDA_NODE or, where ranks of one machine play several, by the number in NCCL_HOSTID. */
static int own_node(void) {
    const char *name = getenv("NCCL_HOSTID");
    while (name && *name && !isdigit(*name)) name++;
    int node = (int)sim_number("NODE", name ? atoi(name) : 0);
    return node >= 0 && node < NODES ? node : 0;
}

int sv_has_fault(const char *setting, const char *adapter, Fault *out) {
    const char *text = sim_setting(setting);
    if (!text) return 0;
    char *words = strdup(text), *rest = NULL;
    int found = 0;
    for (char *word = strtok_r(words, ",", &rest); word && !found; word = strtok_r(NULL, ",", &rest)) {
        char *numbers = strchr(word, ':'), *slash = numbers ? strchr(numbers, '/') : NULL;
        if (numbers) *numbers++ = 0;
        char *at = strchr(word, '@');
        if (at) *at++ = 0;
        found = (!strcmp(word, "all") || !strcmp(word, adapter)) && (!at || atoi(at) == own_node());
        if (found && out) *out = (Fault){1, numbers ? strtol(numbers, NULL, 0) : 0, slash ? strtol(slash + 1, NULL, 0) : -1};
    }
    free(words);
    return found;
}

static void describe(Port *port, int node, Adapter *adapter, int number, const char *line) {
    Fault fault;
    const char *text;
    snprintf(port->adapter, sizeof port->adapter, "%.63s", adapter->device.name);
    port->node = node;
    sscanf(line, "%d %d %d %d %d %d %31s", &port->state, &port->link, &port->lid, &port->width, &port->speed, &port->mtu, port->network);
    if (sv_has_fault("IB_DOWN", port->adapter, NULL)) port->state = STATE_DOWN;
    for (int i = 0; i < GIDS; i++)
        if ((text = sim_answer("hca/%d/%d/gid/%d/%d", node, adapter->index, number, i))) {
            port->version[i] = atoi(text);
            inet_pton(AF_INET6, strchr(text, ' ') + 1, port->gid[i].bytes);
        }
    port->gids = GIDS; /* the others are empty */
    for (int i = 0; i < PKEYS; i++)
        if ((text = sim_answer("hca/%d/%d/pkey/%d/%d", node, adapter->index, number, i))) {
            port->pkey[i] = (uint16_t)strtol(text, NULL, 0);
            port->pkeys = i + 1;
        }
    if (sv_has_fault("IB_PKEY", port->adapter, &fault)) port->pkey[0] = (uint16_t)fault.first;
    if (sv_has_fault("IB_NETWORK", port->adapter, &fault)) snprintf(port->network, sizeof port->network, "%ld", fault.first);
    const struct { const char *setting; Fault *fault; } faults[] = {
        {"IB_DIES", &port->dies}, {"IB_LOSES", &port->loses}, {"IB_LOSES_SENT", &port->loses_sent},
        {"IB_CHANGES", &port->changes}, {"IB_GDR_CHANGES", &port->changes_gpu}, {"IB_MB_S", &port->mb_s}, {"IB_KILLS", &port->kills}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sv_has_fault(faults[i].setting, port->adapter, faults[i].fault);
}

static Port *place(int node, int adapter, int number) { return &fabric->ports[(node * ADAPTERS + adapter) * PORTS + number - 1]; }

void sv_read_machine(void) {
    const char *text;
    int node = own_node();
    for (count = 0; count < ADAPTERS && (text = sim_answer("hca/%d/%d", node, count)); count++) {
        Adapter *each = &adapters[count];
        *each = (Adapter){.index = count, .device = {.kind = 1}};
        unsigned long long guid = 0;
        sscanf(text, "%63s %llx", each->device.name, &guid);
        each->guid = guid;
        snprintf(each->device.node, sizeof each->device.node, "uverbs%d", count);
        snprintf(each->device.node_path, sizeof each->device.node_path, "/sys/class/infiniband_verbs/uverbs%d", count);
        strcat(strcpy(each->device.path, "/sys/class/infiniband/"), each->device.name);
        for (int number = 1; number <= PORTS && (text = sim_answer("hca/%d/%d/port/%d", node, count, number)); number++) {
            Port *port = place(node, count, number);
            int expected = FREE;
            if (atomic_compare_exchange_strong(&port->used, &expected, CLAIMED)) {
                describe(port, node, each, number, text);
                port->used = READY;
            }
            while (port->used != READY) usleep(1000); /* another process of the node writes it */
            each->ports = number;
        }
    }
}

Port *sv_port(Handle *context, int number) {
    Adapter *adapter = (Adapter *)context->device;
    return number >= 1 && number <= adapter->ports ? place(own_node(), adapter->index, number) : NULL;
}

void sv_count(Port *port, const char *counter) {
    char path[512], text[32] = "";
    const char *sys = sim_setting("SYS"); /* /sys itself is read-only */
    if (!sys || port->node != own_node()) return;
    const char *kind = strstr(counter, "link") || strstr(counter, "symbol") ? "counters" : "hw_counters";
    int number = (int)(port - fabric->ports) % PORTS + 1;
    snprintf(path, sizeof path, "%s/class/infiniband/%s/ports/%d/%s/%s", sys, port->adapter, number, kind, counter);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return sim_log(1, "%s: %s", path, strerror(errno));
    flock(file, LOCK_EX);
    long value = pread(file, text, sizeof text - 1, 0) > 0 ? strtol(text, NULL, 10) : 0;
    snprintf(text, sizeof text, "%ld\n", value + 1);
    if (pwrite(file, text, strlen(text), 0) < 0) sim_log(1, "%s: %s", path, strerror(errno));
    close(file);
}

/* IB_DIES=mlx5_0:200/1500: down after 200 messages, and up again 1500 ms later. */
int sv_is_up(Port *port) {
    int64_t died = port->died_ns, never = 0;
    if (!died && port->dies.is_on && port->messages >= port->dies.first) {
        atomic_compare_exchange_strong(&port->died_ns, &never, sv_now_ns());
        died = port->died_ns;
    }
    if (died && port->node == own_node() && !atomic_exchange(&port->has_counted, 1)) sv_count(port, "link_downed");
    return port->state == STATE_ACTIVE && (!died || (port->dies.second >= 0 && sv_now_ns() > died + port->dies.second * 1000000L));
}

int sv_is_hit(Port *port, const Fault *fault) {
    long messages = port->messages;
    return fault->is_on && messages >= fault->first && (fault->second < 0 || messages < fault->first + fault->second);
}

/* ------------------------------------------------------------------ devices and ports */
VERB int ibv_fork_init(void) { return 0; }
VERB void ibv_free_device_list(Device **list) { free(list); }
VERB const char *ibv_get_device_name(Device *device) { return device->name; }

VERB Device **ibv_get_device_list(int *found) {
    int code = sim_answer("hca/0/0") ? sv_begin() : -1; /* a machine without adapters needs no fabric */
    if (!code) sv_read_machine();
    Device **list = calloc((size_t)count + 1, sizeof *list);
    for (int i = 0; i < count && !code; i++) list[i] = &adapters[i].device;
    if (found) *found = code ? 0 : count;
    return list;
}

VERB Handle *ibv_open_device(Device *device) {
    if (sv_begin() || sv_has_fault("IB_OPEN_FAILS", device->name, NULL)) return errno = EACCES, NULL;
    Opened *opened = calloc(1, sizeof *opened);
    opened->context = (Handle){.device = device, .command_fd = -1, .event_fd = -1, .vectors = 1};
    opened->context.ops[OP_POLL] = (void *)sv_poll;
    opened->context.ops[OP_POST_SEND] = (void *)sv_post_send;
    opened->context.ops[OP_POST_RECEIVE] = (void *)sv_post_receive;
    pthread_mutex_init(&opened->lock, NULL);
    for (int i = 0; i < ((Adapter *)device)->ports; i++) opened->seen[i] = sv_is_up(sv_port(&opened->context, i + 1));
    return &opened->context;
}
VERB int ibv_close_device(Handle *context) { /* a thread of NCCL's may still wait for its events */
    (void)context;
    return 0;
}

VERB int ibv_query_device(Handle *context, DeviceAttributes *out) {
    Adapter *adapter = (Adapter *)context->device;
    uint64_t guid = __builtin_bswap64(adapter->guid);
    *out = (DeviceAttributes){
        .firmware = "20.99.1000", .guid = guid, .system_guid = guid, .most_mr_bytes = ~0ULL, .vendor = 0x02c9, .part = 4123,
        .most_qp = PAIRS, .most_qp_wr = 8192, .most_sge = 30, .most_cq = 1 << 20, .most_cqe = 1 << 22, .most_mr = REGIONS,
        .most_pd = 1 << 20, .pkeys = PKEYS, .ports = (uint8_t)adapter->ports};
    return 0;
}

VERB int ibv_query_port(Handle *context, uint8_t number, PortAttributes *out) {
    Port *port = sv_port(context, number);
    if (!port) return EINVAL;
    int is_up = sv_is_up(port);
    *out = (PortAttributes){
        .state = is_up ? STATE_ACTIVE : STATE_DOWN, .most_mtu = 5, .mtu = port->mtu, .gids = port->gids, .most_bytes = 1u << 30,
        .pkeys = (uint16_t)port->pkeys, .lid = (uint16_t)port->lid, .sm_lid = port->link == LINK_IB, .width = (uint8_t)port->width,
        .speed = (uint8_t)port->speed, .phys_state = is_up ? 5 : 3, .link = (uint8_t)port->link};
    return 0;
}

VERB int ibv_query_gid(Handle *context, uint8_t number, int index, Gid *out) {
    Port *port = sv_port(context, number);
    if (!port || index < 0 || index >= port->gids) return errno = EINVAL, -1;
    *out = port->gid[index];
    return 0;
}
VERB int ibv_query_pkey(Handle *context, uint8_t number, int index, uint16_t *out) {
    Port *port = sv_port(context, number);
    if (!port || index < 0 || index >= port->pkeys) return errno = EINVAL, -1;
    *out = htons(port->pkey[index]);
    return 0;
}

/* ------------------------------------------------------------------ memory */
VERB Pd *ibv_alloc_pd(Handle *context) {
    Pd *pd = calloc(1, sizeof *pd);
    pd->context = context;
    return pd;
}
VERB int ibv_dealloc_pd(Pd *pd) {
    free(pd);
    return 0;
}

static int is_of_a_gpu(void *address) {
    enum { MEMORY_TYPE = 2, ON_DEVICE = 2 };
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    int (*ask)(void *, int, uintptr_t) = driver ? (int (*)(void *, int, uintptr_t))dlsym(driver, "cuPointerGetAttribute") : NULL;
    unsigned type = 0;
    int is_there = ask && !ask(&type, MEMORY_TYPE, (uintptr_t)address) && type == ON_DEVICE;
    if (driver) dlclose(driver);
    return is_there;
}

VERB Mr *ibv_reg_mr(Pd *pd, void *address, size_t length, int access) {
    static _Atomic size_t held;
    Fault fault;
    const char *name = pd->context->device->name;
    int is_gpu = is_of_a_gpu(address);
    if (is_gpu && sv_has_fault("IB_GDR_REFUSED", name, NULL)) return errno = EFAULT, NULL;
    if (sv_has_fault("IB_MEMLOCK", name, &fault) && held + length > (size_t)fault.first << 10) return errno = ENOMEM, NULL;
    int at = sv_claim(&fabric->regions->used, sizeof *fabric->regions, REGIONS, own_process * 31 % REGIONS);
    if (at < 0) return errno = ENOMEM, NULL;
    Region *region = &fabric->regions[at];
    region->generation = (region->generation % 0xffff) + 1;
    region->process = own_process, region->access = access, region->is_gpu = is_gpu;
    region->address = (uintptr_t)address, region->length = length;
    region->used = READY;
    held += length;
    uint32_t key = region->generation << 16 | (uint32_t)at;
    Mr *mr = calloc(1, sizeof *mr);
    *mr = (Mr){pd->context, pd, address, length, (uint32_t)at, key, key};
    return mr;
}
VERB Mr *ibv_reg_mr_iova2(Pd *pd, void *address, size_t length, uint64_t as, unsigned access) {
    return as == (uintptr_t)address ? ibv_reg_mr(pd, address, length, (int)access) : (errno = EOPNOTSUPP, NULL);
}
VERB Mr *ibv_reg_dmabuf_mr(Pd *pd, uint64_t offset, size_t length, uint64_t as, int fd, int access) {
    (void)pd, (void)offset, (void)length, (void)as, (void)fd, (void)access;
    return errno = EOPNOTSUPP, NULL; /* GPU memory comes by way of nvidia_peermem */
}
VERB int ibv_dereg_mr(Mr *mr) {
    fabric->regions[mr->handle].used = FREE;
    free(mr);
    return 0;
}

/* Enhanced connections are for pairs of newer cards; NCCL goes without where a card has none. */
VERB int ibv_query_ece(Qp *qp, void *out) {
    (void)qp;
    memset(out, 0, 12);
    return EOPNOTSUPP;
}
VERB int ibv_set_ece(Qp *qp, void *options) {
    (void)qp, (void)options;
    return EOPNOTSUPP;
}

/* ------------------------------------------------------------------ events */
void sv_tell(Qp *qp, int event) {
    Opened *opened = (Opened *)qp->context;
    Told *told = calloc(1, sizeof *told);
    told->event.of.qp = qp, told->event.type = event;
    pthread_mutex_lock(&opened->lock);
    told->next = opened->told;
    opened->told = told;
    pthread_mutex_unlock(&opened->lock);
}

VERB int ibv_get_async_event(Handle *context, Event *out) {
    Opened *opened = (Opened *)context;
    for (;; usleep(20000)) {
        pthread_mutex_lock(&opened->lock);
        Told *told = opened->told;
        if (told) opened->told = told->next, *out = told->event;
        pthread_mutex_unlock(&opened->lock);
        free(told);
        if (told) return 0;
        for (int i = 0; i < ((Adapter *)context->device)->ports; i++) {
            int is_up = sv_is_up(sv_port(context, i + 1));
            if (is_up == opened->seen[i]) continue;
            opened->seen[i] = is_up;
            out->of.port = i + 1;
            out->type = is_up ? EVENT_PORT_ACTIVE : EVENT_PORT_ERROR;
            return 0;
        }
    }
}
VERB void ibv_ack_async_event(Event *event) { (void)event; }
VERB const char *ibv_event_type_str(int type) {
    return type == EVENT_QP_ACCESS ? "local access violation work queue error"
           : type == EVENT_PORT_ACTIVE ? "port active" : type == EVENT_PORT_ERROR ? "port error" : "unknown";
}
