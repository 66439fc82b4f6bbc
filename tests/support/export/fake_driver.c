/* Stands in for libcuda.so.1 and libamdhip64.so.6: no device, but every call is counted and the last
   launch is kept. The functions `fake_...` are for the test. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static _Thread_local int device;
static int capability[2] = {8, 0};
static char gfx[64] = "gfx942:sramecc+:xnack-";
static int loads, unloads, launches, launched_on[8], fail_launch, optin = 101376;
static int attribute_calls, allocated, freed;
static size_t image_bytes, sizes[32];
static unsigned count, grid[3], block[3], shared, attributes;
static int attribute_ids[8];
static unsigned char values[32][8], image_head[8];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void fake_device(int which) { device = which; }
void fake_capability(int major, int minor) { capability[0] = major, capability[1] = minor; }
void fake_gfx(const char *name) { strcpy(gfx, name); }
void fake_fail(int code) { fail_launch = code; }
void fake_optin(int bytes) { optin = bytes; }
void fake_sizes(const int *of, int number) {
  count = (unsigned)number;
  for (int i = 0; i < number; ++i) sizes[i] = (size_t)of[i];
}
void fake_report(char *text, int room) {
  int at = snprintf(text, room,
      "{\"loads\": %d, \"unloads\": %d, \"launches\": %d, \"grid\": [%u, %u, %u], \"block\": %u, "
      "\"shared\": %u, \"kernel_attributes\": %d, \"allocated\": %d, \"freed\": %d, \"attributes\": [",
      loads, unloads, launches, grid[0], grid[1], grid[2], block[0], shared, attribute_calls,
      allocated, freed);
  for (unsigned i = 0; i < attributes; ++i)
    at += snprintf(text + at, room - at, "%s%d", i ? ", " : "", attribute_ids[i]);
  at += snprintf(text + at, room - at, "], \"on\": [");
  for (int i = 0; i < 8; ++i) at += snprintf(text + at, room - at, "%s%d", i ? ", " : "", launched_on[i]);
  at += snprintf(text + at, room - at, "], \"values\": [");
  for (unsigned i = 0; i < count; ++i) {
    at += snprintf(text + at, room - at, "%s\"", i ? ", " : "");
    for (size_t byte = 0; byte < sizes[i]; ++byte) at += snprintf(text + at, room - at, "%02x", values[i][byte]);
    at += snprintf(text + at, room - at, "\"");
  }
  at += snprintf(text + at, room - at, "], \"head\": \"");
  for (int i = 0; i < 8; ++i) at += snprintf(text + at, room - at, "%02x", image_head[i]);
  snprintf(text + at, room - at, "\"}");
}

static void keep(void **args) {
  for (unsigned i = 0; i < count; ++i) memcpy(values[i], args[i], sizes[i]);
  ++launches;
  ++launched_on[device];
}

static int load(void **library, const void *image) {
  pthread_mutex_lock(&lock);
  memcpy(image_head, image, sizeof image_head);
  *library = (void *)(intptr_t)++loads;
  pthread_mutex_unlock(&lock);
  return 0;
}

int cuCtxGetDevice(int *which) { return *which = device, device < 0 ? 201 : 0; }
int cuDeviceGetAttribute(int *value, int attribute, int which) {
  (void)which;
  *value = attribute == 75 ? capability[0] : attribute == 76 ? capability[1] : attribute == 97 ? optin : -1;
  return 0;
}
int cuLibraryLoadData(void **library, const void *image, void *a, void *b, unsigned c, void *d, void *e, unsigned f) {
  (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
  return load(library, image);
}
int cuLibraryUnload(void *library) { return (void)library, ++unloads, 0; }
int cuLibraryGetKernel(void **kernel, void *library, const char *name) {
  return *kernel = library, strcmp(name, "missing") == 0 ? 500 : 0;
}
int cuKernelSetAttribute(int id, int value, void *kernel, int which) {
  return (void)id, (void)value, (void)kernel, (void)which, ++attribute_calls, 0;
}
struct attribute { int id; char pad[4]; char value[64]; };
struct config {
  unsigned grid[3], block[3], shared;
  void *stream;
  struct attribute *attributes;
  unsigned count;
};
int cuLaunchKernelEx(const struct config *config, void *kernel, void **args, void **extra) {
  (void)extra;
  if (kernel == NULL) return 400;
  pthread_mutex_lock(&lock);
  memcpy(grid, config->grid, sizeof grid);
  memcpy(block, config->block, sizeof block);
  shared = config->shared, attributes = config->count;
  for (unsigned i = 0; i < config->count; ++i) attribute_ids[i] = config->attributes[i].id;
  keep(args);
  pthread_mutex_unlock(&lock);
  return fail_launch;
}
int cuMemAllocAsync(unsigned long long *pointer, size_t bytes, void *stream) {
  return (void)stream, *pointer = 0x1000, allocated += (int)bytes, 0;
}
int cuMemFreeAsync(unsigned long long pointer, void *stream) {
  return (void)stream, ++freed, pointer == 0x1000 ? 0 : 1;
}

int hipGetDevice(int *which) { return *which = device, 0; }
int hipGetDevicePropertiesR0600(char *properties, int which) {
  return (void)which, strcpy(properties + 1160, gfx), 0;
}
int hipModuleLoadData(void **module, const void *image) { return load(module, image); }
int hipModuleUnload(void *module) { return (void)module, ++unloads, 0; }
int hipModuleGetFunction(void **function, void *module, const char *name) {
  return (void)name, *function = module, 0;
}
int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned bytes, void *stream, void **args, void **extra) {
  (void)by, (void)bz, (void)stream, (void)extra;
  if (function == NULL) return 400;
  grid[0] = gx, grid[1] = gy, grid[2] = gz, block[0] = bx, shared = bytes, attributes = 0;
  keep(args);
  return fail_launch;
}
int hipMallocAsync(void **pointer, size_t bytes, void *stream) {
  return (void)stream, *pointer = (void *)0x1000, allocated += (int)bytes, 0;
}
int hipFreeAsync(void *pointer, void *stream) { return (void)pointer, (void)stream, ++freed, 0; }
