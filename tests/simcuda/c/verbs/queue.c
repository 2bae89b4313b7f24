/* Queue pairs and completions of reliable connections. No thread works here: whoever posts or polls does what is due. */
#include "fabric.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SGES = 4, INLINED = 512, PAYLOAD = 4096 }; /* what is shorter is NCCL's own bookkeeping */
enum { FLUSH_CODE = 249, ACK_CODE = 129, ACCESS_CODE = 136, LOCAL_CODE = 81 }; /* mlx5's vendor errors */
#define ACK_UNIT_NS 4096L /* << timeout: how long a packet waits for its acknowledgement */

typedef struct { SendRequest request; Sge sges[SGES]; uint8_t inlined[INLINED]; int64_t due_ns; } Posted;
typedef struct Pair {
    Qp qp;
    SharedPair *shared;
    QpRequest request;
    QpAttributes attributes;
    Posted *works; /* a ring: posted and not done */
    uint32_t room, first, end;
    uint64_t receives[RECEIVES]; /* ids; shared->posted is the ring's end */
    uint32_t taken;              /* arrivals that have become completions */
    int tries;
    int64_t tried_ns;
    struct Pair *next;
} Pair;
typedef struct { Cq cq; pthread_mutex_t lock; Completion *done; uint32_t room, first, end; Pair *pairs; } Queue;

static Queue *queue_of(Qp *qp) { return (Queue *)qp->send_cq; }

/* ------------------------------------------------------------------ completion queues */
VERB Cq *ibv_create_cq(Handle *context, int entries, void *user, void *channel, int vector) {
    (void)vector;
    Queue *queue = calloc(1, sizeof *queue);
    queue->cq = (Cq){.context = context, .channel = channel, .user = user, .entries = entries};
    queue->room = 8192;
    queue->done = calloc(queue->room, sizeof *queue->done);
    pthread_mutex_init(&queue->lock, NULL);
    return &queue->cq;
}
VERB int ibv_destroy_cq(Cq *cq) {
    Queue *queue = (Queue *)cq;
    if (queue->pairs) return EBUSY;
    free(queue->done);
    free(queue);
    return 0;
}

static void complete(Pair *pair, Completion completion) {
    Queue *queue = queue_of(&pair->qp);
    completion.qp = pair->qp.number;
    if (queue->end - queue->first < queue->room) queue->done[queue->end++ % queue->room] = completion;
    else sim_log(0, "a completion queue is full");
}

/* ------------------------------------------------------------------ errors */
static void flush(Pair *pair) {
    pair->qp.state = pair->shared->state = QP_ERROR;
    for (; pair->first != pair->end; pair->first++)
        complete(pair, (Completion){.id = pair->works[pair->first % pair->room].request.id, .status = STATUS_FLUSHED, .vendor_error = FLUSH_CODE});
    for (uint32_t at = pair->shared->arrived; at != pair->shared->posted; at++)
        complete(pair, (Completion){.id = pair->receives[at % RECEIVES], .status = STATUS_FLUSHED, .did = DID_RECEIVE, .vendor_error = FLUSH_CODE});
    pair->shared->arrived = pair->taken = pair->shared->posted;
}

static void give_up(Pair *pair, int status, uint32_t code) {
    Posted *work = &pair->works[pair->first++ % pair->room];
    sim_log(1, "queue pair %u: request %d ends with status %d", pair->qp.number, work->request.opcode, status);
    complete(pair, (Completion){.id = work->request.id, .status = status, .vendor_error = code});
    flush(pair);
}

/* ------------------------------------------------------------------ the way of a message */
static Region *region_of(uint32_t key, int process, uint64_t address, uint64_t length, int access) {
    Region *region = &fabric->regions[key % REGIONS];
    int is_right = region->used == READY && region->generation == key >> 16 && region->process == process && (region->access & access) == access;
    return is_right && address >= region->address && address + length <= region->address + region->length ? region : NULL;
}

