// glibc 2.32. 0 says "there may be other threads", which is always safe.
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
