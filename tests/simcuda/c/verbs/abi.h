/* The binary interface of libibverbs on x86-64 as far as NCCL uses it: sizes, offsets and numbers; the names are ours. */
#pragma once
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum { LINK_IB = 1, LINK_ETHERNET = 2, STATE_DOWN = 1, STATE_ACTIVE = 4 };
enum { QP_RESET, QP_INIT, QP_RTR, QP_RTS, QP_SQD, QP_SQE, QP_ERROR };
enum { SETS_STATE = 1 << 0, SETS_PORT = 1 << 5, SETS_ADDRESS = 1 << 7 };
enum { WRITE, WRITE_WITH_IMM, SEND, SEND_WITH_IMM, READ };
enum { FLAG_SIGNALED = 1 << 1, FLAG_INLINE = 1 << 3 };
enum { MAY_WRITE_HERE = 1, MAY_BE_WRITTEN = 2, MAY_BE_READ = 4 };
enum { STATUS_OK = 0, STATUS_LOCAL_PROTECTION = 4, STATUS_FLUSHED = 5, STATUS_REMOTE_ACCESS = 10, STATUS_RETRIES = 12 };
enum { DID_WRITE = 1, DID_READ = 2, DID_RECEIVE = 128, DID_RECEIVE_IMM = 129 };
enum { EVENT_QP_ACCESS = 3, EVENT_PORT_ACTIVE = 9, EVENT_PORT_ERROR = 10 };
enum { OPS = 32, OP_POLL = 11, OP_POST_SEND = 25, OP_POST_RECEIVE = 26 }; /* places in a context's table of functions */

typedef union { uint8_t bytes[16]; uint64_t words[2]; } Gid;

typedef struct {
    void *ops[2];
    int kind, transport;
    char name[64], node[64], node_path[256], path[256];
} Device;

typedef struct {
    char firmware[64];
    uint64_t guid, system_guid, most_mr_bytes, page_sizes;
    uint32_t vendor, part, revision;
    int most_qp, most_qp_wr, flags, most_sge, most_sge_read, most_cq, most_cqe, most_mr, most_pd;
    int not_asked[20]; /* limits of atomics, multicast, shared receive queues and so on */
    uint16_t pkeys;
    uint8_t ack_delay, ports;
} DeviceAttributes;

typedef struct {
    int state, most_mtu, mtu, gids;
    uint32_t flags, most_bytes, bad_pkeys, bad_qkeys;
    uint16_t pkeys, lid, sm_lid;
    uint8_t lmc, vls, sl, timeout, init, width, speed, phys_state, link, more;
} PortAttributes; /* what IBVERBS_1.1 fills */

typedef struct {
    Device *device;
    void *ops[OPS];
    int command_fd, event_fd, vectors;
    pthread_mutex_t mutex;
    void *newer; /* NULL: no extended calls, NCCL then goes without */
} Handle;

typedef struct { Handle *context; uint32_t handle; } Pd;
typedef struct { Handle *context; Pd *pd; void *address; size_t length; uint32_t handle, lkey, rkey; } Mr;
typedef struct {
    Handle *context;
    void *channel, *user;
    uint32_t handle;
    int entries;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t acknowledged[2];
} Cq;
typedef struct {
    Handle *context;
    void *user;
    Pd *pd;
    Cq *send_cq, *receive_cq;
    void *shared_receives;
    uint32_t handle, number;
    int state, kind;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t acknowledged;
} Qp;

typedef struct { uint32_t sends, receives, send_sges, receive_sges, inline_bytes; } QpCapacity;
typedef struct {
    void *user;
    Cq *send_cq, *receive_cq;
    void *shared_receives;
    QpCapacity capacity;
    int kind, all_signaled;
} QpRequest;
typedef struct {
    Gid gid;
    uint32_t flow;
    uint8_t gid_index, hops, traffic_class;
    uint16_t lid; /* what follows is beside the route, and lies where the compiler puts it */
    uint8_t sl, path_bits, rate, is_global, port;
} Address;
typedef struct {
    int state, current, mtu, migration;
    uint32_t qkey, receive_psn, send_psn, peer;
    int access;
    QpCapacity capacity;
    Address address, other_address;
    uint16_t pkey_index, other_pkey_index;
    uint8_t notify, draining, reads, peer_reads, rnr_timer, port, timeout, retries, rnr_retries, other_port, other_timeout;
} QpAttributes;

typedef struct { uint64_t address; uint32_t length, lkey; } Sge;
typedef struct SendRequest {
    uint64_t id;
    struct SendRequest *next;
    Sge *sges;
    int sge_count, opcode, flags;
    uint32_t imm;
    uint64_t remote; /* this and the key are those of RDMA; atomics would have others here */
    uint32_t rkey, rest[3], unused[4];
} SendRequest;
typedef struct ReceiveRequest { uint64_t id; struct ReceiveRequest *next; Sge *sges; int sge_count; } ReceiveRequest;
typedef struct {
    uint64_t id;
    int status, did;
    uint32_t vendor_error, bytes, imm, qp, source_qp;
    int flags;
    uint16_t pkey_index, source_lid;
    uint8_t sl, path_bits;
} Completion;
typedef struct { union { Qp *qp; int port; void *any; } of; int type; } Event;

_Static_assert(sizeof(Device) == 664 && sizeof(DeviceAttributes) == 232 && offsetof(DeviceAttributes, ports) == 227, "device");
_Static_assert(sizeof(PortAttributes) == 48 && sizeof(Handle) == 328 && sizeof(Mr) == 48 && sizeof(Cq) == 128, "objects");
_Static_assert(sizeof(Qp) == 160 && offsetof(Qp, state) == 56 && sizeof(QpRequest) == 64 && sizeof(Address) == 32, "queue pair");
_Static_assert(sizeof(QpAttributes) == 136 && sizeof(SendRequest) == 80 && sizeof(ReceiveRequest) == 32, "requests");
_Static_assert(sizeof(Completion) == 48 && sizeof(Event) == 16, "completion");
