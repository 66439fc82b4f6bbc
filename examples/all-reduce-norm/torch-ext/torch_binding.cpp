#include <torch/library.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>

#include <string>
#include <tuple>

#include "registration.h"
#include "torch_binding.h"

#if defined(CPU_KERNEL)
#define DISPATCH_KEY CPU
#elif defined(CUDA_KERNEL)
#define DISPATCH_KEY CUDA
#else
#error "no backend: expected CPU_KERNEL or CUDA_KERNEL"
#endif

namespace {

using at::Tensor;

void check_inputs(const Tensor &partial, const Tensor &residual, const Tensor &weight) {
  const auto dtype = residual.scalar_type();
  TORCH_CHECK(dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16,
              "all_reduce_rms_norm: unsupported dtype ", dtype);
  TORCH_CHECK(residual.dim() > 0, "all_reduce_rms_norm: residual must have a dimension");
  TORCH_CHECK(partial.sizes() == residual.sizes(),
              "all_reduce_rms_norm: partial must have the shape of residual, ", residual.sizes(),
              ", but has ", partial.sizes());
  TORCH_CHECK(weight.dim() == 1 && weight.size(0) == residual.size(-1),
              "all_reduce_rms_norm: weight must have the shape [", residual.size(-1), "], but has ",
              weight.sizes());
  for (const Tensor *other : {&partial, &weight}) {
    TORCH_CHECK(other->scalar_type() == dtype,
                "all_reduce_rms_norm: partial and weight must have the dtype of residual, ", dtype,
                ", but one has ", other->scalar_type());
    TORCH_CHECK(other->device() == residual.device(),
                "all_reduce_rms_norm: partial and weight must be on the device of residual, ",
                residual.device(), ", but one is on ", other->device());
  }
}

// Torch's process group communicates: NCCL for CUDA tensors, gloo for CPU tensors. Torch's dispatcher
// calls it by name, so neither of them is linked. Calls are boxed, because releases of Torch declare
// the type of the group's name differently.
Tensor sum_over_ranks(const Tensor &partial, const std::string &group_name) {
  static const auto all_reduce =
      c10::Dispatcher::singleton().findSchemaOrThrow("_c10d_functional::all_reduce", "");
  static const auto wait_tensor =
      c10::Dispatcher::singleton().findSchemaOrThrow("_c10d_functional::wait_tensor", "");
  torch::jit::Stack stack{partial.contiguous(), std::string("sum"), group_name};
  all_reduce.callBoxed(stack);
  wait_tensor.callBoxed(stack); // for CUDA, the current stream waits, not this thread
  return stack.front().toTensor();
}

std::tuple<Tensor, Tensor> all_reduce_rms_norm(const Tensor &partial, const Tensor &residual,
                                               const Tensor &weight, double eps,
                                               const std::string &group_name) {
  check_inputs(partial, residual, weight);
  const Tensor sum = sum_over_ranks(partial, group_name);
  const Tensor before = residual.contiguous();
  const Tensor scale = weight.contiguous();
  Tensor normalized = at::empty_like(before);
  Tensor total = at::empty_like(before);
  if (before.numel() > 0) {
    all_reduce_norm::add_rms_norm({sum, before, scale, normalized, total, eps});
  }
  return {normalized, total};
}

} // namespace

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("all_reduce_rms_norm(Tensor partial, Tensor residual, Tensor weight, float eps, "
          "str group_name) -> (Tensor, Tensor)",
          {at::Tag::pt2_compliant_tag});
}

TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, DISPATCH_KEY, ops) {
  ops.impl("all_reduce_rms_norm", &all_reduce_rms_norm);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
