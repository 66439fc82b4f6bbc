// glibc 2.33 made these real functions; before, headers turned them into calls of the versioned
// forms below. `struct stat` and `struct stat64` are one type on 64-bit systems. No header is
// included: a newer one may redirect the very names that are defined here.
#define HIDDEN extern "C" __attribute__((visibility("hidden")))
#ifdef __x86_64__
#define STAT_VERSION 1
#else
#define STAT_VERSION 0
#endif
#define MKNOD_VERSION 0

extern "C" {
struct stat;
int __xstat(int, const char *, struct stat *);
int __lxstat(int, const char *, struct stat *);
int __fxstat(int, int, struct stat *);
int __fxstatat(int, int, const char *, struct stat *, int);
int __xmknod(int, const char *, unsigned, unsigned long *);
int __xmknodat(int, int, const char *, unsigned, unsigned long *);
}

HIDDEN int stat(const char *path, struct stat *to) { return __xstat(STAT_VERSION, path, to); }
HIDDEN int lstat(const char *path, struct stat *to) { return __lxstat(STAT_VERSION, path, to); }
HIDDEN int fstat(int file, struct stat *to) { return __fxstat(STAT_VERSION, file, to); }
HIDDEN int fstatat(int folder, const char *path, struct stat *to, int flags) {
  return __fxstatat(STAT_VERSION, folder, path, to, flags);
}

HIDDEN int stat64(const char *path, struct stat *to) { return __xstat(STAT_VERSION, path, to); }
HIDDEN int lstat64(const char *path, struct stat *to) { return __lxstat(STAT_VERSION, path, to); }
HIDDEN int fstat64(int file, struct stat *to) { return __fxstat(STAT_VERSION, file, to); }
HIDDEN int fstatat64(int folder, const char *path, struct stat *to, int flags) {
  return __fxstatat(STAT_VERSION, folder, path, to, flags);
}

HIDDEN int mknod(const char *path, unsigned mode, unsigned long device) {
  return __xmknod(MKNOD_VERSION, path, mode, &device);
}
HIDDEN int mknodat(int folder, const char *path, unsigned mode, unsigned long device) {
  return __xmknodat(MKNOD_VERSION, folder, path, mode, &device);
}
