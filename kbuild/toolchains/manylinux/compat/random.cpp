// glibc 2.36: random numbers that cannot fail; `std::random_device` takes them.
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#define HIDDEN extern "C" __attribute__((visibility("hidden")))
extern "C" long getrandom(void *, size_t, unsigned);  // glibc 2.25

HIDDEN void arc4random_buf(void *to, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const long got = getrandom(static_cast<char *>(to) + done, bytes - done, 0);
    if (got > 0) done += static_cast<size_t>(got);
    if (got < 0 && errno != EINTR) __builtin_abort();
  }
}

HIDDEN uint32_t arc4random() {
  uint32_t number;
  arc4random_buf(&number, sizeof number);
  return number;
}

// Below `bound`, each value as likely as the others: numbers under 2^32 mod bound are drawn anew.
HIDDEN uint32_t arc4random_uniform(uint32_t bound) {
  if (bound < 2) return 0;
  for (;;) {
    const uint32_t number = arc4random();
    if (number >= -bound % bound) return number % bound;
  }
}
