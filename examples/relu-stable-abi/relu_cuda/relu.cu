// ReLU for NVIDIA GPUs, and for AMD GPUs after hipify. The work is all memory traffic: 16 bytes per
// load.

#include "torch_binding.h"

#include <cuda_runtime.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/macros.h>
#include <torch/headeronly/util/Exception.h>

#include <cstdint>

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using torch::stable::accelerator::DeviceGuard;

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
// aligned, and the first loop is then all of it.
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

cudaStream_t current_stream(const Tensor &x) {
  void *stream = nullptr;
  const auto status = aoti_torch_get_current_cuda_stream(x.get_device_index(), &stream);
  STD_TORCH_CHECK(status == AOTI_TORCH_SUCCESS, "relu: no current stream");
  return static_cast<cudaStream_t>(stream);
}

template <typename Kind> void forward_as(const Tensor &x, const Tensor &out) {
  using T = typename Kind::Element;
  constexpr int kWide = kVectorBytes / sizeof(T);
  const std::int64_t n = x.numel();
  const cudaStream_t stream = current_stream(x);
  T *to = static_cast<T *>(out.mutable_data_ptr());
  const T *in = static_cast<const T *>(x.const_data_ptr());
  if (aligned(to, in)) {
    forward_kernel<Kind, kWide><<<blocks_for(n / kWide), kThreads, 0, stream>>>(to, in, n);
  } else {
    forward_kernel<Kind, 1><<<blocks_for(n), kThreads, 0, stream>>>(to, in, n);
  }
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

template <typename Kind>
void backward_as(const Tensor &grad, const Tensor &x, const Tensor &grad_x) {
  using T = typename Kind::Element;
  constexpr int kWide = kVectorBytes / sizeof(T);
  const std::int64_t n = x.numel();
  const cudaStream_t stream = current_stream(x);
  T *to = static_cast<T *>(grad_x.mutable_data_ptr());
  const T *from = static_cast<const T *>(grad.const_data_ptr());
  const T *in = static_cast<const T *>(x.const_data_ptr());
  if (aligned(to, from, in)) {
    backward_kernel<Kind, kWide>
        <<<blocks_for(n / kWide), kThreads, 0, stream>>>(to, from, in, n);
  } else {
    backward_kernel<Kind, 1><<<blocks_for(n), kThreads, 0, stream>>>(to, from, in, n);
  }
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

} // namespace

namespace relu {

void forward(const Tensor &x, const Tensor &out) {
  const DeviceGuard guard(x.get_device_index());
  switch (x.scalar_type()) {
  case ScalarType::Float:
    return forward_as<Float32>(x, out);
  case ScalarType::Double:
    return forward_as<Float64>(x, out);
  case ScalarType::Half:
    return forward_as<Float16>(x, out);
  case ScalarType::BFloat16:
    return forward_as<BFloat16>(x, out);
  default:
    STD_TORCH_CHECK(false, "relu: unsupported dtype ",
                    torch::headeronly::toString(x.scalar_type()));
  }
}

void backward(const Tensor &grad, const Tensor &x, const Tensor &grad_x) {
  const DeviceGuard guard(x.get_device_index());
  switch (x.scalar_type()) {
  case ScalarType::Float:
    return backward_as<Float32>(grad, x, grad_x);
  case ScalarType::Double:
    return backward_as<Float64>(grad, x, grad_x);
  case ScalarType::Half:
    return backward_as<Float16>(grad, x, grad_x);
  case ScalarType::BFloat16:
    return backward_as<BFloat16>(grad, x, grad_x);
  default:
    STD_TORCH_CHECK(false, "relu: unsupported dtype ",
                    torch::headeronly::toString(x.scalar_type()));
  }
}

} // namespace relu
