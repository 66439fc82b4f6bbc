// The functions of the kernel, for arrays of any framework. Results are written into arrays that the
// caller made: every framework makes its own.

#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

#include <algorithm>

#include "relu_binding.h"

#if defined(CPU_KERNEL)
#define DEVICE kDLCPU
#elif defined(CUDA_KERNEL)
#define DEVICE kDLCUDA
#elif defined(ROCM_KERNEL)
#define DEVICE kDLROCM
#elif defined(XPU_KERNEL)
#define DEVICE kDLOneAPI
#else
#error "no backend: expected one of CPU_KERNEL, CUDA_KERNEL, ROCM_KERNEL, XPU_KERNEL"
#endif

namespace {

using tvm::ffi::TensorView;

relu::Dtype dtype_of(const TensorView &x) {
  const DLDataType dtype = x.dtype();
  if (dtype.lanes == 1 && dtype.code == kDLFloat) {
    switch (dtype.bits) {
    case 16:
      return relu::Dtype::Float16;
    case 32:
      return relu::Dtype::Float32;
    case 64:
      return relu::Dtype::Float64;
    }
  }
  if (dtype.lanes == 1 && dtype.code == kDLBfloat && dtype.bits == 16) {
    return relu::Dtype::BFloat16;
  }
  TVM_FFI_THROW(TypeError) << "relu: unsupported dtype: code " << int(dtype.code) << ", "
                           << int(dtype.bits) << " bits";
}

void check(const TensorView &x, const char *name) {
  if (x.device().device_type != DEVICE) {
    TVM_FFI_THROW(ValueError) << "relu: " << name << " is on a device of kind "
                              << int(x.device().device_type)
                              << " (see DLDeviceType), this build is for kind " << int(DEVICE);
  }
  if (!x.IsContiguous()) {
    TVM_FFI_THROW(ValueError) << "relu: " << name << " must be contiguous";
  }
}

void check_same_kind(const TensorView &x, const TensorView &other, const char *name) {
  check(other, name);
  const auto shape = x.shape(), given = other.shape();
  if (!std::equal(shape.begin(), shape.end(), given.begin(), given.end())) {
    TVM_FFI_THROW(ValueError) << "relu: " << name << " must have the shape of x";
  }
  const DLDataType wanted = x.dtype(), dtype = other.dtype();
  if (wanted.code != dtype.code || wanted.bits != dtype.bits || wanted.lanes != dtype.lanes) {
    TVM_FFI_THROW(TypeError) << "relu: " << name << " must have the dtype of x";
  }
  if (x.device().device_id != other.device().device_id) {
    TVM_FFI_THROW(ValueError) << "relu: " << name << " must be on the device of x";
  }
}

void *data_of(const TensorView &x) { return static_cast<char *>(x.data_ptr()) + x.byte_offset(); }

// Torch's current stream for Torch's tensors, the one of the call for JAX.
relu::Place place_of(const TensorView &x) {
  const DLDevice device = x.device();
  void *stream = device.device_type == kDLCPU
                     ? nullptr
                     : TVMFFIEnvGetStream(device.device_type, device.device_id);
  return {device.device_id, stream};
}

void raise(const char *error) {
  if (error != nullptr) {
    TVM_FFI_THROW(RuntimeError) << "relu: " << error;
  }
}

void forward(TensorView x, TensorView out) {
  const relu::Dtype dtype = dtype_of(x);
  check(x, "x");
  check_same_kind(x, out, "out");
  if (x.numel() > 0) {
    raise(relu::forward(data_of(out), data_of(x), x.numel(), dtype, place_of(x)));
  }
}

void backward(TensorView grad, TensorView x, TensorView grad_x) {
  const relu::Dtype dtype = dtype_of(x);
  check(x, "x");
  check_same_kind(x, grad, "grad");
  check_same_kind(x, grad_x, "grad_x");
  if (x.numel() > 0) {
    raise(relu::backward(data_of(grad_x), data_of(grad), data_of(x), x.numel(), dtype,
                         place_of(x)));
  }
}

} // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(relu, forward)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(relu_backward, backward)
