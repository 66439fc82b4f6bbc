#include <torch/all.h>

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

template <typename T> __global__ void relu_kernel(T *out, const T *in, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) {
    out[i] = in[i] > T(0) ? in[i] : T(0);
  }
}

void relu(torch::Tensor &out, const torch::Tensor &in) {
  TORCH_CHECK(in.is_contiguous(), "relu: not contiguous");
  const at::cuda::OptionalCUDAGuard guard(device_of(in));
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  const int64_t n = in.numel();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, in.scalar_type(), "relu", [&] {
    relu_kernel<scalar_t><<<(n + 255) / 256, 256, 0, stream>>>(
        out.mutable_data_ptr<scalar_t>(), in.const_data_ptr<scalar_t>(), n);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}
