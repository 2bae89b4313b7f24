/* Loaded before libc: NCCL's threads poll their sockets without a pause, which is right where each has a core. Here two cores play
 * all ranks, so whoever polls in vain for a while gives the core to those that it waits for. No answer is changed. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PATIENT_CALLS 50
#define PAUSE_NS 50000L
#define LONGEST_PAUSE_NS 1000000L

/* How long somebody rests who has asked so many times in vain: the longer nothing came, the longer it may take. */
static void rest(unsigned in_vain, unsigned step) {
    long pause_ns = PAUSE_NS * (1 + (in_vain - PATIENT_CALLS) / step);
    nanosleep(&(struct timespec){0, pause_ns < LONGEST_PAUSE_NS ? pause_ns : LONGEST_PAUSE_NS}, NULL);
}

ssize_t recv(int socket, void *to, size_t bytes, int flags) {
    static __thread unsigned in_vain;
    ssize_t got = syscall(SYS_recvfrom, socket, to, bytes, flags, NULL, NULL);
    if (got >= 0 || errno != EAGAIN) {
        in_vain = 0;
    } else if (++in_vain > PATIENT_CALLS) {
        rest(in_vain, 16);
        errno = EAGAIN;
    }
    return got;
}

/* With RDMA a thread of NCCL's polls memory instead of a socket, and yields after each look. Calls that follow each other
 * at once are such looks; a yield after a while is not. */
int sched_yield(void) {
    static __thread unsigned in_vain;
    static __thread long before_ns;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long since_ns = now.tv_sec * 1000000000L + now.tv_nsec - before_ns;
    in_vain = since_ns < LONGEST_PAUSE_NS ? in_vain + 1 : 0;
    if (in_vain > PATIENT_CALLS) rest(in_vain, 64);
    else syscall(SYS_sched_yield);
    clock_gettime(CLOCK_MONOTONIC, &now);
    before_ns = now.tv_sec * 1000000000L + now.tv_nsec;
    return 0;
}
