/* Stands between a process and libc's file calls: counts those on files below one folder, and before the n-th of them
   sends the process a signal, or lets the call fail. Preloaded by tests/faults/shim.py; does nothing until armed. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define REAL(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))

static char folder[PATH_MAX], kinds[256], matching[PATH_MAX];
static size_t folder_length;
static atomic_long calls;
static long chosen;
static int failure, sent, log_to = -1;
static volatile int armed;
static unsigned shuffled;

/* Of the calls on paths below `below`, those whose path holds `part` and whose kind is among `which` (each with a space
   before and after; "": all) are counted. Before call number `n`, from 1, the process gets `signal`, or the call fails with
   `error`. All calls below `below` are written to the descriptor `log`, if it is not -1: a line each, kind and path, or two. */
void faults_arm(const char *below, const char *part, const char *which, long n, int error, int signal, int log)
{
    snprintf(folder, sizeof folder, "%s", below);
    snprintf(matching, sizeof matching, "%s", part);
    snprintf(kinds, sizeof kinds, "%s", which);
    folder_length = strlen(folder);
    calls = 0;
    chosen = n;
    failure = error;
    sent = signal;
    log_to = log;
    armed = 1;
}

/* Folders below `below` are listed in an order that follows from `seed`. */
void faults_shuffle(const char *below, unsigned seed)
{
    snprintf(folder, sizeof folder, "%s", below);
    folder_length = strlen(folder);
    shuffled = seed;
}

static void of_descriptor(int descriptor, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = 0;
}

static void of_name(int directory, const char *name, char *path)
{
    if (name == NULL || name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name ? name : "");
        return;
    }
    char base[PATH_MAX];
    if (directory != AT_FDCWD)
        of_descriptor(directory, base);
    else if (syscall(SYS_getcwd, base, sizeof base) < 0)
        base[0] = 0;
    if (name[0] == 0)
        snprintf(path, PATH_MAX, "%s", base);
    else
        snprintf(path, PATH_MAX, "%.*s/%.*s", PATH_MAX / 2, base, PATH_MAX / 2 - 2, name);
}

static int counts(const char *path)
{
    return !strncmp(path, folder, folder_length) && (path[folder_length] == '/' || !path[folder_length]);
}

static int strikes(const char *kind, const char *path, const char *other)
{
    char padded[32];
    if (!counts(path) && !(other && counts(other)))
        return 0;
    if (log_to >= 0) {
        char line[2 * PATH_MAX + 64];
        int length = snprintf(line, sizeof line, "%s\t%s%s%s\n", kind, path, other ? "\t" : "", other ? other : "");
        syscall(SYS_write, log_to, line, length);
    }
    snprintf(padded, sizeof padded, " %s ", kind);
    if ((kinds[0] && !strstr(kinds, padded)) || !(strstr(path, matching) || (other && strstr(other, matching))))
        return 0;
    long n = atomic_fetch_add(&calls, 1) + 1;
    if (n != chosen)
        return 0;
    if (sent) {
        kill(getpid(), sent);
        return 0;
    }
    errno = failure;
    return failure != 0;
}

static int strikes_name(const char *kind, int directory, const char *name)
{
    char path[PATH_MAX];
    if (!armed)
        return 0;
    of_name(directory, name, path);
    return strikes(kind, path, NULL);
}

static int strikes_descriptor(const char *kind, int descriptor)
{
    char path[PATH_MAX];
    if (!armed)
        return 0;
    of_descriptor(descriptor, path);
    return strikes(kind, path, NULL);
}

static int strikes_names(const char *kind, int directory, const char *name, int to_directory, const char *to)
{
    char path[PATH_MAX], other[PATH_MAX];
    if (!armed)
        return 0;
    of_name(directory, name, path);
    of_name(to_directory, to, other);
    return strikes(kind, path, other);
}

#define MODE                                                                                                           \
    mode_t mode = 0;                                                                                                   \
    if (flags & (O_CREAT | __O_TMPFILE)) {                                                                             \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode = va_arg(rest, mode_t);                                                                                   \
        va_end(rest);                                                                                                  \
    }
#define OPEN(name, kind)                                                                                               \
    int name(const char *path, int flags, ...)                                                                         \
    {                                                                                                                  \
        MODE return strikes_name(kind, AT_FDCWD, path) ? -1 : REAL(name)(path, flags, mode);                           \
    }
