/* Launches the exported kernels on every device from several threads, and checks the results. */
#include "kernels.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, MOST = 1 << 20 };

/* What this program needs of the driver; with cuda.h and -lcuda all this goes away. */
static struct {
  int (*init)(unsigned);
  int (*count)(int *);
  int (*retain)(void **, int);
  int (*set)(void *);
  int (*stream)(CUstream *, unsigned);
  int (*allocate)(CUdeviceptr *, size_t);
  int (*release)(CUdeviceptr);
  int (*to_device)(CUdeviceptr, const void *, size_t);
  int (*to_host)(void *, CUdeviceptr, size_t);
  int (*wait)(CUstream);
} driver;

static void check(int code, const char *what) {
  if (code == 0) return;
  fprintf(stderr, "%s: the driver says %d\n", what, code);
  exit(1);
}

static void find(void *library, const char *name, void *function) {
  void *found = dlsym(library, name);
  if (found == NULL) {
    fprintf(stderr, "the driver has no %s\n", name);
    exit(1);
  }
  memcpy(function, &found, sizeof found);
}

static void find_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(77);
  }
  find(library, "cuInit", &driver.init);
  find(library, "cuDeviceGetCount", &driver.count);
  find(library, "cuDevicePrimaryCtxRetain", &driver.retain);
  find(library, "cuCtxSetCurrent", &driver.set);
  find(library, "cuStreamCreate", &driver.stream);
  find(library, "cuMemAlloc_v2", &driver.allocate);
  find(library, "cuMemFree_v2", &driver.release);
  find(library, "cuMemcpyHtoD_v2", &driver.to_device);
  find(library, "cuMemcpyDtoH_v2", &driver.to_host);
  find(library, "cuStreamSynchronize", &driver.wait);
}

struct place {
  CUstream stream;
  CUdeviceptr x, y, out;
  float *hx, *hy, *hout;
};

static void fill(struct place *place, int seed) {
  for (int i = 0; i < MOST; ++i) {
    place->hx[i] = (float)((i * 37 + seed) % 1001) * 0.25f;
    place->hy[i] = (float)((i * 11 + seed) % 777) * -0.5f;
    place->hout[i] = -1.0f;
  }
  const size_t bytes = MOST * sizeof(float);
  check(driver.to_device(place->x, place->hx, bytes), "copy");
  check(driver.to_device(place->y, place->hy, bytes), "copy");
  check(driver.to_device(place->out, place->hout, bytes), "copy");
}

static void compare(const char *what, const float *got, int first, int n, const struct place *place,
                    float alpha, int untouched_is_y) {
  for (int i = 0; i < MOST; ++i) {
    const int inside = i >= first && i < first + n;
    const float other = untouched_is_y ? place->hy[i] : -1.0f;
    const float wanted = inside ? fmaf(alpha, place->hx[i], place->hy[i]) : other;
    const float size = fabsf(alpha * place->hx[i]) + fabsf(place->hy[i]);
    if (inside ? fabsf(got[i] - wanted) <= 1e-6f * size : got[i] == wanted) continue;
    fprintf(stderr, "%s of %d from %d: [%d] is %g, not %g\n", what, n, first, i, got[i], wanted);
    exit(1);
  }
}

/* `first` elements are skipped: a pointer that is not divisible by 16 takes the plain image. */
static void try_size(struct place *place, int n, int first) {
  const CUdeviceptr skip = (CUdeviceptr)first * sizeof(float);
  const float alpha = 2.5f;
  float *got = malloc(MOST * sizeof *got);
  if (got == NULL) exit(1);
  fill(place, n);
  check(add_default(place->stream, place->x + skip, place->y + skip, place->out + skip, n), "add");
  check(driver.wait(place->stream), "add");
  check(driver.to_host(got, place->out, MOST * sizeof *got), "copy");
  compare("add", got, first, n, place, 1.0f, 0);
  check(axpy_default(place->stream, place->x + skip, place->y + skip, alpha, n), "axpy");
  check(driver.wait(place->stream), "axpy");
  check(driver.to_host(got, place->y, MOST * sizeof *got), "copy");
  compare("axpy", got, first, n, place, alpha, 1);
  free(got);
}

static const int sizes[] = {0, 1, 15, 16, 1000, 1024, 4096, 65537, MOST - 4};

static void *work(void *context) {
  struct place place;
  const size_t bytes = MOST * sizeof(float);
  check(driver.set(context), "context");
  /* 0: it waits for the copies, which are in the default stream. */
  check(driver.stream(&place.stream, 0), "stream");
  check(driver.allocate(&place.x, bytes), "memory");
  check(driver.allocate(&place.y, bytes), "memory");
  check(driver.allocate(&place.out, bytes), "memory");
  place.hx = malloc(bytes), place.hy = malloc(bytes), place.hout = malloc(bytes);
  if (place.hx == NULL || place.hy == NULL || place.hout == NULL) exit(1);
  for (size_t at = 0; at < sizeof sizes / sizeof *sizes; ++at) {
    for (int first = 0; first < 3; ++first) try_size(&place, sizes[at], first);
  }
  check(driver.release(place.x) | driver.release(place.y) | driver.release(place.out), "memory");
  free(place.hx), free(place.hy), free(place.hout);
  return NULL;
}

int main(void) {
  int devices;
  find_driver();
  check(driver.init(0), "start");
  check(driver.count(&devices), "devices");
  for (int device = 0; device < devices; ++device) {
    void *context;
    pthread_t threads[THREADS];
    check(driver.retain(&context, device), "context");
    for (int i = 0; i < THREADS; ++i) pthread_create(&threads[i], NULL, work, context);
    for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
    check(driver.set(context), "context");
    if (add_default(NULL, 0, 0, 0, -5000) != 1) {
      fprintf(stderr, "a negative grid is not refused\n");
      return 1;
    }
  }
  check(unload_add(), "unload");
  check(unload_axpy(), "unload");
  printf("OK: %d device%s, %d threads, add and axpy right for %d sizes\n", devices,
         devices == 1 ? "" : "s", THREADS, (int)(sizeof sizes / sizeof *sizes));
  return 0;
}
