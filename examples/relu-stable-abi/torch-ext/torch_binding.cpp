// Only Torch's stable ABI is used, so one binary serves Torch 2.11 and every later version.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>

#include "registration.h"
#include "torch_binding.h"

#if defined(CPU_KERNEL)
#define DISPATCH_KEY CPU
#elif defined(CUDA_KERNEL) || defined(ROCM_KERNEL) // ROCm's tensors are Torch's CUDA tensors
#define DISPATCH_KEY CUDA
#else
#error "no backend: expected CPU_KERNEL, CUDA_KERNEL or ROCM_KERNEL"
#endif

namespace {

using torch::headeronly::IntHeaderOnlyArrayRef;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;

bool equal(IntHeaderOnlyArrayRef a, IntHeaderOnlyArrayRef b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

void check_dtype(const Tensor &x) {
  const ScalarType dtype = x.scalar_type();
  STD_TORCH_CHECK(dtype == ScalarType::Float || dtype == ScalarType::Double ||
                      dtype == ScalarType::Half || dtype == ScalarType::BFloat16,
                  "relu: unsupported dtype ", torch::headeronly::toString(dtype));
}

void check_same_kind(const Tensor &x, const Tensor &grad) {
  STD_TORCH_CHECK(equal(grad.sizes(), x.sizes()), "relu: grad must have the shape of x");
  STD_TORCH_CHECK(grad.scalar_type() == x.scalar_type(), "relu: grad must have the dtype of x");
  STD_TORCH_CHECK(grad.device() == x.device(), "relu: grad must be on the device of x");
}

// `x`, or a copy of it that is laid out as `like`.
Tensor with_layout_of(const Tensor &like, const Tensor &x) {
  if (equal(x.strides(), like.strides())) {
    return x;
  }
  Tensor copy = torch::stable::empty_like(like);
  return torch::stable::copy_(copy, x);
}

// empty_like keeps the layout of a tensor without gaps or overlaps (contiguous, channels-last, ...)
// and picks a dense layout for any other, so `out` always is dense, and `x` is when the two agree.
Tensor relu_op(const Tensor &x) {
  check_dtype(x);
  Tensor out = torch::stable::empty_like(x);
  if (x.numel() > 0) {
    relu::forward(with_layout_of(out, x), out);
  }
  return out;
}

Tensor relu_backward_op(const Tensor &grad, const Tensor &x) {
  check_dtype(x);
  check_same_kind(x, grad);
  Tensor grad_x = torch::stable::empty_like(x);
  if (x.numel() > 0) {
    relu::backward(with_layout_of(grad_x, grad), with_layout_of(grad_x, x), grad_x);
  }
  return grad_x;
}

} // namespace

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("relu(Tensor x) -> Tensor");
  ops.def("relu_backward(Tensor grad, Tensor x) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, DISPATCH_KEY, ops) {
  ops.impl("relu", TORCH_BOX(&relu_op));
  ops.impl("relu_backward", TORCH_BOX(&relu_backward_op));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
