// ReLU for NVIDIA and, through hipify, AMD GPUs. The work is all memory traffic: 16 bytes per load.

#include <cuda_runtime.h>

#include <cstdint>

#include "relu_binding.h"

namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMaxBlocks = 8192; // more than fills any GPU; the grid strides over the rest
constexpr std::int64_t kVectorBytes = 16;

// ReLU needs no arithmetic, so each float type is handled as the integer of its width: as a signed
// integer, every negative number down to -inf is at most the bits of -inf, negative NaNs are above.
template <typename Int, Int kMinusInf> struct Bits {
  using Element = Int;

  static __device__ Int relu(Int x) { return x > kMinusInf ? x : Int(0); }

  static __device__ Int relu_grad(Int grad, Int x) {
    return x > kMinusInf && x != 0 ? grad : Int(0);
  }
};

using Float32 = Bits<std::int32_t, std::int32_t(0xFF800000)>;
using Float64 = Bits<std::int64_t, std::int64_t(0xFFF0000000000000)>;
using Float16 = Bits<std::int16_t, std::int16_t(0xFC00)>;
using BFloat16 = Bits<std::int16_t, std::int16_t(0xFF80)>;

template <typename T, int N> struct alignas(sizeof(T) * N) Vector {
  T at[N];
};

// The first `vectors` * N elements go as vectors, the rest one by one. N is 1 when a pointer is not
// aligned, and the first loop is then all of it. `out` may be `x`, so nothing here is __restrict__.
template <typename Kind, int N>
__global__ void forward_kernel(typename Kind::Element *out, const typename Kind::Element *x,
                               std::int64_t n) {
  using Pack = Vector<typename Kind::Element, N>;
  const std::int64_t first = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t step = std::int64_t(gridDim.x) * blockDim.x;
  const std::int64_t vectors = n / N;

  for (std::int64_t i = first; i < vectors; i += step) {
    Pack pack = reinterpret_cast<const Pack *>(x)[i];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      pack.at[k] = Kind::relu(pack.at[k]);
    }
    reinterpret_cast<Pack *>(out)[i] = pack;
  }
  for (std::int64_t i = vectors * N + first; i < n; i += step) {
    out[i] = Kind::relu(x[i]);
  }
}

template <typename Kind, int N>
__global__ void backward_kernel(typename Kind::Element *grad_x, const typename Kind::Element *grad,
                                const typename Kind::Element *x, std::int64_t n) {
  using Pack = Vector<typename Kind::Element, N>;
  const std::int64_t first = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t step = std::int64_t(gridDim.x) * blockDim.x;
  const std::int64_t vectors = n / N;

  for (std::int64_t i = first; i < vectors; i += step) {
    Pack pack = reinterpret_cast<const Pack *>(grad)[i];
    const Pack inputs = reinterpret_cast<const Pack *>(x)[i];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      pack.at[k] = Kind::relu_grad(pack.at[k], inputs.at[k]);
    }
    reinterpret_cast<Pack *>(grad_x)[i] = pack;
  }
  for (std::int64_t i = vectors * N + first; i < n; i += step) {
    grad_x[i] = Kind::relu_grad(grad[i], x[i]);
  }
}

template <typename... Pointers> bool aligned(Pointers... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % kVectorBytes == 0) && ...);
}

unsigned blocks_for(std::int64_t items) {
  const std::int64_t blocks = (items + kThreads - 1) / kThreads;
  return unsigned(blocks < 1 ? 1 : blocks > kMaxBlocks ? kMaxBlocks : blocks);
}

const char *launch_error() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

template <typename Kind>
const char *forward_as(void *out, const void *x, std::int64_t n, cudaStream_t stream) {
  using T = typename Kind::Element;
  constexpr int kWide = kVectorBytes / sizeof(T);
  T *to = static_cast<T *>(out);
  const T *in = static_cast<const T *>(x);
  if (aligned(out, x)) {
    forward_kernel<Kind, kWide><<<blocks_for(n / kWide), kThreads, 0, stream>>>(to, in, n);
  } else {
    forward_kernel<Kind, 1><<<blocks_for(n), kThreads, 0, stream>>>(to, in, n);
  }
  return launch_error();
}

template <typename Kind>
const char *backward_as(void *grad_x, const void *grad, const void *x, std::int64_t n,
                        cudaStream_t stream) {
  using T = typename Kind::Element;
  constexpr int kWide = kVectorBytes / sizeof(T);
  T *to = static_cast<T *>(grad_x);
  const T *from = static_cast<const T *>(grad);
  const T *in = static_cast<const T *>(x);
  if (aligned(grad_x, grad, x)) {
    backward_kernel<Kind, kWide>
        <<<blocks_for(n / kWide), kThreads, 0, stream>>>(to, from, in, n);
  } else {
    backward_kernel<Kind, 1><<<blocks_for(n), kThreads, 0, stream>>>(to, from, in, n);
  }
  return launch_error();
}

// The thread's current device is the one of the arrays while this lives.
class OnDevice {
public:
  explicit OnDevice(int device) {
    error_ = cudaGetDevice(&before_);
    if (error_ == cudaSuccess && before_ != device) {
      error_ = cudaSetDevice(device);
      changed_ = error_ == cudaSuccess;
    }
  }
  ~OnDevice() {
    if (changed_) {
      (void)cudaSetDevice(before_);
    }
  }
  OnDevice(const OnDevice &) = delete;
  OnDevice &operator=(const OnDevice &) = delete;

  // nullptr, or why the device cannot be used.
  const char *error() const { return error_ == cudaSuccess ? nullptr : cudaGetErrorString(error_); }

private:
  int before_ = 0;
  bool changed_ = false;
  cudaError_t error_ = cudaSuccess;
};

} // namespace

namespace relu {

const char *forward(void *out, const void *x, std::int64_t n, Dtype dtype, Place place) {
  const OnDevice device(place.device);
  if (device.error() != nullptr) {
    return device.error();
  }
  const cudaStream_t on = static_cast<cudaStream_t>(place.stream);
  switch (dtype) {
  case Dtype::Float32:
    return forward_as<Float32>(out, x, n, on);
  case Dtype::Float64:
    return forward_as<Float64>(out, x, n, on);
  case Dtype::Float16:
    return forward_as<Float16>(out, x, n, on);
  case Dtype::BFloat16:
    return forward_as<BFloat16>(out, x, n, on);
  }
  return "unknown dtype";
}

const char *backward(void *grad_x, const void *grad, const void *x, std::int64_t n, Dtype dtype,
                     Place place) {
  const OnDevice device(place.device);
  if (device.error() != nullptr) {
    return device.error();
  }
  const cudaStream_t on = static_cast<cudaStream_t>(place.stream);
  switch (dtype) {
  case Dtype::Float32:
    return backward_as<Float32>(grad_x, grad, x, n, on);
  case Dtype::Float64:
    return backward_as<Float64>(grad_x, grad, x, n, on);
  case Dtype::Float16:
    return backward_as<Float16>(grad_x, grad, x, n, on);
  case Dtype::BFloat16:
    return backward_as<BFloat16>(grad_x, grad, x, n, on);
  }
  return "unknown dtype";
}

} // namespace relu
