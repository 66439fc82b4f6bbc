// From Torch's tensors to the launches of relu.cu, for CUDA and for ROCm alike.

#include "torch_binding.h"

#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include "relu_launch.h"

// Torch declares it for CUDA builds only, but exports it from its ROCm build as well. It stands in
// for c10/cuda/CUDAStream.h, which would drag in the CUDA toolkit.
extern "C" AOTI_TORCH_EXPORT AOTITorchError
aoti_torch_get_current_cuda_stream(int32_t device_index, void **ret_stream);

namespace {

relu::Dtype dtype_of(const at::TensorBase &x) {
  switch (x.scalar_type()) {
  case at::kFloat:
    return relu::Dtype::Float32;
  case at::kDouble:
    return relu::Dtype::Float64;
  case at::kHalf:
    return relu::Dtype::Float16;
  case at::kBFloat16:
    return relu::Dtype::BFloat16;
  default:
    TORCH_CHECK(false, "relu: unsupported dtype ", x.scalar_type());
  }
}

void *current_stream(const at::TensorBase &x) {
  void *stream = nullptr;
  const auto status = aoti_torch_get_current_cuda_stream(x.device().index(), &stream);
  TORCH_CHECK(status == AOTI_TORCH_SUCCESS, "relu: no current stream on ", x.device());
  return stream;
}

void check(const char *error) { TORCH_CHECK(error == nullptr, "relu: ", error); }

} // namespace

namespace relu {

void forward(const at::TensorBase &x, const at::TensorBase &out) {
  const c10::DeviceGuard guard(x.device());
  check(launch_forward(out.mutable_data_ptr(), x.const_data_ptr(), x.numel(), dtype_of(x),
                       current_stream(x)));
}

void backward(const at::TensorBase &grad, const at::TensorBase &x, const at::TensorBase &grad_x) {
  const c10::DeviceGuard guard(x.device());
  check(launch_backward(grad_x.mutable_data_ptr(), grad.const_data_ptr(), x.const_data_ptr(),
                        x.numel(), dtype_of(x), current_stream(x)));
}

} // namespace relu
