// ReLU for the CPU as a user of torch.utils.cpp_extension writes it: one file that includes
// torch/extension.h. It does what examples/relu does.

#include <torch/extension.h>

#include <ATen/Parallel.h>

namespace {

constexpr int64_t kGrain = 1 << 15;

void check(const torch::Tensor &x, const torch::Tensor &like, const char *name) {
  TORCH_CHECK(x.is_cpu(), "relu: ", name, " must be on the CPU, but is on ", x.device());
  TORCH_CHECK(x.sizes() == like.sizes(), "relu: ", name, " has the wrong shape, ", x.sizes());
  TORCH_CHECK(x.scalar_type() == like.scalar_type(), "relu: ", name, " has the wrong dtype");
}

} // namespace

void relu_out(const torch::Tensor &x, torch::Tensor &out) {
  check(x, x, "x");
  check(out, x, "out");
  const torch::Tensor input = x.contiguous();
  TORCH_CHECK(out.is_contiguous(), "relu: out must be contiguous");
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "relu", [&] {
    scalar_t *to = out.mutable_data_ptr<scalar_t>();
    const scalar_t *from = input.const_data_ptr<scalar_t>();
    at::parallel_for(0, input.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        to[i] = from[i] < scalar_t(0) ? scalar_t(0) : from[i];
      }
    });
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
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "relu_backward", [&] {
    scalar_t *to = grad_x.mutable_data_ptr<scalar_t>();
    const scalar_t *from = grads.const_data_ptr<scalar_t>();
    const scalar_t *in = inputs.const_data_ptr<scalar_t>();
    at::parallel_for(0, inputs.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        to[i] = in[i] <= scalar_t(0) ? scalar_t(0) : from[i];
      }
    });
  });
  return grad_x;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("relu", &relu);
  module.def("relu_backward", &relu_backward);
  module.def("relu_out", &relu_out);
}