#define OPENAT(name, kind)                                                                                             \
    int name(int at, const char *path, int flags, ...)                                                                 \
    {                                                                                                                  \
        MODE return strikes_name(kind, at, path) ? -1 : REAL(name)(at, path, flags, mode);                             \
    }
#define BY_NAME(type, name, kind, directory, path, declared, ...)                                                      \
    type name declared                                                                                                 \
    {                                                                                                                  \
        return strikes_name(kind, directory, path) ? (type)-1 : REAL(name)(__VA_ARGS__);                               \
    }
#define BY_DESCRIPTOR(type, name, kind, descriptor, declared, ...)                                                     \
    type name declared                                                                                                 \
    {                                                                                                                  \
        return strikes_descriptor(kind, descriptor) ? (type)-1 : REAL(name)(__VA_ARGS__);                              \
    }
#define BY_NAMES(name, kind, directory, path, to_directory, to, declared, ...)                                         \
    int name declared                                                                                                  \
    {                                                                                                                  \
        return strikes_names(kind, directory, path, to_directory, to) ? -1 : REAL(name)(__VA_ARGS__);                  \
    }

OPEN(open, "open")
OPEN(open64, "open")
OPENAT(openat, "open")
OPENAT(openat64, "open")
BY_DESCRIPTOR(ssize_t, read, "read", fd, (int fd, void *to, size_t n), fd, to, n)
BY_DESCRIPTOR(ssize_t, pread, "read", fd, (int fd, void *to, size_t n, off_t at), fd, to, n, at)
BY_DESCRIPTOR(ssize_t, pread64, "read", fd, (int fd, void *to, size_t n, off64_t at), fd, to, n, at)
BY_DESCRIPTOR(ssize_t, write, "write", fd, (int fd, const void *from, size_t n), fd, from, n)
BY_DESCRIPTOR(ssize_t, pwrite, "write", fd, (int fd, const void *from, size_t n, off_t at), fd, from, n, at)
BY_DESCRIPTOR(ssize_t, pwrite64, "write", fd, (int fd, const void *from, size_t n, off64_t at), fd, from, n, at)
BY_DESCRIPTOR(ssize_t, sendfile, "write", to, (int to, int from, off_t *at, size_t n), to, from, at, n)
BY_DESCRIPTOR(ssize_t, sendfile64, "write", to, (int to, int from, off64_t *at, size_t n), to, from, at, n)
BY_DESCRIPTOR(ssize_t, copy_file_range, "write", to, (int from, off64_t *a, int to, off64_t *b, size_t n, unsigned f),
              from, a, to, b, n, f)