/* The other end, NULL where what is sent there is heard by nobody. */
static SharedPair *heard_by(Pair *pair) {
    SharedPair *mine = pair->shared, *peer = &fabric->pairs[mine->peer % PAIRS];
    if (mine->peer_port < 0) return NULL;
    Port *from = &fabric->ports[mine->port], *to = &fabric->ports[mine->peer_port];
    int is_way = sv_is_up(from) && sv_is_up(to) && from->link == to->link && !strcmp(from->network, to->network);
    int is_peer = peer->used == READY && peer->generation == mine->peer / PAIRS && peer->port == mine->peer_port && peer->peer == pair->qp.number;
    int listens = peer->state == QP_RTR || peer->state == QP_RTS;
    int is_member = (peer->pkey & 0x7fff) == (mine->pkey & 0x7fff) && (peer->pkey | mine->pkey) & 0x8000; /* of a partition, one fully */
    return is_way && is_peer && listens && is_member && (from->link == LINK_IB || peer->version == mine->version) ? peer : NULL;
}

/* Returns 0 where the bytes are over, -1 where the process is gone. */
static int carry(int process, uint64_t there, uint64_t here, uint64_t bytes, int is_read, int is_changed) {
    char *mine = (char *)(uintptr_t)here, *copy = NULL;
    int memory = process == own_process ? -1 : sv_memory(process), code = 0;
    if (is_changed) {
        mine = memcpy(copy = malloc(bytes), mine, bytes);
        copy[bytes / 2] ^= 0x40;
    }
    if (process == own_process && is_read) memcpy(mine, (void *)(uintptr_t)there, bytes);
    else if (process == own_process) memcpy((void *)(uintptr_t)there, mine, bytes);
    for (uint64_t over = 0; process != own_process && over < bytes && !code;) {
        off_t at = (off_t)(there + over);
        ssize_t n = is_read ? pread(memory, mine + over, bytes - over, at) : pwrite(memory, mine + over, bytes - over, at);
        if (n > 0) over += (uint64_t)n;
        else code = -1;
    }
    free(copy);
    return code;
}

/* IB_MB_S=mlx5_0:50: when so many bytes are through the port, behind what it has already. */
static int64_t through_ns(Port *port, uint64_t bytes) {
    if (!port->mb_s.is_on || port->mb_s.first < 1) return 0;
    int64_t now = sv_now_ns(), free_ns = port->free_ns, until;
    do until = (free_ns > now ? free_ns : now) + (int64_t)bytes * 1000 / port->mb_s.first;
    while (!atomic_compare_exchange_weak(&port->free_ns, &free_ns, until));
    return until;
}

enum { IS_DONE, IS_WAITING, IS_LOST, HAS_FAILED };
static int attempt(Pair *pair, Posted *work) {
    SendRequest *request = &work->request;
    SharedPair *mine = pair->shared, *peer = heard_by(pair);
    if (!peer) return IS_LOST;
    Port *from = &fabric->ports[mine->port], *to = &fabric->ports[mine->peer_port];
    if (sv_is_hit(from, &from->kills) && !atomic_exchange(&from->has_killed, 1)) raise(SIGKILL);
    int is_read = request->opcode == READ, has_imm = request->opcode == WRITE_WITH_IMM, is_gpu = 0, sges = request->sge_count;
    if (request->opcode != WRITE && !has_imm && !is_read) {
        sim_log(0, "REFUSED: a request of kind %d", request->opcode);
        return give_up(pair, STATUS_LOCAL_PROTECTION, LOCAL_CODE), HAS_FAILED;
    }
    uint64_t bytes = 0;
    for (int i = 0; i < sges; i++) bytes += work->sges[i].length;
    if (!work->due_ns) {
        int64_t one = through_ns(from, bytes), other = to == from ? 0 : through_ns(to, bytes);
        work->due_ns = one > other ? one : other ? other : 1;
    }
    if (sv_now_ns() < work->due_ns) return IS_WAITING;
    if (sv_is_hit(from, &from->loses) || sv_is_hit(to, &to->loses) || sv_is_hit(from, &from->loses_sent)) {
        from->messages++; /* a loss of a few messages has an end */
        return IS_LOST;
    }
    if (has_imm && peer->posted == peer->arrived) return IS_WAITING; /* receiver not ready: NCCL's 7 retries are for ever */
    for (int i = 0; i < sges && !(request->flags & FLAG_INLINE); i++) {
        Sge *sge = &work->sges[i];
        Region *region = region_of(sge->lkey, own_process, sge->address, sge->length, is_read ? MAY_WRITE_HERE : 0);
        if (sge->length && !region) return give_up(pair, STATUS_LOCAL_PROTECTION, LOCAL_CODE), HAS_FAILED;
        is_gpu |= region && region->is_gpu;
    }
    int access = is_read ? MAY_BE_READ : MAY_BE_WRITTEN;
    Region *target = bytes ? region_of(request->rkey, peer->process, request->remote, bytes, access) : NULL;
    if (bytes && (!target || !(peer->access & access))) {
        peer->was_refused = 1;
        return give_up(pair, STATUS_REMOTE_ACCESS, ACCESS_CODE), HAS_FAILED;
    }
    is_gpu |= target && target->is_gpu;
    int is_hit = sv_is_hit(from, &from->changes) || sv_is_hit(to, &to->changes);
    is_hit |= is_gpu && (sv_is_hit(from, &from->changes_gpu) || sv_is_hit(to, &to->changes_gpu));
    uint64_t over = 0;
    for (Sge *sge = work->sges; sge < work->sges + sges; over += sge++->length) {
        int is_changed = is_hit && !is_read && sge->length >= PAYLOAD;
        if (carry(peer->process, request->remote + over, sge->address, sge->length, is_read, is_changed)) return IS_LOST;
    }
    if (has_imm) {
        uint32_t at = peer->arrived;
        peer->arrivals[at % RECEIVES].imm = request->imm, peer->arrivals[at % RECEIVES].bytes = (uint32_t)bytes;
        atomic_store_explicit(&peer->arrived, at + 1, memory_order_release);
    }
    if (request->flags & FLAG_SIGNALED)
        complete(pair, (Completion){.id = request->id, .did = is_read ? DID_READ : DID_WRITE, .bytes = (uint32_t)bytes});
    from->messages++;
    if (to != from) to->messages++;
    return IS_DONE;
}

