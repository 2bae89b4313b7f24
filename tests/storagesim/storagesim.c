/* Calls on files as a bad directory answers them. STORAGESIM names what is bad, STORAGESIM_AFTER after how many writes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

static int is(const char *fault) {
    const char *asked = getenv("STORAGESIM");
    return asked && !strcmp(asked, fault);
}

static void stall(void) {
    for (;;)
        sleep(60);
}

static long after(void) {
    const char *count = getenv("STORAGESIM_AFTER");
    return count ? atol(count) : 0;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    static long writes;
    ssize_t (*real)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    if (writes++ >= after()) {
        if (is("stall-write"))
            stall();
        if (is("quota")) {
            errno = EDQUOT;
            return -1;
        }
    }
    if (is("slow"))
        usleep(100000);
    if (is("refuses-direct-writes") && (fcntl(fd, F_GETFL) & O_DIRECT)) {
        errno = EINVAL;
        return -1;
    }
    return real(fd, data, size, offset);
}

ssize_t preadv64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    ssize_t (*real)(int, const void *, int, off64_t, int) = dlsym(RTLD_NEXT, "preadv64v2");
    if (is("stall-read"))
        stall();
    ssize_t got = real(fd, parts, count, offset, flags);
    if (is("wrong-read") && got > 0)
        *(char *)parts->iov_base ^= 1;
    return got;
}

ssize_t preadv64(int fd, const struct iovec *parts, int count, off64_t offset) {
    ssize_t (*real)(int, const void *, int, off64_t) = dlsym(RTLD_NEXT, "preadv64");
    if (is("stall-read"))
        stall();
    return real(fd, parts, count, offset);
}

int fsync(int fd) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
    if (is("stall-fsync"))
        stall();
    return real(fd);
}

int statvfs64(const char *path, struct statvfs64 *room) {
    int (*real)(const char *, struct statvfs64 *) = dlsym(RTLD_NEXT, "statvfs64");
    if (is("stall-look"))
        stall();
    return real(path, room);
}

int openat64(int folder, const char *path, int flags, ...) {
    int (*real)(int, const char *, int, ...) = dlsym(RTLD_NEXT, "openat64");
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    int has_no_name = (flags & O_TMPFILE) == O_TMPFILE;
    if (is("stall-open") && has_no_name)
        stall();
    if (is("no-tmpfile") && has_no_name) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (is("no-direct") && (flags & O_DIRECT)) {
        errno = EINVAL;
        return -1;
    }
    return real(folder, path, flags, mode);
}
