/* Streams: a thread each runs what was queued, in order, so that work takes time and what hangs stays unfinished. */
#include "simcuda.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct Op { Work work; void *argument; struct Op *next; } Op;
struct Stream {
    int ordinal, priority, has_thread, gone;
    unsigned flags;
    uint64_t queued, done; /* tickets */
    Op *first, **last;
    pthread_cond_t fed;
    unsigned long long id;
    struct Stream *next;
};

/* One lock for all: a simulated GPU has few streams, and what takes long runs without it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static Stream *streams, defaults[MOST_GPUS];
static CUresult broken[MOST_GPUS];

double sim_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void sim_break(int ordinal, CUresult error) {
    pthread_mutex_lock(&lock);
    if (!broken[ordinal]) broken[ordinal] = error;
    pthread_mutex_unlock(&lock);
}
CUresult sim_broken(int ordinal) {
    const Gpu *gpu = sim_gpu(ordinal);
    return broken[ordinal] ? broken[ordinal] : gpu ? sim_gpu_health(gpu->index) : CUDA_ERROR_INVALID_DEVICE;
}
int sim_stream_ordinal(Stream *stream) { return stream->ordinal; }

static void *serve(void *argument) {
    Stream *stream = argument;
    sim_use(stream->ordinal);
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!stream->first && !stream->gone) pthread_cond_wait(&stream->fed, &lock);
        Op *op = stream->first;
        if (!op) break;
        stream->first = op->next;
        if (!stream->first) stream->last = &stream->first;
        pthread_mutex_unlock(&lock);
        op->work(op->argument);
        free(op);
        pthread_mutex_lock(&lock);
        stream->done++;
        pthread_cond_broadcast(&progress);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void begin(Stream *stream, int ordinal, unsigned flags) {
    static unsigned long long ids;
    stream->ordinal = ordinal;
    stream->flags = flags;
    stream->last = &stream->first;
    stream->id = ++ids;
    pthread_cond_init(&stream->fed, NULL);
}

/* 0, 1 and 2 are CUDA's own handles: the default stream, the legacy one, the thread's (which is not told apart here). */
Stream *sim_stream(CUstream handle) {
    if ((uintptr_t)handle > 2) return (Stream *)handle;
    int ordinal = sim_ordinal();
    pthread_mutex_lock(&lock);
    if (!defaults[ordinal].last) begin(&defaults[ordinal], ordinal, 0);
    pthread_mutex_unlock(&lock);
    return &defaults[ordinal];
}

static uint64_t push(Stream *stream, Work work, void *argument) {
    Op *op = malloc(sizeof *op);
    *op = (Op){work, argument, NULL};
    *stream->last = op;
    stream->last = &op->next;
    if (!stream->has_thread) {
        pthread_t thread;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        stream->has_thread = 1;
        if (pthread_create(&thread, &attributes, serve, stream)) abort();
    }
    pthread_cond_signal(&stream->fed);
    return ++stream->queued;
}

typedef struct { Stream *stream; uint64_t ticket; } Until;
static void wait_for(void *argument) {
    Until *until = argument;
    pthread_mutex_lock(&lock);
    while (until->stream->done < until->ticket) pthread_cond_wait(&progress, &lock);
    pthread_mutex_unlock(&lock);
    free(until);
}
static void push_wait(Stream *stream, Stream *on, uint64_t ticket) {
    if (on == stream || on->done >= ticket) return;
    Until *until = malloc(sizeof *until);
    *until = (Until){on, ticket};
    push(stream, wait_for, until);
}

/* The legacy default stream waits for all streams of its GPU that were not made non-blocking, and they for it. */
static void order(Stream *stream) {
    Stream *legacy = &defaults[stream->ordinal];
    if (stream != legacy) {
        if (!(stream->flags & CU_STREAM_NON_BLOCKING)) push_wait(stream, legacy, legacy->queued);
        return;
    }
    for (Stream *other = streams; other; other = other->next)
        if (other->ordinal == stream->ordinal && !(other->flags & CU_STREAM_NON_BLOCKING)) push_wait(stream, other, other->queued);
}

