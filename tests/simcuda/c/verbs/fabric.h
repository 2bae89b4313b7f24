/* The simulated adapters: what all processes of all nodes share, and what the parts of the library know of each other. */
#pragma once
#include "../simcuda.h"
#include "abi.h"
#include <stdatomic.h>

enum { NODES = 8, ADAPTERS = 16, PORTS = 2, ALL_PORTS = NODES * ADAPTERS * PORTS, GIDS = 16, PKEYS = 4 };
enum { PROCESSES = 1024, PAIRS = 4096, REGIONS = 1 << 15, RECEIVES = 512 };
enum { FREE, CLAIMED, READY };
#define VERB __attribute__((visibility("default")))

/* One fault of a port: `DEVICE[@NODE][:NUMBER[/NUMBER]]` of the setting. */
typedef struct { int is_on; long first, second; } Fault;

typedef struct {
    _Atomic int used;
    int node, state, link, lid, width, speed, mtu, gids, pkeys;
    char adapter[64], network[32];
    Gid gid[GIDS];
    int version[GIDS]; /* of RoCE; 1 for InfiniBand */
    uint16_t pkey[PKEYS];
    Fault dies, loses, loses_sent, changes, changes_gpu, mb_s, kills;
    _Atomic int has_killed, has_counted; /* and told /sys that it went down */
    _Atomic long messages; /* that went in or out */
    _Atomic int64_t died_ns, free_ns; /* when it broke; when what it carries will be through */
} Port;

/* A queue pair as both ends see it. Its owner posts receives, the peer fills them. */
typedef struct {
    _Atomic int used, state, was_refused;
    _Atomic uint32_t generation, posted, arrived;
    int process, port, access, version, peer_port;
    uint16_t pkey;
    uint32_t peer;
    struct { uint32_t imm, bytes; } arrivals[RECEIVES];
} SharedPair;

typedef struct {
    _Atomic int used;
    _Atomic uint32_t generation;
    int process, access, is_gpu;
    uint64_t address, length;
} Region;

typedef struct {
    Port ports[ALL_PORTS];
    _Atomic int processes[PROCESSES];
    Region regions[REGIONS];
    SharedPair pairs[PAIRS];
} Fabric;

extern Fabric *fabric; /* NULL until sv_begin */
extern int own_process;

/* ---- fabric.c */
int sv_begin(void); /* 0, or -1 where nothing can be shared */
int sv_claim(_Atomic int *used, size_t stride, int count, int from); /* the place of a free one, now CLAIMED; -1 */
int sv_memory(int process); /* a descriptor of its memory; -1 where it is gone */
int64_t sv_now_ns(void);

/* ---- adapters.c */
void sv_read_machine(void); /* after sv_begin: the devices of this node, its ports in the fabric */
Port *sv_port(Handle *context, int number); /* NULL where there is none */
int sv_is_up(Port *port);
void sv_count(Port *port, const char *counter); /* one more, in what lies over /sys, where the port is of this node */
int sv_is_hit(Port *port, const Fault *fault); /* by a fault that begins with a message and may end with one */
int sv_has_fault(const char *setting, const char *adapter, Fault *out); /* on this node */
void sv_tell(Qp *qp, int event);

/* ---- queue.c: the calls that NCCL makes through the context */
int sv_poll(Cq *cq, int most, Completion *out);
int sv_post_send(Qp *qp, SendRequest *request, SendRequest **bad);
int sv_post_receive(Qp *qp, ReceiveRequest *request, ReceiveRequest **bad);
