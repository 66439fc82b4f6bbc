// Both programs: run the kernel that fits the device, and compare with the CPU.
#pragma once

#include <cmath>
#include <cstdio>
#include <vector>

#include "axpy.h"

inline bool fine(cudaError_t error, const char* what) {
  if (error != cudaSuccess) std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  return error == cudaSuccess;
}

// The arch whose code the first device runs; null without one.
inline const char* arch_of_device() {
  int major = 0;
  if (!fine(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "no device")) return nullptr;
  return major == 9 ? "sm_90a" : major == 8 ? "sm_80" : nullptr;
}

inline bool is_right(const Axpy& axpy, int n) {
  std::vector<float> x(n), y(n), out(n, -1);
  for (int i = 0; i < n; ++i) x[i] = float(i % 1000), y[i] = float(i % 7);
  const size_t bytes = size_t(n) * sizeof(float);
  float* on_device[3] = {};
  cudaStream_t stream = nullptr;
  bool works = fine(cudaStreamCreate(&stream), "stream");
  for (float*& one : on_device) works = works && fine(cudaMalloc(reinterpret_cast<void**>(&one), bytes), "malloc");
  works = works && fine(cudaMemcpy(on_device[0], x.data(), bytes, cudaMemcpyHostToDevice), "copy");
  works = works && fine(cudaMemcpy(on_device[1], y.data(), bytes, cudaMemcpyHostToDevice), "copy");
  works = works && axpy.launch(on_device[0], on_device[1], on_device[2], n, 0.5f, stream) == 0;
  works = works && fine(cudaStreamSynchronize(stream), "run");
  works = works && fine(cudaMemcpy(out.data(), on_device[2], bytes, cudaMemcpyDeviceToHost), "copy");
  for (int i = 0; works && i < n; ++i) works = out[i] == x[i] + 0.5f * y[i];
  for (float* one : on_device) cudaFree(one);
  cudaStreamDestroy(stream);
  return works;
}

inline int check(const Axpy& axpy, const char* arch) {
  axpy.load();
  int wrong = 0;
  for (int n : {1, 127, 128, 129, 100003}) wrong += !is_right(axpy, n);
  axpy.unload();
  std::printf("%s: axpy for %s, %d of 5 sizes wrong\n", wrong ? "FAILED" : "OK", arch, wrong);
  return wrong != 0;
}