uint64_t sim_queue(Stream *stream, Work work, void *argument) {
    pthread_mutex_lock(&lock);
    order(stream);
    uint64_t ticket = push(stream, work, argument);
    pthread_mutex_unlock(&lock);
    return ticket;
}

CUresult sim_wait(Stream *stream, uint64_t ticket) {
    pthread_mutex_lock(&lock);
    while (stream->done < ticket && !broken[stream->ordinal]) pthread_cond_wait(&progress, &lock);
    pthread_mutex_unlock(&lock);
    return sim_broken(stream->ordinal);
}

CUresult sim_wait_device(int ordinal) {
    CUresult result = defaults[ordinal].last ? sim_wait(&defaults[ordinal], defaults[ordinal].queued) : CUDA_SUCCESS;
    for (Stream *each = streams; each && !result; each = each->next)
        if (each->ordinal == ordinal) result = sim_wait(each, each->queued);
    return result ? result : sim_broken(ordinal);
}

CUresult sim_run(CUstream handle, Work work, void *argument, int wait) {
    ENTER;
    Stream *stream = sim_stream(handle);
    CUresult result = sim_broken(stream->ordinal);
    if (result) return result;
    uint64_t ticket = sim_queue(stream, work, argument);
    return wait ? sim_wait(stream, ticket) : CUDA_SUCCESS;
}

API CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority) {
    ENTER;
    Stream *made = calloc(1, sizeof *made);
    pthread_mutex_lock(&lock);
    begin(made, sim_ordinal(), flags);
    made->priority = priority;
    made->next = streams;
    streams = made;
    pthread_mutex_unlock(&lock);
    *out = (CUstream)made;
    return CUDA_SUCCESS;
}
API CUresult cuStreamCreate(CUstream *out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }
/* What was queued is still done, by the thread that ends then; the few bytes stay, since events may name them. */
API CUresult cuStreamDestroy(CUstream handle) {
    ENTER;
    Stream *stream = sim_stream(handle);
    pthread_mutex_lock(&lock);
    for (Stream **at = &streams; *at; at = &(*at)->next)
        if (*at == stream) {
            *at = stream->next;
            break;
        }
    stream->gone = 1;
    pthread_cond_signal(&stream->fed);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}
API CUresult cuStreamSynchronize(CUstream handle) { ENTER; Stream *s = sim_stream(handle); return sim_wait(s, s->queued); }
API CUresult cuStreamQuery(CUstream handle) {
    ENTER;
    Stream *s = sim_stream(handle);
    CUresult result = sim_broken(s->ordinal);
    return result ? result : s->done < s->queued ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
API CUresult cuStreamGetPriority(CUstream s, int *out) { *out = sim_stream(s)->priority; return CUDA_SUCCESS; }
API CUresult cuStreamGetFlags(CUstream s, unsigned *out) { *out = sim_stream(s)->flags; return CUDA_SUCCESS; }
API CUresult cuStreamGetDevice(CUstream s, CUdevice *out) { *out = sim_stream(s)->ordinal; return CUDA_SUCCESS; }
API CUresult cuStreamGetCtx(CUstream s, CUcontext *out) { return cuDevicePrimaryCtxRetain(out, sim_stream(s)->ordinal); }
API CUresult cuStreamGetId(CUstream s, unsigned long long *out) { *out = sim_stream(s)->id; return CUDA_SUCCESS; }

/* Graphs are not simulated: nothing is ever being captured, and beginning a capture is refused. */
API CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *out) { (void)s; *out = CU_STREAM_CAPTURE_STATUS_NONE; return CUDA_SUCCESS; }
API CUresult cuStreamGetCaptureInfo_v2(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **nodes, size_t *count) {
    (void)s;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (id) *id = 0;
    if (graph) *graph = NULL;
    if (nodes) *nodes = NULL;
    if (count) *count = 0;
    return CUDA_SUCCESS;
}
API CUresult cuStreamGetCaptureInfo_v3(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *count) {
    if (edges) *edges = NULL;
    return cuStreamGetCaptureInfo_v2(s, status, id, graph, nodes, count);
}
API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    static __thread CUstreamCaptureMode current;
    CUstreamCaptureMode before = current;
    current = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

