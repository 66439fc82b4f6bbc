// Small functions that came to glibc after 2.28. No header of glibc is included: a newer one
// declares them.
#include <stddef.h>

#define HIDDEN extern "C" __attribute__((visibility("hidden")))
extern "C" long syscall(long, ...);

HIDDEN int gettid() {  // 2.30
#ifdef __x86_64__
  return static_cast<int>(syscall(186));
#else
  return static_cast<int>(syscall(178));
#endif
}

HIDDEN size_t strlcpy(char *to, const char *from, size_t room) {  // 2.38
  const size_t length = __builtin_strlen(from);
  if (room) {
    const size_t taken = length < room ? length : room - 1;
    __builtin_memcpy(to, from, taken);
    to[taken] = 0;
  }
  return length;
}

HIDDEN size_t strlcat(char *to, const char *from, size_t room) {  // 2.38
  size_t used = 0;
  while (used < room && to[used]) ++used;
  return used == room ? room + __builtin_strlen(from) : used + strlcpy(to + used, from, room - used);
}
