// A CUDA runtime without a GPU: what is prepared and launched is written down, as text.
#include <stdio.h>
#include <string.h>

typedef struct { unsigned x, y, z; } dim3;
typedef struct {
  int id;
  int pad;
  union { int serialization; dim3 cluster; char whole[64]; } val;
} Attribute;
typedef struct {
  dim3 grid, block;
  size_t shared;
  void* stream;
  Attribute* attributes;
  unsigned count;
} Config;
enum { CLUSTER = 4, SERIALIZATION = 6 };

static char written[1 << 16];
static int device, fails, cleared;

const char* fake_written(void) { return written; }
void fake_begin(int on, int failing) {
  written[0] = 0;
  device = on;
  fails = failing;
  cleared = 0;
}
int fake_cleared(void) { return cleared; }
static void note(const char* line) {
  strncat(written, line, sizeof written - strlen(written) - 1);
}

int cudaGetDevice(int* found) { return *found = device, 0; }
int cudaGetLastError(void) { return ++cleared, 0; }
const char* cudaGetErrorString(int error) { return error ? "what CUDA says" : ""; }
const char* cudaGetErrorName(int error) { return error ? "cudaErrorName" : ""; }
int cudaFuncSetAttribute(const void* kernel, int attribute, int value) {
  char line[128];
  snprintf(line, sizeof line, "prepare device=%d attribute=%d value=%d kernel=%p\n", device, attribute, value, kernel);
  note(line);
  return fails == 2 ? 1 : 0;
}
int cudaFuncGetAttributes(void* attributes, const void* kernel) {
  char line[128];
  (void)attributes;
  snprintf(line, sizeof line, "load device=%d kernel=%p\n", device, kernel);
  note(line);
  return fails == 2 ? 1 : 0;
}
int cudaLaunchKernelExC(const Config* config, const void* kernel, void** arguments) {
  char line[256];
  int serialization = -1;
  unsigned cluster = 1;
  (void)arguments;
  for (unsigned i = 0; i < config->count; ++i) {
    if (config->attributes[i].id == SERIALIZATION) serialization = config->attributes[i].val.serialization;
    if (config->attributes[i].id == CLUSTER) cluster = config->attributes[i].val.cluster.x;
  }
  snprintf(line, sizeof line, "launch device=%d pdl=%d cluster=%u grid=%u shared=%zu stream=%p kernel=%p\n", device,
           serialization, cluster, config->grid.x, config->shared, config->stream, kernel);
  note(line);
  return fails == 1 ? 1 : 0;
}
int cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared, void* stream) {
  char line[128];
  (void)block, (void)arguments, (void)shared, (void)stream;
  snprintf(line, sizeof line, "launch device=%d cooperative=1 grid=%u kernel=%p\n", device, grid.x, kernel);
  note(line);
  return fails == 1 ? 1 : 0;
}
static int encode(void) { return 0; }
int cudaGetDriverEntryPointByVersion(const char* name, void** found, unsigned version, unsigned long long flags, int* status) {
  (void)name, (void)version, (void)flags;
  *found = (void*)encode;
  *status = 0;
  return 0;
}

static int module;
void** __cudaRegisterFatBinary(void* image) { return (void)image, (void**)&module; }
void __cudaRegisterFatBinaryEnd(void** handle) { (void)handle; }
void __cudaUnregisterFatBinary(void** handle) { (void)handle; }
void __cudaRegisterFunction(void** handle, const char* host, char* function, const char* name, int limit, void* a, void* b,
                            void* c, void* d, int* e) {
  (void)handle, (void)host, (void)function, (void)name, (void)limit, (void)a, (void)b, (void)c, (void)d, (void)e;
}
void __cudaRegisterVar(void** handle, char* host, char* address, const char* name, int external, size_t size, int constant,
                       int global) {
  (void)handle, (void)host, (void)address, (void)name, (void)external, (void)size, (void)constant, (void)global;
}
unsigned __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  return (void)grid, (void)block, (void)shared, (void)stream, 1;
}
int __cudaGetKernel(void** found, const void* function) { return *found = (void*)function, 0; }
int __cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared, void* stream) {
  return (void)kernel, (void)grid, (void)block, (void)arguments, (void)shared, (void)stream, 1;
}
