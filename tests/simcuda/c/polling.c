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

ssize_t recv(int socket, void *to, size_t bytes, int flags) {
    static __thread unsigned in_vain;
    ssize_t got = syscall(SYS_recvfrom, socket, to, bytes, flags, NULL, NULL);
    if (got >= 0 || errno != EAGAIN) {
        in_vain = 0;
    } else if (++in_vain > PATIENT_CALLS) { /* the longer nothing came, the longer it may take */
        long pause_ns = PAUSE_NS * (1 + (in_vain - PATIENT_CALLS) / 16);
        nanosleep(&(struct timespec){0, pause_ns < LONGEST_PAUSE_NS ? pause_ns : LONGEST_PAUSE_NS}, NULL);
        errno = EAGAIN;
    }
    return got;
}
