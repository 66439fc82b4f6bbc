/* A CUDA driver without a GPU: it records what it is asked. Built as libcuda.so.1; a process that has
   loaded it by its path gets it when it asks for that name.

   fake_set(...) describes the devices, fake_text() gives all records as lines and empties them. */
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DEVICES 20
#define MOST_PLACES 64

struct Device {
  char name[64];
  int major, minor, shared, multiprocessors;
};
static struct Device devices[MOST_DEVICES] = {
    [0] = {"Fake 90", 9, 0, 232448, 132},     [1] = {"Fake 80", 8, 0, 166912, 108},
    [2] = {"Fake 86", 8, 6, 101376, 84},      [3] = {"Fake 89", 8, 9, 101376, 142},
    [4] = {"Fake 100", 10, 0, 232448, 148},   [5] = {"Fake 103", 10, 3, 232448, 148},
    [6] = {"Fake 120", 12, 0, 101376, 170},   [7] = {"Fake 75", 7, 5, 65536, 40},
    [8] = {"Fake other", 9, 0, 232448, 132},  [9] = {"Fake small", 9, 0, 101376, 132},
    [10] = {"Fake 121", 12, 1, 101376, 48},   [17] = {"Fake far", 9, 0, 232448, 132},
};
static char contexts[MOST_DEVICES];
static __thread void *current[16];
static __thread int depth;

static struct {
  const void *begin;
  size_t size;
  int device;
} places[MOST_PLACES];
static int place_count;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *text;
static size_t length, capacity;
static int is_quiet, failing;

static void record(const char *format, ...) {
  if (is_quiet) return;
  pthread_mutex_lock(&lock);
  if (capacity - length < 4096) text = realloc(text, capacity = capacity * 2 + 65536);
  va_list arguments;
  va_start(arguments, format);
  length += (size_t)vsnprintf(text + length, 4096, format, arguments);
  va_end(arguments);
  pthread_mutex_unlock(&lock);
}

void fake_set(int device, const char *name, int major, int minor, int shared) {
  snprintf(devices[device].name, sizeof(devices[device].name), "%s", name);
  devices[device].major = major;
  devices[device].minor = minor;
  devices[device].shared = shared;
}
void fake_quiet(int quiet) { is_quiet = quiet; }
void fake_fail(int result) { failing = result; }

/* Memory from `begin` on no longer belongs to any device in particular. */
void fake_unplace(const void *begin, size_t size) {
  int kept = 0;
  for (int i = 0; i < place_count; i++) {
    const char *own = places[i].begin;
    if (own + places[i].size <= (const char *)begin || (const char *)begin + size <= own)
      places[kept++] = places[i];
  }
  place_count = kept;
}
/* Memory from `begin` on belongs to a device; everything else to device 0. What was said of the same
   memory before is forgotten: it is another tensor's now. */
void fake_place(const void *begin, size_t size, int device) {
  fake_unplace(begin, size);
  if (place_count == MOST_PLACES) abort();
  places[place_count].begin = begin;
  places[place_count].size = size;
  places[place_count++].device = device;
}
void fake_forget(void) { place_count = 0; }
int fake_device_of(const void *data) {
  for (int i = 0; i < place_count; i++) {
    const char *begin = places[i].begin;
    if ((const char *)data >= begin && (const char *)data < begin + places[i].size)
      return places[i].device;
  }
  return 0;
}

/* The records since the last time; the caller copies them. */
const char *fake_text(void) {
  static char *given;
  pthread_mutex_lock(&lock);
  free(given);
  given = text != NULL ? text : calloc(1, 1);
  text = NULL;
  length = capacity = 0;
  pthread_mutex_unlock(&lock);
  return given;
}

int cuInit(unsigned flags) { return (int)flags; }
static int driver_version = 13000;
void fake_version(int version) { driver_version = version; }
int cuDriverGetVersion(int *version) {
  *version = driver_version;
  return 0;
}
int cuGetErrorString(int result, const char **words) {
  *words = result == 700 ? "an illegal memory access was encountered" : "some error";
  return 0;
}
int cuDeviceGet(int *device, int index) {
  if (index < 0 || index >= MOST_DEVICES) return 101;
  *device = index;
  return 0;
}
int cuDeviceGetName(char *name, int size, int device) {
  snprintf(name, (size_t)size, "%s", devices[device].name);
  return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  const struct Device *own = &devices[device];
  switch (attribute) {
    case 16: *value = own->multiprocessors; return 0;
    case 75: *value = own->major; return 0;
    case 76: *value = own->minor; return 0;
    case 97: *value = own->shared; return 0;
    default: return 1;
  }
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
  *context = &contexts[device];
  return 0;
}
int cuCtxGetCurrent(void **context) {
  *context = depth ? current[depth - 1] : NULL;
  return 0;
}
int cuCtxGetDevice(int *device) {
  if (!depth) return 201;
  *device = (int)((char *)current[depth - 1] - contexts);
  return 0;
}
int cuCtxPushCurrent_v2(void *context) {
  current[depth++] = context;
  return 0;
}
int cuCtxPopCurrent_v2(void **context) {
  *context = current[--depth];
  return 0;
}
int fake_depth(void) { return depth; }

/* Memory of the host, so that a test may read it. */
int cuMemAllocAsync(void **data, size_t size, void *stream) {
  if (!depth) return 201;
  *data = size < (1ull << 40) ? malloc(size) : NULL;
  record("allocate %zu stream=%p\n", size, stream);
  return *data == NULL ? 2 : 0;
}
int cuMemFreeAsync(void *data, void *stream) {
  free(data);
  record("release stream=%p\n", stream);
  return depth ? 0 : 201;
}

