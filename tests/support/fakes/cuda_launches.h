#pragma once
// What emitted host code needs of the CUDA runtime: launches that are written down, kernels that are
// functions of the host.
#include <cstdint>
#include <cstdio>

using cudaError_t = int;
using cudaStream_t = void*;
constexpr cudaError_t cudaSuccess = 0;
constexpr cudaStream_t cudaStreamDefault = nullptr;
enum { cudaLaunchAttributeProgrammaticStreamSerialization = 6, cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct cudaLaunchAttribute {
  int id;
  struct { int programmaticStreamSerializationAllowed; } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  unsigned dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

struct Seen {
  int device = 0, launches = 0, prepared = 0, pdl = -1, fails = 0, cleared = 0, loaded = 0;
  unsigned grid = 0;
  void* stream = nullptr;
};
static Seen& seen() {
  static Seen one;
  return one;
}
static const char* cudaGetErrorString(cudaError_t) { return "what CUDA says"; }
static const char* cudaGetErrorName(cudaError_t) { return "cudaErrorName"; }
static cudaError_t cudaGetLastError() { return ++seen().cleared, cudaSuccess; }
static cudaError_t cudaGetDevice(int* device) { return *device = seen().device, cudaSuccess; }
template <typename F>
static cudaError_t cudaFuncSetAttribute(F*, int, int) {
  return ++seen().prepared, cudaSuccess;
}
struct cudaFuncAttributes {};
template <typename F>
static cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, F*) {
  return ++seen().loaded, seen().fails;
}
template <typename F, typename... A>
static cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, F* kernel, A... arguments) {
  seen().pdl = config->attrs[0].val.programmaticStreamSerializationAllowed;
  seen().grid = config->gridDim.x;
  seen().stream = config->stream;
  if (seen().fails) return seen().fails;
  ++seen().launches;
  kernel(arguments...);
  return cudaSuccess;
}

#define __global__
#define TILELANG_CHECK(stmt)                                              \
  do {                                                                    \
    cudaError_t err = (stmt);                                             \
    if (err != cudaSuccess) {                                             \
      snprintf(error_buf, ERROR_BUF_SIZE, "%s", cudaGetErrorString(err)); \
      return -1;                                                          \
    }                                                                     \
  } while (0)
#define TILELANG_CHECK_LAST_ERROR(name) TILELANG_CHECK((cudaGetLastError(), 1))

extern "C" void PROBE(int device, int fails) {
  seen().device = device;
  seen().fails = fails;
}
extern "C" int PROBED(int what) {
  const Seen& s = seen();
  const int all[] = {s.launches, s.prepared, s.pdl, int(s.grid), s.cleared, s.stream == (void*)0x1234, s.loaded};
  return all[what];
}
