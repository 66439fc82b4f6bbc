// What a program sees of the kernel for one arch.
#pragma once

#include <cuda_runtime.h>

struct Axpy {
  void (*load)();    // onto every device
  void (*unload)();
  int (*launch)(const float* x, const float* y, float* out, int n, float factor, cudaStream_t stream);
};

extern "C" __attribute__((visibility("default"))) const Axpy axpy_sm_80, axpy_sm_90a;
