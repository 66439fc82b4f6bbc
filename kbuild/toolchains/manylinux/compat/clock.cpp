// glibc 2.30: waits until a time of a chosen clock. Before, there was only the real-time clock, so a
// deadline of another clock is moved to it, as libstdc++ did at that time. No header is included:
// a newer one declares the very functions that are defined here.
#define HIDDEN extern "C" __attribute__((visibility("hidden")))

namespace {
constexpr int kRealTime = 0;  // CLOCK_REALTIME
constexpr long kSecond = 1000000000;
}  // namespace

extern "C" {
struct moment {  // struct timespec on 64-bit systems
  long seconds, nanoseconds;
};
struct condition;
struct mutex;
struct rwlock;
struct semaphore;
int clock_gettime(int, moment *);
int pthread_cond_timedwait(condition *, mutex *, const moment *);
int pthread_mutex_timedlock(mutex *, const moment *);
int pthread_rwlock_timedrdlock(rwlock *, const moment *);
int pthread_rwlock_timedwrlock(rwlock *, const moment *);
int sem_timedwait(semaphore *, const moment *);
}

static moment real(int clock, const moment *until) {
  if (clock == kRealTime) return *until;
  moment now, today;
  clock_gettime(clock, &now);
  clock_gettime(kRealTime, &today);
  moment moved = {today.seconds + (until->seconds - now.seconds),
                  today.nanoseconds + (until->nanoseconds - now.nanoseconds)};
  if (moved.nanoseconds < 0) moved.nanoseconds += kSecond, --moved.seconds;
  if (moved.nanoseconds >= kSecond) moved.nanoseconds -= kSecond, ++moved.seconds;
  return moved;
}

HIDDEN int pthread_cond_clockwait(condition *waited, mutex *held, int clock, const moment *until) {
  const moment deadline = real(clock, until);
  return pthread_cond_timedwait(waited, held, &deadline);
}

HIDDEN int pthread_mutex_clocklock(mutex *wanted, int clock, const moment *until) {
  const moment deadline = real(clock, until);
  return pthread_mutex_timedlock(wanted, &deadline);
}

HIDDEN int pthread_rwlock_clockrdlock(rwlock *wanted, int clock, const moment *until) {
  const moment deadline = real(clock, until);
  return pthread_rwlock_timedrdlock(wanted, &deadline);
}

HIDDEN int pthread_rwlock_clockwrlock(rwlock *wanted, int clock, const moment *until) {
  const moment deadline = real(clock, until);
  return pthread_rwlock_timedwrlock(wanted, &deadline);
}

HIDDEN int sem_clockwait(semaphore *wanted, int clock, const moment *until) {
  const moment deadline = real(clock, until);
  return sem_timedwait(wanted, &deadline);
}