BY_DESCRIPTOR(int, fsync, "fsync", fd, (int fd), fd)
BY_DESCRIPTOR(int, fdatasync, "fsync", fd, (int fd), fd)
BY_DESCRIPTOR(int, ftruncate, "truncate", fd, (int fd, off_t n), fd, n)
BY_DESCRIPTOR(int, ftruncate64, "truncate", fd, (int fd, off64_t n), fd, n)
BY_DESCRIPTOR(int, fchmod, "chmod", fd, (int fd, mode_t mode), fd, mode)
BY_DESCRIPTOR(int, futimens, "utime", fd, (int fd, const struct timespec times[2]), fd, times)
BY_DESCRIPTOR(int, flock, "lock", fd, (int fd, int how), fd, how)
BY_DESCRIPTOR(int, fstat, "stat", fd, (int fd, struct stat *found), fd, found)
BY_DESCRIPTOR(int, fstat64, "stat", fd, (int fd, struct stat64 *found), fd, found)
BY_DESCRIPTOR(int, __fxstat64, "stat", fd, (int version, int fd, struct stat64 *found), version, fd, found)
BY_DESCRIPTOR(int, ioctl, "ioctl", fd, (int fd, unsigned long request, void *with), fd, request, with)
BY_NAME(int, stat, "stat", AT_FDCWD, path, (const char *path, struct stat *found), path, found)
BY_NAME(int, stat64, "stat", AT_FDCWD, path, (const char *path, struct stat64 *found), path, found)
BY_NAME(int, lstat, "stat", AT_FDCWD, path, (const char *path, struct stat *found), path, found)
BY_NAME(int, lstat64, "stat", AT_FDCWD, path, (const char *path, struct stat64 *found), path, found)
BY_NAME(int, fstatat, "stat", at, path, (int at, const char *path, struct stat *found, int f), at, path, found, f)
BY_NAME(int, fstatat64, "stat", at, path, (int at, const char *path, struct stat64 *found, int f), at, path, found, f)
BY_NAME(int, access, "stat", AT_FDCWD, path, (const char *path, int how), path, how)
BY_NAME(ssize_t, readlink, "readlink", AT_FDCWD, path, (const char *path, char *to, size_t n), path, to, n)
BY_NAME(ssize_t, readlinkat, "readlink", at, path, (int at, const char *path, char *to, size_t n), at, path, to, n)
BY_NAME(int, unlink, "unlink", AT_FDCWD, path, (const char *path), path)
BY_NAME(int, unlinkat, "unlink", at, path, (int at, const char *path, int flags), at, path, flags)
BY_NAME(int, remove, "unlink", AT_FDCWD, path, (const char *path), path)
BY_NAME(int, rmdir, "rmdir", AT_FDCWD, path, (const char *path), path)
BY_NAME(int, mkdir, "mkdir", AT_FDCWD, path, (const char *path, mode_t mode), path, mode)
BY_NAME(int, mkdirat, "mkdir", at, path, (int at, const char *path, mode_t mode), at, path, mode)
BY_NAME(int, chmod, "chmod", AT_FDCWD, path, (const char *path, mode_t mode), path, mode)
BY_NAME(int, fchmodat, "chmod", at, path, (int at, const char *path, mode_t mode, int f), at, path, mode, f)
BY_NAME(int, utimensat, "utime", at, path, (int at, const char *path, const struct timespec t[2], int f), at, path, t, f)
BY_NAMES(rename, "rename", AT_FDCWD, path, AT_FDCWD, to, (const char *path, const char *to), path, to)
BY_NAMES(renameat, "rename", a, path, b, to, (int a, const char *path, int b, const char *to), a, path, b, to)
BY_NAMES(link, "link", AT_FDCWD, path, AT_FDCWD, to, (const char *path, const char *to), path, to)
BY_NAMES(linkat, "link", a, path, b, to, (int a, const char *path, int b, const char *to, int f), a, path, b, to, f)
BY_NAME(int, symlink, "link", AT_FDCWD, to, (const char *path, const char *to), path, to)

DIR *opendir(const char *path)
{
    return strikes_name("list", AT_FDCWD, path) ? NULL : REAL(opendir)(path);
}

DIR *fdopendir(int fd)
{
    return strikes_descriptor("list", fd) ? NULL : REAL(fdopendir)(fd);
}

/* The entries of a folder that is read are drawn one by one from those that are left; each DIR has a slot of its own. */
#define SLOTS 64
static __thread struct listing {
    DIR *of;
    struct dirent64 *entries;
    int n, next;
} listings[SLOTS];

static struct listing *slot(DIR *of)
{
    struct listing *found = listings;
    while (found < listings + SLOTS - 1 && found->of != of)
        found++;
    return found;
}

struct dirent64 *readdir64(DIR *directory)
{
    char path[PATH_MAX];
    if (shuffled)
        of_descriptor(dirfd(directory), path);
    if (!shuffled || !counts(path))
        return REAL(readdir64)(directory);
    struct listing *listing = slot(directory);
    if (listing->of != directory) {
        struct dirent64 *entry;
        listing = slot(NULL);
        listing->of = directory;
        listing->n = listing->next = 0;
        while ((entry = REAL(readdir64)(directory))) {
            listing->entries = realloc(listing->entries, (listing->n + 1) * sizeof *entry);
            memcpy(&listing->entries[listing->n++], entry, entry->d_reclen);
        }
    }
    if (listing->next == listing->n)
        return NULL;
    int drawn = listing->next + rand_r(&shuffled) % (listing->n - listing->next);
    struct dirent64 entry = listing->entries[drawn];
    listing->entries[drawn] = listing->entries[listing->next];
    listing->entries[listing->next] = entry;
    return &listing->entries[listing->next++];
}

int closedir(DIR *directory)
{
    struct listing *listing = slot(directory);
    if (listing->of == directory)
        listing->of = NULL;
    return REAL(closedir)(directory);
}
