#include "torch_binding.h"

#include <c10/util/Exception.h>
#include <torch/csrc/stable/c/shim.h> // torch_parallel_for: Torch's threads, without OpenMP flags here

#include <cstdint>

// The compiler may vectorise although `out` can be `x`: element i depends on element i only.
#if defined(__clang__)
#define ELEMENTWISE _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define ELEMENTWISE _Pragma("GCC ivdep")
#else
#define ELEMENTWISE
#endif

namespace {

constexpr std::int64_t kGrain = 1 << 15; // elements that are worth a thread

// A positive comparison would send NaN to zero, hence `x < 0 ? 0 : x`.
template <typename T> struct Native {
  using Element = T;
  static T relu(T x) { return x < T(0) ? T(0) : x; }
  static T relu_grad(T grad, T x) { return x <= T(0) ? T(0) : grad; }
};

// A 16-bit float needs no conversion: as a signed integer, every negative number down to -inf is at
// most the bits of -inf, while negative NaNs are above them.
template <int kMinusInf> struct Bits {
  using Element = std::int16_t;
  static Element relu(Element x) { return x > Element(kMinusInf) ? x : Element(0); }
  static Element relu_grad(Element grad, Element x) {
    return (x > Element(kMinusInf)) & (x != 0) ? grad : Element(0);
  }
};

using Half = Bits<0xFC00 - 0x10000>;
using BFloat16 = Bits<0xFF80 - 0x10000>;

template <typename Body> void parallel_for(std::int64_t n, const Body &body) {
  auto call = [](std::int64_t begin, std::int64_t end, void *context) {
    (*static_cast<const Body *>(context))(begin, end);
  };
  auto status = torch_parallel_for(0, n, kGrain, call, const_cast<Body *>(&body));
  TORCH_CHECK(status == 0, "relu: torch_parallel_for failed");
}

template <typename Kind> void forward_as(const at::TensorBase &x, const at::TensorBase &out) {
  using T = typename Kind::Element;
  const T *in = static_cast<const T *>(x.const_data_ptr());
  T *to = static_cast<T *>(out.mutable_data_ptr());
  parallel_for(x.numel(), [=](std::int64_t begin, std::int64_t end) {
    ELEMENTWISE
    for (std::int64_t i = begin; i < end; ++i) {
      to[i] = Kind::relu(in[i]);
    }
  });
}

template <typename Kind>
void backward_as(const at::TensorBase &grad, const at::TensorBase &x,
                 const at::TensorBase &grad_x) {
  using T = typename Kind::Element;
  const T *from = static_cast<const T *>(grad.const_data_ptr());
  const T *in = static_cast<const T *>(x.const_data_ptr());
  T *to = static_cast<T *>(grad_x.mutable_data_ptr());
  parallel_for(x.numel(), [=](std::int64_t begin, std::int64_t end) {
    ELEMENTWISE
    for (std::int64_t i = begin; i < end; ++i) {
      to[i] = Kind::relu_grad(from[i], in[i]);
    }
  });
}

} // namespace

namespace relu {

void forward(const at::TensorBase &x, const at::TensorBase &out) {
  switch (x.scalar_type()) {
  case at::kFloat:
    return forward_as<Native<float>>(x, out);
  case at::kDouble:
    return forward_as<Native<double>>(x, out);
  case at::kHalf:
    return forward_as<Half>(x, out);
  case at::kBFloat16:
    return forward_as<BFloat16>(x, out);
  default:
    TORCH_CHECK(false, "relu: unsupported dtype ", x.scalar_type());
  }
}

void backward(const at::TensorBase &grad, const at::TensorBase &x, const at::TensorBase &grad_x) {
  switch (x.scalar_type()) {
  case at::kFloat:
    return backward_as<Native<float>>(grad, x, grad_x);
  case at::kDouble:
    return backward_as<Native<double>>(grad, x, grad_x);
  case at::kHalf:
    return backward_as<Half>(grad, x, grad_x);
  case at::kBFloat16:
    return backward_as<BFloat16>(grad, x, grad_x);
  default:
    TORCH_CHECK(false, "relu: unsupported dtype ", x.scalar_type());
  }
}

} // namespace relu
