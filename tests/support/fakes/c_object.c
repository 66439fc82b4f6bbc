/* What TileLang's host code is like, for the CPU: a function of plain C with a text for failures. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

static const char* text = 0;

int kbuild_aot_helper(int value) { return value + MARK; }

const char* ERROR_SYMBOL(void) { return text; }

int LOAD_SYMBOL(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY);
  int device = -1;
  ((int (*)(int*))dlsym(driver, "cuCtxGetDevice"))(&device);
  ((void (*)(const char*, int))dlsym(driver, "fake_event"))("load of c", device);
  text = "it does not fit";
  return device == 8;
}

int SYMBOL(void* x, void* out, int32_t n, int64_t big, float factor, double wide, _Bool flag, void* stream) {
  (void)stream;
  if (n < 0) {
    text = "n is negative";
    return 1;
  }
  if (n == 99) return 1;
  for (int i = 0; i < n; ++i) {
    ((float*)out)[i] = ((float*)x)[i] * factor + (float)wide + (float)(big >> 32) + (flag ? 100.0f : 0.0f);
    ((float*)out)[i] += (float)kbuild_aot_helper(0);
  }
  return 0;
}