static int set(char *data, const void *value, size_t size, size_t step, size_t count, void *stream) {
  if (!depth) return 201;
  for (size_t i = 0; i < count; i++) memcpy(data + i * step, value, size);
  record("set %zu x %zu stream=%p\n", count, size, stream);
  return failing;
}
int cuMemsetD8Async(void *data, unsigned char value, size_t count, void *stream) { return set(data, &value, 1, 1, count, stream); }
int cuMemsetD16Async(void *data, unsigned short value, size_t count, void *stream) {
  return (uintptr_t)data % 2 ? 1 : set(data, &value, 2, 2, count, stream);
}
int cuMemsetD32Async(void *data, unsigned value, size_t count, void *stream) {
  return (uintptr_t)data % 4 ? 1 : set(data, &value, 4, 4, count, stream);
}
int cuMemsetD2D32Async(void *data, size_t pitch, unsigned value, size_t width, size_t height, void *stream) {
  return width != 1 || pitch < 4 ? 1 : set(data, &value, 4, pitch, height, stream);
}

struct Kernel {
  char code[256];
  char entry[64];
};

int cuLibraryLoadData(void **library, const void *code, int *a, void **b, unsigned c, int *d,
                      void **e, unsigned f) {
  (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
  if ((uintptr_t)code % 16 != 0) return 716;
  struct Kernel *made = calloc(1, sizeof(*made));
  snprintf(made->code, sizeof(made->code), "%.255s", (const char *)code);
  record("load %s\n", made->code);
  *library = made;
  return 0;
}
int cuLibraryGetKernel(void **kernel, void *library, const char *name) {
  snprintf(((struct Kernel *)library)->entry, 64, "%s", name);
  *kernel = library;
  return 0;
}
/* A library has one kernel here, and is it. */
int cuLibraryGetKernelCount(unsigned *count, void *library) {
  *count = library != NULL;
  return 0;
}
int cuLibraryEnumerateKernels(void **kernels, unsigned count, void *library) {
  for (unsigned i = 0; i < count; i++) kernels[i] = library;
  record("kernels of %s\n", ((struct Kernel *)library)->code);
  return 0;
}
void fake_event(const char *what, int device) { record("%s on %d\n", what, device); }
int cuKernelGetFunction(void **function, void *kernel) {
  if (!depth) return 201;
  *function = kernel;
  return 0;
}
int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *data, const uint64_t *sizes,
                           const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                           int interleave, int swizzle, int promotion, int fill) {
  if ((uintptr_t)data % 16 != 0) return 1;
  char line[512];
  int at = snprintf(line, sizeof(line), "map type=%d steps=%u interleave=%d swizzle=%d promotion=%d fill=%d", type,
                    steps[0], interleave, swizzle, promotion, fill);
  for (uint32_t i = 0; i < rank; i++)
    at += snprintf(line + at, sizeof(line) - (size_t)at, " %lu/%lu/%u", (unsigned long)sizes[i],
                   i + 1 < rank ? (unsigned long)strides[i] : 0, box[i]);
  record("%s\n", line);
  memset(map, 0x5a, 128);
  return 0;
}
int cuKernelSetAttribute(int attribute, int value, void *kernel, int device) {
  record("set %s %d=%d on %d\n", ((struct Kernel *)kernel)->code, attribute, value, device);
  return 0;
}

struct Attribute {
  int id, padding;
  unsigned value[16];
};
struct Config {
  unsigned grid[3], block[3], shared;
  void *stream;
  const struct Attribute *attributes;
  unsigned count;
};

/* The first line of the code names the bytes of each parameter: "sm_80 ... |8,8,4". */
int cuLaunchKernelEx(const struct Config *config, void *kernel, void **parameters, void **extra) {
  (void)extra;
  if (!depth) return 201;
  if (failing) return failing;
  if (is_quiet) return 0;
  const struct Kernel *own = kernel;
  char line[4096];
  int at = snprintf(line, sizeof(line), "launch %.*s entry=%s device=%d grid=%u,%u,%u block=%u shared=%u stream=%p",
                    (int)strcspn(own->code, "|"), own->code, own->entry,
                    (int)((char *)current[depth - 1] - contexts), config->grid[0], config->grid[1],
                    config->grid[2], config->block[0], config->shared, config->stream);
  for (unsigned i = 0; i < config->count; i++) {
    const struct Attribute *one = &config->attributes[i];
    at += snprintf(line + at, sizeof(line) - (size_t)at, " attribute=%d:%u", one->id, one->value[0]);
    if (one->id == 4)
      at += snprintf(line + at, sizeof(line) - (size_t)at, "x%ux%u", one->value[1], one->value[2]);
  }
  const char *sizes = strchr(own->code, '|');
  for (int i = 0; sizes != NULL && sizes[1] != '\0'; i++) {
    const int size = atoi(sizes + 1);
    at += snprintf(line + at, sizeof(line) - (size_t)at, " ");
    for (int byte = 0; byte < size; byte++)
      at += snprintf(line + at, sizeof(line) - (size_t)at, "%02x", ((unsigned char *)parameters[i])[byte]);
    sizes = strchr(sizes + 1, ',');
  }
  record("%s\n", line);
  return 0;
}
