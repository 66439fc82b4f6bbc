// A HIP runtime without a GPU: what is launched is written down, as text.
#include <stdio.h>
#include <string.h>

typedef struct { unsigned x, y, z; } dim3;
static char written[1 << 16];
static int device, fails, last;
static dim3 pushed_grid, pushed_block;
static size_t pushed_shared;
static void* pushed_stream;

const char* fake_written(void) { return written; }
void fake_begin(int on, int failing) {
  written[0] = 0;
  device = on;
  fails = failing;
  last = failing == 3 ? 1 : 0;
}
int fake_cleared(void) { return last == 0; }
int hipGetDevice(int* found) { return *found = device, 0; }
int hipGetLastError(void) {
  const int was = last;
  last = 0;
  return was;
}
const char* hipGetErrorString(int error) { return error ? "what HIP says" : ""; }
const char* hipGetErrorName(int error) { return error ? "hipErrorName" : ""; }
int hipDeviceGetAttribute(int* value, int attribute, int on) {
  char line[64];
  (void)attribute;
  snprintf(line, sizeof line, "prepare device=%d attribute=8\n", on);
  strncat(written, line, sizeof written - strlen(written) - 1);
  return *value = fails == 2 ? 1 : 65536, 0;
}
int hipFuncGetAttributes(void* attributes, const void* kernel) { return (void)attributes, (void)kernel, 0; }
int __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
  pushed_grid = grid;
  pushed_block = block;
  pushed_shared = shared;
  pushed_stream = stream;
  return 0;
}
int __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void** stream) {
  *grid = pushed_grid;
  *block = pushed_block;
  *shared = pushed_shared;
  *stream = pushed_stream;
  return 0;
}
int hipLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared, void* stream) {
  char line[256];
  (void)arguments;
  snprintf(line, sizeof line, "launch device=%d grid=%u block=%u shared=%zu stream=%p kernel=%p\n", device, grid.x, block.x,
           shared, stream, kernel);
  strncat(written, line, sizeof written - strlen(written) - 1);
  return last = fails == 1 ? 1 : 0;
}
static int module;
void** __hipRegisterFatBinary(const void* image) { return (void)image, (void**)&module; }
void __hipUnregisterFatBinary(void** handle) { (void)handle; }
void __hipRegisterFunction(void** handle, const void* host, char* function, const char* name, unsigned limit, void* a, void* b,
                           void* c, void* d, int* e) {
  (void)handle, (void)host, (void)function, (void)name, (void)limit, (void)a, (void)b, (void)c, (void)d, (void)e;
}