/* ---- events */
typedef struct { unsigned flags; Stream *stream; uint64_t ticket; double stamp_s; } Event;
static void stamp(void *argument) { ((Event *)argument)->stamp_s = sim_now(); }

API CUresult cuEventCreate(CUevent *out, unsigned flags) {
    ENTER;
    Event *made = calloc(1, sizeof *made);
    made->flags = flags;
    *out = (CUevent)made;
    return CUDA_SUCCESS;
}
API CUresult cuEventDestroy(CUevent e) { (void)e; ENTER; return CUDA_SUCCESS; } /* its stamp may still be queued: it stays */
API CUresult cuEventRecord(CUevent e, CUstream s) {
    ENTER;
    Event *event = (Event *)e;
    Stream *stream = sim_stream(s);
    CUresult result = sim_broken(stream->ordinal);
    if (result) return result;
    pthread_mutex_lock(&lock);
    order(stream);
    event->ticket = push(stream, stamp, event);
    event->stream = stream;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}
API CUresult cuEventRecordWithFlags(CUevent e, CUstream s, unsigned flags) { (void)flags; return cuEventRecord(e, s); }
API CUresult cuEventQuery(CUevent e) {
    ENTER;
    Event *event = (Event *)e;
    CUresult result = event->stream ? sim_broken(event->stream->ordinal) : CUDA_SUCCESS;
    return result ? result : event->stream && event->stream->done < event->ticket ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
API CUresult cuEventSynchronize(CUevent e) {
    ENTER;
    Event *event = (Event *)e;
    return event->stream ? sim_wait(event->stream, event->ticket) : CUDA_SUCCESS;
}
API CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
    ENTER;
    Event *a = (Event *)from, *b = (Event *)to;
    if (!a->stream || !b->stream || ((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING)) return CUDA_ERROR_INVALID_HANDLE;
    if (cuEventQuery(from) || cuEventQuery(to)) return CUDA_ERROR_NOT_READY;
    *ms = (float)((b->stamp_s - a->stamp_s) * 1e3);
    return CUDA_SUCCESS;
}
API CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags) {
    (void)flags;
    ENTER;
    Event *event = (Event *)e;
    Stream *stream = sim_stream(s);
    pthread_mutex_lock(&lock);
    if (event->stream) push_wait(stream, event->stream, event->ticket);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* ---- host functions and values in stream order */
typedef struct { CUhostFn function; CUstreamCallback callback; CUstream stream; void *data; } Call;
static void call(void *argument) {
    Call *c = argument;
    if (c->function) c->function(c->data);
    else c->callback(c->stream, CUDA_SUCCESS, c->data);
    free(c);
}
API CUresult cuLaunchHostFunc(CUstream s, CUhostFn function, void *data) {
    Call *c = malloc(sizeof *c);
    *c = (Call){.function = function, .data = data};
    return sim_run(s, call, c, 0);
}
API CUresult cuStreamAddCallback(CUstream s, CUstreamCallback callback, void *data, unsigned flags) {
    (void)flags;
    Call *c = malloc(sizeof *c);
    *c = (Call){.callback = callback, .stream = s, .data = data};
    return sim_run(s, call, c, 0);
}
typedef struct { volatile void *at; uint64_t value; int width; } Value;
static void write_value(void *argument) {
    Value *v = argument;
    if (v->width == 8) *(volatile uint64_t *)v->at = v->value;
    else *(volatile uint32_t *)v->at = (uint32_t)v->value;
    free(v);
}
static CUresult write_later(CUstream s, CUdeviceptr p, uint64_t value, int width) {
    Value *v = malloc(sizeof *v);
    *v = (Value){(volatile void *)p, value, width};
    return sim_run(s, write_value, v, 0);
}
API CUresult cuStreamWriteValue32(CUstream s, CUdeviceptr p, cuuint32_t v, unsigned f) { (void)f; return write_later(s, p, v, 4); }
API CUresult cuStreamWriteValue64(CUstream s, CUdeviceptr p, cuuint64_t v, unsigned f) { (void)f; return write_later(s, p, v, 8); }
