#include "torch_binding.h"

#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/util/Exception.h>

#include <cstdint>

// The compiler may vectorise: element i depends on element i only.
#if defined(__clang__)
#define ELEMENTWISE _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define ELEMENTWISE _Pragma("GCC ivdep")
#else
#define ELEMENTWISE
#endif

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

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

template <typename Kind> void forward_as(const Tensor &x, const Tensor &out) {
  using T = typename Kind::Element;
  const T *in = static_cast<const T *>(x.const_data_ptr());
  T *to = static_cast<T *>(out.mutable_data_ptr());
  torch::stable::parallel_for(0, x.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
    ELEMENTWISE
    for (std::int64_t i = begin; i < end; ++i) {
      to[i] = Kind::relu(in[i]);
    }
  });
}

template <typename Kind>
void backward_as(const Tensor &grad, const Tensor &x, const Tensor &grad_x) {
  using T = typename Kind::Element;
  const T *from = static_cast<const T *>(grad.const_data_ptr());
  const T *in = static_cast<const T *>(x.const_data_ptr());
  T *to = static_cast<T *>(grad_x.mutable_data_ptr());
  torch::stable::parallel_for(0, x.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
    ELEMENTWISE
    for (std::int64_t i = begin; i < end; ++i) {
      to[i] = Kind::relu_grad(from[i], in[i]);
    }
  });
}

} // namespace

namespace relu {

void forward(const Tensor &x, const Tensor &out) {
  switch (x.scalar_type()) {
  case ScalarType::Float:
    return forward_as<Native<float>>(x, out);
  case ScalarType::Double:
    return forward_as<Native<double>>(x, out);
  case ScalarType::Half:
    return forward_as<Half>(x, out);
  case ScalarType::BFloat16:
    return forward_as<BFloat16>(x, out);
  default:
    STD_TORCH_CHECK(false, "relu: unsupported dtype ",
                    torch::headeronly::toString(x.scalar_type()));
  }
}

void backward(const Tensor &grad, const Tensor &x, const Tensor &grad_x) {
  switch (x.scalar_type()) {
  case ScalarType::Float:
    return backward_as<Native<float>>(grad, x, grad_x);
  case ScalarType::Double:
    return backward_as<Native<double>>(grad, x, grad_x);
  case ScalarType::Half:
    return backward_as<Half>(grad, x, grad_x);
  case ScalarType::BFloat16:
    return backward_as<BFloat16>(grad, x, grad_x);
  default:
    STD_TORCH_CHECK(false, "relu: unsupported dtype ",
                    torch::headeronly::toString(x.scalar_type()));
  }
}

} // namespace relu
