// From Torch's tensors to the launch of norm.cu.

#include "torch_binding.h"

#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include "norm_launch.h"

// Torch declares it for CUDA builds only. It stands in for c10/cuda/CUDAStream.h, which would drag in
// the CUDA toolkit.
extern "C" AOTI_TORCH_EXPORT AOTITorchError
aoti_torch_get_current_cuda_stream(int32_t device_index, void **ret_stream);

namespace all_reduce_norm {

namespace {

Dtype dtype_of(const at::TensorBase &x) {
  switch (x.scalar_type()) {
  case at::kFloat:
    return Dtype::Float32;
  case at::kHalf:
    return Dtype::Float16;
  case at::kBFloat16:
    return Dtype::BFloat16;
  default:
    TORCH_CHECK(false, "all_reduce_rms_norm: unsupported dtype ", x.scalar_type());
  }
}

void *current_stream(const at::TensorBase &x) {
  void *stream = nullptr;
  const auto status = aoti_torch_get_current_cuda_stream(x.device().index(), &stream);
  TORCH_CHECK(status == AOTI_TORCH_SUCCESS, "all_reduce_rms_norm: no current stream on ",
              x.device());
  return stream;
}

} // namespace

void add_rms_norm(const AddNorm &call) {
  const c10::DeviceGuard guard(call.residual.device());
  const std::int64_t hidden = call.weight.numel();
  const Launch launch{call.sum.const_data_ptr(),
                      call.residual.const_data_ptr(),
                      call.weight.const_data_ptr(),
                      call.normalized.mutable_data_ptr(),
                      call.total.mutable_data_ptr(),
                      call.residual.numel() / hidden,
                      hidden,
                      float(call.eps)};
  const char *error =
      launch_add_rms_norm(launch, dtype_of(call.residual), current_stream(call.residual));
  TORCH_CHECK(error == nullptr, "all_reduce_rms_norm: ", error);
}

} // namespace all_reduce_norm
