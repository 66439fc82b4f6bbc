#include <torch/library.h>

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty_like.h>

#include "registration.h"
#include "torch_binding.h"

#if defined(CPU_KERNEL)
#define DISPATCH_KEY CPU
#elif defined(CUDA_KERNEL) || defined(ROCM_KERNEL) // Torch calls AMD devices "cuda" too
#define DISPATCH_KEY CUDA
#elif defined(XPU_KERNEL)
#define DISPATCH_KEY XPU
#elif defined(METAL_KERNEL)
#define DISPATCH_KEY MPS
#else
#error "no backend: expected one of CPU_KERNEL, CUDA_KERNEL, ROCM_KERNEL, XPU_KERNEL, METAL_KERNEL"
#endif

namespace {

using at::Tensor;

void check_dtype(const Tensor &x) {
  switch (x.scalar_type()) {
  case at::kFloat:
  case at::kHalf:
  case at::kBFloat16:
    return;
#ifndef METAL_KERNEL // Metal has no double
  case at::kDouble:
    return;
#endif
  default:
    TORCH_CHECK(false, "relu: unsupported dtype ", x.scalar_type());
  }
}

void check_same_kind(const Tensor &x, const Tensor &other, const char *name) {
  TORCH_CHECK(other.sizes() == x.sizes(), "relu: ", name, " must have the shape of x, ", x.sizes(),
              ", but has ", other.sizes());
  TORCH_CHECK(other.scalar_type() == x.scalar_type(), "relu: ", name, " must have the dtype of x, ",
              x.scalar_type(), ", but has ", other.scalar_type());
  TORCH_CHECK(other.device() == x.device(), "relu: ", name, " must be on the device of x, ",
              x.device(), ", but is on ", other.device());
}

// `x`, or a copy of it that is laid out as `like`.
Tensor with_layout_of(const Tensor &like, const Tensor &x) {
  return x.strides() == like.strides() ? x : at::empty_like(like).copy_(x);
}

// empty_like keeps the layout of a tensor without gaps or overlaps (contiguous, channels-last, ...)
// and picks a dense layout for any other, so `out` always is dense, and `x` is when the two agree.
Tensor relu_op(const Tensor &x) {
  check_dtype(x);
  Tensor out = at::empty_like(x);
  if (x.numel() > 0) {
    relu::forward(with_layout_of(out, x), out);
  }
  return out;
}

Tensor relu_backward_op(const Tensor &grad, const Tensor &x) {
  check_dtype(x);
  check_same_kind(x, grad, "grad");
  Tensor grad_x = at::empty_like(x);
  if (x.numel() > 0) {
    relu::backward(with_layout_of(grad_x, grad), with_layout_of(grad_x, x), grad_x);
  }
  return grad_x;
}

void relu_out_op(const Tensor &x, Tensor &out) {
  check_dtype(x);
  check_same_kind(x, out, "out");
  at::assert_no_internal_overlap(out);
  at::assert_no_partial_overlap(x, out);
  if (x.numel() == 0) {
    return;
  }
  if (x.strides() == out.strides() && x.is_non_overlapping_and_dense()) {
    relu::forward(x, out);
  } else {
    out.copy_(relu_op(x));
  }
}

} // namespace

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("relu(Tensor x) -> Tensor", {at::Tag::pt2_compliant_tag});
  ops.def("relu_backward(Tensor grad, Tensor x) -> Tensor", {at::Tag::pt2_compliant_tag});
  ops.def("relu_out(Tensor x, Tensor(a!) out) -> ()", {at::Tag::pt2_compliant_tag});
}

TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, DISPATCH_KEY, ops) {
  ops.impl("relu", &relu_op);
  ops.impl("relu_backward", &relu_backward_op);
  ops.impl("relu_out", &relu_out_op);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