static void progress(Pair *pair) {
    SharedPair *shared = pair->shared;
    uint32_t arrived = atomic_load_explicit(&shared->arrived, memory_order_acquire);
    for (; pair->qp.state != QP_ERROR && pair->taken != arrived; pair->taken++) {
        uint32_t at = pair->taken % RECEIVES, imm = shared->arrivals[at].imm, bytes = shared->arrivals[at].bytes;
        Completion received = {.did = DID_RECEIVE_IMM, .bytes = bytes, .imm = imm, .flags = 2, .source_qp = shared->peer};
        received.id = pair->receives[at];
        complete(pair, received);
    }
    if (pair->qp.state != QP_RTS) return;
    if (shared->was_refused) { /* the peer wrote where it may not: this end fails as well */
        sv_tell(&pair->qp, EVENT_QP_ACCESS);
        flush(pair);
    }
    static long haste; /* with 64, the 34 s until NCCL's packet is given up are half a second */
    if (!haste) haste = sim_number("IB_HASTE", 1);
    while (pair->first != pair->end) {
        QpAttributes *set = &pair->attributes;
        if (pair->tries && (!set->timeout || sv_now_ns() < pair->tried_ns + (ACK_UNIT_NS << set->timeout) / haste)) return;
        if (pair->tries) sv_count(&fabric->ports[shared->port], "local_ack_timeout_err");
        if (pair->tries > set->retries) return give_up(pair, STATUS_RETRIES, ACK_CODE);
        int ended = attempt(pair, &pair->works[pair->first % pair->room]);
        if (ended == IS_LOST) {
            if (!pair->tries++) sim_log(1, "queue pair %u to %u is not heard", pair->qp.number, shared->peer);
            pair->tried_ns = sv_now_ns();
        }
        if (ended != IS_DONE) return;
        pair->first++;
        pair->tries = 0;
    }
}

