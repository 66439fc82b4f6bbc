// The exported kernel for one arch behind plain functions, compiled once for each:
// PREFIX is what its header calls everything, ARCH what these functions are called after.
#include HEADER

#include "axpy.h"

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define PASTE3(a, b, c) PASTE(PASTE(a, b), c)
#define OF_KERNEL(name) PASTE(PREFIX, name)

static OF_KERNEL(_Kernel_Module_t) module;

static void load() { OF_KERNEL(_Kernel_Module_Load)(&module); }

static void unload() { OF_KERNEL(_Kernel_Module_Unload)(&module); }

static int launch(const float* x, const float* y, float* out, int n, float factor, cudaStream_t stream) {
  OF_KERNEL(_Tensor_x_t) given_x = {const_cast<float*>(x), {n}};
  OF_KERNEL(_Tensor_y_t) given_y = {const_cast<float*>(y), {n}};
  OF_KERNEL(_Tensor_out_t) given_out = {out, {n}};
  return PASTE3(cute_dsl_, PREFIX, _wrapper)(&module, &given_x, &given_y, &given_out, factor, stream);
}

extern "C" const Axpy PASTE(axpy_, ARCH) = {&load, &unload, &launch};
