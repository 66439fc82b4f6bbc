/* What CuTe DSL's static runtime and its objects need around them: three devices, of which code fits
   all but the last; launches are not made, but looked into. */

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { DEVICES = 3, BAD = 2, MOST = 16, BYTES = 64 };
typedef struct {
  unsigned grid[3], block[3];
  size_t shared;
  void *stream, *attributes;
  unsigned count;
} Config;

static char text[4096], said[1024];
static unsigned char values[MOST][BYTES];
static Config last;
static int expected, current;
static void *stream;

static void note(const char *what, int device) {
  const size_t length = strlen(text);
  snprintf(text + length, sizeof(text) - length, "%s %d\n", what, device);
}
const char *fake_text(void) { return text; }
const char *fake_said(void) { return said; }
void fake_begin(int count, void *on) {
  text[0] = said[0] = 0;
  expected = count;
  stream = on;
  memset(values, 0, sizeof(values));
  memset(&last, 0, sizeof(last));
}
const unsigned char *fake_value(int at) { return values[at]; }
unsigned fake_grid(void) { return last.grid[0]; }
void *fake_stream(void) { return last.stream; }

int cudaLibraryLoadData(void **library) { return *library = (void *)0x11b, note("library", current), 0; }
int cudaLibraryUnload(void *library) { return library == (void *)0x11b ? 0 : 1; }
int cudaLibraryGetKernel(void **kernel) { return *kernel = (void *)0x4e1, 0; }
int cudaGetDevice(int *device) { return *device = current, 0; }
int cudaSetDevice(int device) { return current = device, 0; }
int cudaGetDeviceCount(int *count) { return *count = DEVICES, 0; }
int cudaDeviceGetAttribute(int *value) { return *value = 232448, 0; }
int cudaFuncSetAttribute(void) { return 0; }
int cudaKernelSetAttributeForDevice(void *kernel, int attribute, int value, int device) {
  (void)kernel, (void)value;
  if (attribute == 8) note("ready", device);
  return 0;
}
const char *cudaGetErrorString(int code) { return code == 209 ? "no image" : "what CUDA says"; }
const char *cudaGetErrorName(int code) { return code ? "cudaError" : "cudaSuccess"; }
int cudaGetLastError(void) { return 0; }

static int device_of(int *device, int index) { return *device = index, 0; }
static int kernel_attribute(int *value, int attribute, void *kernel, int device) {
  (void)attribute, (void)kernel;
  note("asked", device);
  *value = 0;
  return device == BAD ? 209 : 0;
}
int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags,
                                     int *status) {
  (void)version, (void)flags;
  *function = strcmp(name, "cuDeviceGet") == 0            ? (void *)&device_of
              : strcmp(name, "cuKernelGetAttribute") == 0 ? (void *)&kernel_attribute
                                                          : NULL;
  if (status != NULL) *status = *function == NULL;
  return *function == NULL ? 500 : 0;
}
int cudaLaunchKernelExC(const Config *config, const void *kernel, void **given) {
  last = *config;
  note("launch", current);
  for (int i = 0; i < expected; ++i) memcpy(values[i], given[i], BYTES);
  return kernel == (void *)0x4e1 ? 0 : 98;
}

void *TVMFFIEnvGetStream(int32_t kind, int32_t device) {
  (void)kind, (void)device;
  return stream;
}
void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {
  snprintf(said, sizeof(said), "%s: ", kind);
  for (int32_t i = 0; i < count; ++i)
    if (parts[i] != NULL) strncat(said, parts[i], sizeof(said) - strlen(said) - 1);
}
void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message) {
  TVMFFIErrorSetRaisedFromCStrParts(kind, &message, 1);
}
void CuteDSLRT_TVMFFISetRaisedCudaError(void (*raise)(const char *, const char **, int32_t), int32_t code) {
  const char *parts[] = {cudaGetErrorString(code)};
  raise("RuntimeError", parts, 1);
}
void CuteDSLRT_TVMFFISetRaisedCudaLaunchError(void) { snprintf(said, sizeof(said), "launch error"); }