/* ------------------------------------------------------------------ queue pairs */
VERB Qp *ibv_create_qp(Pd *pd, QpRequest *request) {
    if (request->send_cq != request->receive_cq) return errno = EOPNOTSUPP, NULL; /* NCCL has one for both */
    int at = sv_claim(&fabric->pairs->used, sizeof *fabric->pairs, PAIRS, own_process * 13 % PAIRS);
    if (at < 0) return errno = ENOMEM, NULL;
    SharedPair *shared = &fabric->pairs[at];
    shared->generation = (shared->generation % 0xfff) + 1;
    shared->process = own_process, shared->port = shared->peer_port = -1, shared->peer = 0;
    shared->posted = 0;
    shared->arrived = 0;
    shared->was_refused = 0;
    shared->state = QP_RESET;
    shared->used = READY;
    Pair *pair = calloc(1, sizeof *pair);
    pair->shared = shared, pair->request = *request, pair->room = request->capacity.sends + 1;
    pair->works = calloc(pair->room, sizeof *pair->works);
    pair->qp = (Qp){
        .context = pd->context, .user = request->user, .pd = pd, .send_cq = request->send_cq, .receive_cq = request->receive_cq,
        .handle = (uint32_t)at, .number = shared->generation * PAIRS + (uint32_t)at, .kind = request->kind};
    Queue *queue = queue_of(&pair->qp);
    pthread_mutex_lock(&queue->lock);
    pair->next = queue->pairs;
    queue->pairs = pair;
    pthread_mutex_unlock(&queue->lock);
    return &pair->qp;
}

VERB int ibv_destroy_qp(Qp *qp) {
    Pair *pair = (Pair *)qp, **at;
    Queue *queue = queue_of(qp);
    pthread_mutex_lock(&queue->lock);
    for (at = &queue->pairs; *at != pair; at = &(*at)->next) continue;
    *at = pair->next;
    pthread_mutex_unlock(&queue->lock);
    pair->shared->state = QP_RESET;
    pair->shared->used = FREE;
    free(pair->works);
    free(pair);
    return 0;
}

static int initialise(Pair *pair, const QpAttributes *to) {
    Port *port = sv_port(pair->qp.context, to->port);
    if (!port || to->pkey_index >= port->pkeys || !(port->pkey[to->pkey_index] & 0x7fff)) return EINVAL;
    pair->shared->port = (int)(port - fabric->ports);
    pair->shared->pkey = port->pkey[to->pkey_index], pair->shared->access = to->access;
    return 0;
}

static int has_address(Port *port, const Address *address) {
    for (int i = 0; address->is_global && i < port->gids; i++)
        if (!memcmp(&port->gid[i], &address->gid, sizeof(Gid))) return 1;
    return port->link == LINK_IB && address->lid && port->lid == address->lid;
}

/* InfiniBand sends into the blue; RoCE asks for the hardware address of the peer first, and is refused without an answer. */
static int get_ready(Pair *pair, const QpAttributes *to) {
    static const Gid nobody;
    Port *port = &fabric->ports[pair->shared->port];
    const Address *address = &to->address;
    int found = -1;
    for (int i = 0; i < ALL_PORTS && found < 0; i++) {
        Port *each = &fabric->ports[i];
        if (each->used == READY && each->link == port->link && has_address(each, address)) found = i;
    }
    if (port->link == LINK_ETHERNET) {
        if (!address->is_global || address->gid_index >= port->gids) return EINVAL;
        if (!memcmp(&port->gid[address->gid_index], &nobody, sizeof nobody)) return ENODATA;
        Port *peer = found < 0 ? NULL : &fabric->ports[found];
        if (!peer || strcmp(peer->network, port->network) || !sv_is_up(peer) || !sv_is_up(port)) return ETIMEDOUT;
        pair->shared->version = port->version[address->gid_index];
    }
    pair->shared->peer = to->peer, pair->shared->peer_port = found;
    SharedPair *other = &fabric->pairs[to->peer % PAIRS];
    if (other->used == READY && other->process != own_process) sv_memory(other->process); /* now that it surely lives */
    return 0;
}

