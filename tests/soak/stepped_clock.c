/* Preloaded into a job's processes: the time of day is so many seconds ahead as the file SOAK_CLOCK holds (int64).
 * Monotonic clocks stay as they are, as where somebody sets a machine's clock. Waits until a time of day are told the
 * kernel in its own time, else they would last as long as the clock is ahead; its stamps on datagrams are set forward.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *ahead;

__attribute__((constructor)) static void find_file(void) {
    const char *path = getenv("SOAK_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) ahead = mapped;
    close(file);
}

typedef long (*syscall_function)(long, ...);

static syscall_function libc_syscall(void) {
    static syscall_function found;
    if (!found) found = (syscall_function)dlsym(RTLD_NEXT, "syscall");
    return found;
}

/* No monotonic clock has come as far as the time of day. */
static struct timespec of_kernel(const struct timespec *until) {
    return (struct timespec){until->tv_sec - (ahead && until->tv_sec > 1000000000 ? *ahead : 0), until->tv_nsec};
}

/* Abseil, and gRPC with it, waits by this call. */
long syscall(long number, ...) {
    long given[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; i++) given[i] = va_arg(rest, long);
    va_end(rest);
    struct timespec until;
    if (number == SYS_futex && (given[1] & FUTEX_CLOCK_REALTIME) && given[3]) {
        until = of_kernel((const struct timespec *)given[3]);
        given[3] = (long)&until;
    }
    return libc_syscall()(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    static int (*found)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!found) *(void **)&found = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");  /* x86 has an older one */
    if (!found) *(void **)&found = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec kernel = of_kernel(until);
    return found(cond, mutex, &kernel);
}

int sem_timedwait(sem_t *restrict sem, const struct timespec *restrict until) {
    static int (*found)(sem_t *, const struct timespec *);
    if (!found) *(void **)&found = dlsym(RTLD_NEXT, "sem_timedwait");
    struct timespec kernel = of_kernel(until);
    return found(sem, &kernel);
}

ssize_t recvmsg(int socket, struct msghdr *message, int flags) {
    ssize_t received = libc_syscall()(SYS_recvmsg, socket, message, flags, 0, 0, 0);
    struct cmsghdr *part = received < 0 || !ahead ? NULL : CMSG_FIRSTHDR(message);
    for (; part; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SO_TIMESTAMPNS) continue;
        struct timespec stamp;
        memcpy(&stamp, CMSG_DATA(part), sizeof stamp);
        stamp.tv_sec += *ahead;
        memcpy(CMSG_DATA(part), &stamp, sizeof stamp);
    }
    return received;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    long failed = libc_syscall()(SYS_clock_gettime, clock, now);
    if (!failed && ahead && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *ahead;
    return (int)failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    *now = (struct timeval){exact.tv_sec, exact.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *out) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (out) *out = exact.tv_sec;
    return exact.tv_sec;
}
