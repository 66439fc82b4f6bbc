// The ops of `tests/gpu/captured_functions`' RMS normalisation as they are usually written by hand: the same
// allocations, launches and ATen calls, with gradients by `torch::autograd::Function`.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_fp16.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr int THREADS = 128;

__device__ float sum_of_block(float value) {
  __shared__ float sums[THREADS / 32];
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  __syncthreads();
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  value = 0;
  for (int i = 0; i < THREADS / 32; ++i) value += sums[i];
  return value;
}

__global__ void forward_kernel(const __half* x, const __half* w, __half* y, float* rstd, int stride, int n,
                               float eps) {
  const __half* row = x + int64_t(blockIdx.x) * stride;
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += THREADS) sum += __half2float(row[i]) * __half2float(row[i]);
  const float scale = 1 / sqrtf(sum_of_block(sum) / n + eps);
  if (threadIdx.x == 0) rstd[blockIdx.x] = scale;
  for (int i = threadIdx.x; i < n; i += THREADS) {
    y[int64_t(blockIdx.x) * n + i] = __float2half(__half2float(row[i]) * scale * __half2float(w[i]));
  }
}

__global__ void backward_kernel(const __half* dy, const __half* x, const __half* w, const float* rstd, __half* dx,
                                float* dw, int stride_dy, int stride_x, int rows, int n) {
  float* total = dw + int64_t(blockIdx.x) * n;
  for (int i = threadIdx.x; i < n; i += THREADS) total[i] = 0;
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    const __half *own = x + int64_t(row) * stride_x, *grad = dy + int64_t(row) * stride_dy;
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += THREADS) {
      sum += __half2float(grad[i]) * __half2float(w[i]) * __half2float(own[i]) * rstd[row];
    }
    const float mean = sum_of_block(sum) / n;
    for (int i = threadIdx.x; i < n; i += THREADS) {
      const float scaled = __half2float(own[i]) * rstd[row], value = __half2float(grad[i]);
      total[i] += value * scaled;
      dx[int64_t(row) * n + i] = __float2half((value * __half2float(w[i]) - scaled * mean) * rstd[row]);
    }
  }
}

const __half* data(const at::Tensor& tensor) { return static_cast<const __half*>(tensor.const_data_ptr()); }

std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& w, double eps) {
  TORCH_CHECK(x.is_cuda() && w.device() == x.device(), "rms_norm: x and weight must be on one GPU");
  TORCH_CHECK(x.scalar_type() == at::kHalf && w.scalar_type() == at::kHalf, "rms_norm: float16 only");
  TORCH_CHECK(x.dim() >= 1 && w.dim() == 1 && w.size(0) == x.size(-1), "rms_norm: weight must have a row's size");
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t n = x.size(-1), rows = x.numel() / n;
  const at::Tensor rows_of_x = x.contiguous();
  at::Tensor y = at::empty(x.sizes(), x.options());
  at::Tensor rstd = at::empty({rows}, x.options().dtype(at::kFloat));
  forward_kernel<<<rows, THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(
      data(rows_of_x), data(w), static_cast<__half*>(y.mutable_data_ptr()), rstd.mutable_data_ptr<float>(), int(n),
      int(n), float(eps));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {y, rstd};
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& w, double eps) { return std::get<0>(forward(x, w, eps)); }

std::tuple<at::Tensor, at::Tensor> backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& w,
                                            const at::Tensor& rstd, bool needs_w) {
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t n = x.size(-1), rows = x.numel() / n;
  const int programs = at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
  const at::Tensor dy = grad.contiguous(), rows_of_x = x.contiguous();
  at::Tensor dx = at::empty(x.sizes(), x.options());
  at::Tensor dw = at::empty({programs, n}, x.options().dtype(at::kFloat));
  backward_kernel<<<programs, THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(
      data(dy), data(rows_of_x), data(w), rstd.const_data_ptr<float>(), static_cast<__half*>(dx.mutable_data_ptr()),
      dw.mutable_data_ptr<float>(), int(n), int(n), int(rows), int(n));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {dx, needs_w ? dw.sum(0).to(w.scalar_type()) : at::Tensor()};
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w, double eps) {
    at::AutoDispatchBelowADInplaceOrView guard;
    auto [y, rstd] = ::forward(x, w, eps);
    ctx->save_for_backward({x, w, rstd});
    return y;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const tensor_list saved = ctx->get_saved_variables();
    auto [dx, dw] = ::backward(grads[0], saved[0], saved[1], saved[2], ctx->needs_input_grad(1));
    return {dx, dw, at::Tensor()};
  }
};

at::Tensor rms_norm_with_gradients(const at::Tensor& x, const at::Tensor& w, double eps) {
  return RmsNorm::apply(x, w, eps);
}

}  // namespace

TORCH_LIBRARY(captured_rms_norm_by_hand, m) {
  m.def("rms_norm(Tensor x, Tensor weight, float eps=1e-6) -> Tensor");
}
TORCH_LIBRARY_IMPL(captured_rms_norm_by_hand, CUDA, m) { m.impl("rms_norm", &rms_norm); }
TORCH_LIBRARY_IMPL(captured_rms_norm_by_hand, AutogradCUDA, m) { m.impl("rms_norm", &rms_norm_with_gradients); }
