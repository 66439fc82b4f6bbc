// ReLU as a user of torch.utils.cpp_extension writes it: kernel, operators and module in one file
// that includes torch/extension.h. It does what examples/relu does.

#include <torch/extension.h>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 8192;

template <typename T, int N> struct alignas(sizeof(T) * N) Vector {
  T at[N];
};

template <typename T> __device__ T relu_of(T x) { return x < T(0) ? T(0) : x; }

template <typename T> __device__ T grad_of(T grad, T x) { return x <= T(0) ? T(0) : grad; }

template <typename T, int N> __global__ void forward_kernel(T *out, const T *x, int64_t n) {
  using Pack = Vector<T, N>;
  const int64_t first = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  const int64_t vectors = n / N;
  for (int64_t i = first; i < vectors; i += step) {
    Pack pack = reinterpret_cast<const Pack *>(x)[i];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      pack.at[k] = relu_of(pack.at[k]);
    }
    reinterpret_cast<Pack *>(out)[i] = pack;
  }
  for (int64_t i = vectors * N + first; i < n; i += step) {
    out[i] = relu_of(x[i]);
  }
}

template <typename T, int N>
__global__ void backward_kernel(T *grad_x, const T *grad, const T *x, int64_t n) {
  using Pack = Vector<T, N>;
  const int64_t first = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  const int64_t vectors = n / N;
  for (int64_t i = first; i < vectors; i += step) {
    Pack pack = reinterpret_cast<const Pack *>(grad)[i];
    const Pack inputs = reinterpret_cast<const Pack *>(x)[i];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      pack.at[k] = grad_of(pack.at[k], inputs.at[k]);
    }
    reinterpret_cast<Pack *>(grad_x)[i] = pack;
  }
  for (int64_t i = vectors * N + first; i < n; i += step) {
    grad_x[i] = grad_of(grad[i], x[i]);
  }
}

template <typename... Pointers> bool aligned(Pointers... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

unsigned blocks_for(int64_t items) {
  return unsigned(std::clamp<int64_t>((items + kThreads - 1) / kThreads, 1, kMaxBlocks));
}

void check(const torch::Tensor &x, const torch::Tensor &like, const char *name) {
  TORCH_CHECK(x.is_cuda(), "relu: ", name, " must be on a GPU, but is on ", x.device());
  TORCH_CHECK(x.sizes() == like.sizes(), "relu: ", name, " has the wrong shape, ", x.sizes());
  TORCH_CHECK(x.scalar_type() == like.scalar_type(), "relu: ", name, " has the wrong dtype");
}

} // namespace

void relu_out(const torch::Tensor &x, torch::Tensor &out) {
  check(x, x, "x");
  check(out, x, "out");
  const torch::Tensor input = x.contiguous();
  TORCH_CHECK(out.is_contiguous(), "relu: out must be contiguous");
  const int64_t n = input.numel();
  if (n == 0) {
    return;
  }
  const c10::cuda::OptionalCUDAGuard guard(x.device());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "relu", [&] {
    constexpr int kWide = 16 / sizeof(scalar_t);
    scalar_t *to = out.mutable_data_ptr<scalar_t>();
    const scalar_t *from = input.const_data_ptr<scalar_t>();
    if (aligned(to, from)) {
      forward_kernel<scalar_t, kWide><<<blocks_for(n / kWide), kThreads, 0, stream>>>(to, from, n);
    } else {
      forward_kernel<scalar_t, 1><<<blocks_for(n), kThreads, 0, stream>>>(to, from, n);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

torch::Tensor relu(const torch::Tensor &x) {
  torch::Tensor out = torch::empty_like(x, at::MemoryFormat::Contiguous);
  relu_out(x, out);
  return out;
}

torch::Tensor relu_backward(const torch::Tensor &grad, const torch::Tensor &x) {
  check(grad, x, "grad");
  const torch::Tensor grads = grad.contiguous();
  const torch::Tensor inputs = x.contiguous();
  torch::Tensor grad_x = torch::empty_like(inputs);
  const int64_t n = inputs.numel();
  if (n == 0) {
    return grad_x;
  }
  const c10::cuda::OptionalCUDAGuard guard(x.device());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "relu_backward", [&] {
    constexpr int kWide = 16 / sizeof(scalar_t);
    scalar_t *to = grad_x.mutable_data_ptr<scalar_t>();
    const scalar_t *from = grads.const_data_ptr<scalar_t>();
    const scalar_t *in = inputs.const_data_ptr<scalar_t>();
    if (aligned(to, from, in)) {
      backward_kernel<scalar_t, kWide>
          <<<blocks_for(n / kWide), kThreads, 0, stream>>>(to, from, in, n);
    } else {
      backward_kernel<scalar_t, 1><<<blocks_for(n), kThreads, 0, stream>>>(to, from, in, n);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return grad_x;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("relu", &relu);
  module.def("relu_backward", &relu_backward);
  module.def("relu_out", &relu_out);
}
