/* A HIP runtime without a GPU, built as libtorch_hip.so: launchers look for HIP through Torch's own
   library. It records what it is asked; see cuda_driver.c. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char text[65536];
static __thread int current;

const char *fake_text(void) {
  static char given[sizeof(text)];
  memcpy(given, text, sizeof(text));
  text[0] = '\0';
  return given;
}
int fake_device_of(const void *data) { return (const char *)data == NULL ? 0 : (int)((uintptr_t)data % 16 == 2); }

int aoti_torch_get_current_cuda_stream(int32_t device, void **stream) {
  *stream = (void *)(uintptr_t)(0x10 + device);
  return 0;
}
const char *hipGetErrorString(int result) {
  (void)result;
  return "no such thing";
}
int hipGetDevicePropertiesR0600(char *properties, int device) {
  const size_t shared = 65536;
  const int multiprocessors = 304;
  strcpy(properties, "Fake Instinct");
  memcpy(properties + 296, &shared, sizeof(shared));
  memcpy(properties + 388, &multiprocessors, sizeof(multiprocessors));
  strcpy(properties + 1160, device == 0 ? "gfx942:sramecc+:xnack-" : "gfx90a:sramecc+:xnack-");
  return 0;
}
int hipGetDevice(int *device) {
  *device = current;
  return 0;
}
int hipSetDevice(int device) {
  current = device;
  return 0;
}
int hipModuleLoadData(void **module, const void *code) {
  snprintf(text + strlen(text), 512, "load %d %.100s\n", current, (const char *)code);
  *module = (void *)code;
  return 0;
}
int hipModuleGetFunction(void **function, void *module, const char *name) {
  (void)name;
  *function = module;
  return 0;
}
static int launched(const char *how, void *code, unsigned x, unsigned y, unsigned z, unsigned threads,
                    unsigned shared, void *stream, void **parameters) {
  snprintf(text + strlen(text), 512, "%s %d %.60s grid=%u,%u,%u block=%u shared=%u stream=%p n=%d\n", how,
           current, (const char *)code, x, y, z, threads, shared, stream, *(int *)parameters[2]);
  return 0;
}
int hipModuleLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b,
                          unsigned c, unsigned shared, void *stream, void **parameters, void **extra) {
  (void)b, (void)c, (void)extra;
  return launched("launch", function, x, y, z, a, shared, stream, parameters);
}
int hipModuleLaunchCooperativeKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned a,
                                     unsigned b, unsigned c, unsigned shared, void *stream,
                                     void **parameters) {
  (void)b, (void)c;
  return launched("cooperative", function, x, y, z, a, shared, stream, parameters);
}
static int set(char *data, const void *value, size_t size, size_t step, size_t count, void *stream) {
  for (size_t i = 0; i < count; i++) memcpy(data + i * step, value, size);
  snprintf(text + strlen(text), 512, "set %zu x %zu stream=%p\n", count, size, stream);
  return 0;
}
int hipMemsetD8Async(void *data, unsigned char value, size_t count, void *stream) { return set(data, &value, 1, 1, count, stream); }
int hipMemsetD16Async(void *data, unsigned short value, size_t count, void *stream) { return set(data, &value, 2, 2, count, stream); }
int hipMemsetD32Async(void *data, int value, size_t count, void *stream) { return set(data, &value, 4, 4, count, stream); }
int hipMemset2DAsync(void *data, size_t pitch, int value, size_t width, size_t height, void *stream) {
  return width != 1 ? 1 : set(data, &value, 1, pitch, height, stream);
}
