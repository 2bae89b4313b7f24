/* What NCCL 2.27.5's kernels are given: their layout is that of its src/include/device.h and comm.h (public, BSD), in our names.
 *
 * A new version: docs/dev/testing.md says how these are found, and launch.c refuses a version that is not this one.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define NCCL_VERSION_KNOWN 22705
enum { STEPS = 8, PROTOCOLS = 3, CHANNELS = 64 };
enum { PROTO_LL, PROTO_LL128, PROTO_SIMPLE };
enum { ALGO_TREE, ALGO_RING, ALGORITHMS = 7 };
enum { FIFO_NORMAL, FIFO_OFFSET, FIFO_POINTER };

typedef struct { int mode, offset; ssize_t size; void *pointer; } Fifo;
typedef struct {
    char *buffers[PROTOCOLS];
    void *registered[PROTOCOLS];
    volatile uint64_t *tail, *head;
    int flags, shared, step_bytes;
    void **pointer_exchange;
    uint64_t *operation_exchange;
    volatile Fifo *fifo;
    uint64_t step, cleaned;
    char device[32];
} Connection;
typedef struct { Connection send[2], receive[2]; } Peer;
typedef struct { Peer **peers; int previous, next; int *user_ranks; int index; char others[368 - 32]; } Channel;
typedef struct {
    int rank, ranks, node, nodes, buffer_bytes[PROTOCOLS], p2p_chunk_bytes, all_nvlink;
    int *dense_to_user;
    volatile uint32_t *abort_flag;
    Channel *channels;
} DeviceComm;

enum { STORED_IN_ARGUMENTS, STORED_IN_FIFO, STORED_FOR_GRAPH };
typedef struct { DeviceComm *comm; uint64_t channel_mask; uint8_t storage; uint32_t work_mask; char *work; } KernelArguments;
enum { WORK_P2P, WORK_COLLECTIVE, WORK_COLLECTIVE_REGISTERED };
typedef struct {
    uint32_t next_jump : 14, next_extends : 1, work_type : 2, function : 15;
    uint32_t offset;
    uint64_t offset_bits;
} Batch;
typedef struct {
    uint32_t channel_low : 8, channel_high : 8, warps : 8, operand_is_pointer : 1, registered : 1, net_registered : 1, one_node : 1, direct : 2, one_rank_per_node : 1, profiled : 1;
    uint32_t root;
    char *receive, *send;
    uint64_t unused[4];
    size_t count_low, count_middle, count_high;
    uint64_t grains_low : 21, grains_middle : 21, grains_high : 21;
    uint64_t operand;
} CollectiveWork;
typedef struct {
    char *send, *receive;
    size_t send_bytes, receive_bytes;
    int send_rank, receive_rank;
    uint8_t parts, channel_base, send_channels, receive_channels, send_chunk, receive_chunk;
    uint8_t send_ll : 1, receive_ll : 1, send_net_registered : 1, receive_net_registered : 1, send_registered : 1, receive_registered : 1, profiled : 1;
    uint8_t padding;
} P2pWork;

_Static_assert(sizeof(Connection) == 152, "ncclConnInfo");
_Static_assert(sizeof(Channel) == 368, "ncclDevChannel");
_Static_assert(sizeof(Batch) == 16, "ncclDevWorkBatch");
_Static_assert(sizeof(CollectiveWork) == 96, "ncclDevWorkColl");
_Static_assert(sizeof(P2pWork) == 48, "ncclDevWorkP2p");