VERB int ibv_modify_qp(Qp *qp, QpAttributes *to, int sets) {
    Pair *pair = (Pair *)qp;
    Queue *queue = queue_of(qp);
    int code = sets & SETS_STATE ? 0 : EINVAL, from = qp->state;
    pthread_mutex_lock(&queue->lock);
    if (!code && to->state == QP_ERROR) flush(pair);
    else if (!code && to->state == QP_INIT && from == QP_RESET) code = initialise(pair, to);
    else if (!code && to->state == QP_RTR && from == QP_INIT) code = get_ready(pair, to);
    else if (!code && to->state == QP_RTS && from == QP_RTR) pair->attributes.timeout = to->timeout & 31, pair->attributes.retries = to->retries & 7;
    else if (to->state != QP_RESET) code = EINVAL;
    if (!code && to->state != QP_ERROR) qp->state = pair->shared->state = to->state;
    if (!code && sets & SETS_ADDRESS) pair->attributes.address = to->address, pair->attributes.peer = to->peer;
    if (!code && sets & SETS_PORT) pair->attributes.port = to->port;
    pthread_mutex_unlock(&queue->lock);
    if (code) sim_log(1, "queue pair %u from state %d to %d: %s", qp->number, from, to->state, strerror(code));
    return code;
}

VERB int ibv_query_qp(Qp *qp, QpAttributes *out, int wanted, QpRequest *request) {
    (void)wanted;
    *out = ((Pair *)qp)->attributes;
    out->state = out->current = qp->state;
    *request = ((Pair *)qp)->request;
    return 0;
}

/* ------------------------------------------------------------------ posting and polling */
int sv_post_send(Qp *qp, SendRequest *request, SendRequest **bad) {
    Pair *pair = (Pair *)qp;
    Queue *queue = queue_of(qp);
    int code = 0;
    pthread_mutex_lock(&queue->lock);
    for (; request && !code; request = code ? request : request->next) {
        if (qp->state == QP_ERROR) {
            complete(pair, (Completion){.id = request->id, .status = STATUS_FLUSHED, .vendor_error = FLUSH_CODE});
        } else if (qp->state != QP_RTS || request->sge_count > SGES || pair->end - pair->first >= pair->room - 1) {
            code = qp->state == QP_RTS && request->sge_count <= SGES ? ENOMEM : EINVAL;
        } else {
            Posted *work = &pair->works[pair->end++ % pair->room];
            work->request = *request;
            work->due_ns = 0;
            for (int i = 0; i < request->sge_count; i++) work->sges[i] = request->sges[i];
            if (request->flags & FLAG_INLINE && request->sge_count == 1 && request->sges->length <= INLINED) {
                memcpy(work->inlined, (void *)(uintptr_t)request->sges->address, request->sges->length);
                work->sges->address = (uintptr_t)work->inlined;
            }
        }
    }
    if (code && bad) *bad = request;
    progress(pair);
    pthread_mutex_unlock(&queue->lock);
    return code;
}

int sv_post_receive(Qp *qp, ReceiveRequest *request, ReceiveRequest **bad) {
    Pair *pair = (Pair *)qp;
    Queue *queue = queue_of(qp);
    int code = 0;
    pthread_mutex_lock(&queue->lock);
    for (; request && !code; request = code ? request : request->next) {
        uint32_t at = pair->shared->posted;
        if (request->sge_count) sim_log(0, "REFUSED: a receive with a buffer");
        if (qp->state == QP_ERROR) {
            complete(pair, (Completion){.id = request->id, .status = STATUS_FLUSHED, .did = DID_RECEIVE, .vendor_error = FLUSH_CODE});
        } else if (at - pair->taken >= RECEIVES) {
            code = ENOMEM;
        } else {
            pair->receives[at % RECEIVES] = request->id;
            atomic_store_explicit(&pair->shared->posted, at + 1, memory_order_release);
        }
    }
    if (code && bad) *bad = request;
    pthread_mutex_unlock(&queue->lock);
    return code;
}

int sv_poll(Cq *cq, int most, Completion *out) {
    static __thread unsigned in_vain;
    Queue *queue = (Queue *)cq;
    int found = 0;
    pthread_mutex_lock(&queue->lock);
    for (Pair *pair = queue->pairs; pair; pair = pair->next) progress(pair);
    while (found < most && queue->first != queue->end) out[found++] = queue->done[queue->first++ % queue->room];
    pthread_mutex_unlock(&queue->lock);
    in_vain = found ? 0 : in_vain + 1;
    if (in_vain > 64 && in_vain % 4 == 0) { /* few cores play all ranks, and one thread polls several queues */
        long pause_ns = 50000L * (1 + (in_vain - 64) / 64);
        nanosleep(&(struct timespec){0, pause_ns < 500000L ? pause_ns : 500000L}, NULL);
    }
    return found;
}
