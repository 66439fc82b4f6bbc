#include "relu_binding.h"

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

template <typename Kind> void forward_as(void *out, const void *x, std::int64_t n) {
  using T = typename Kind::Element;
  const T *in = static_cast<const T *>(x);
  T *to = static_cast<T *>(out);
  ELEMENTWISE
  for (std::int64_t i = 0; i < n; ++i) {
    to[i] = Kind::relu(in[i]);
  }
}

template <typename Kind>
void backward_as(void *grad_x, const void *grad, const void *x, std::int64_t n) {
  using T = typename Kind::Element;
  const T *from = static_cast<const T *>(grad);
  const T *in = static_cast<const T *>(x);
  T *to = static_cast<T *>(grad_x);
  ELEMENTWISE
  for (std::int64_t i = 0; i < n; ++i) {
    to[i] = Kind::relu_grad(from[i], in[i]);
  }
}

} // namespace

namespace relu {

const char *forward(void *out, const void *x, std::int64_t n, Dtype dtype, Place) {
  switch (dtype) {
  case Dtype::Float32:
    forward_as<Native<float>>(out, x, n);
    return nullptr;
  case Dtype::Float64:
    forward_as<Native<double>>(out, x, n);
    return nullptr;
  case Dtype::Float16:
    forward_as<Half>(out, x, n);
    return nullptr;
  case Dtype::BFloat16:
    forward_as<BFloat16>(out, x, n);
    return nullptr;
  }
  return "unknown dtype";
}

const char *backward(void *grad_x, const void *grad, const void *x, std::int64_t n, Dtype dtype,
                     Place) {
  switch (dtype) {
  case Dtype::Float32:
    backward_as<Native<float>>(grad_x, grad, x, n);
    return nullptr;
  case Dtype::Float64:
    backward_as<Native<double>>(grad_x, grad, x, n);
    return nullptr;
  case Dtype::Float16:
    backward_as<Half>(grad_x, grad, x, n);
    return nullptr;
  case Dtype::BFloat16:
    backward_as<BFloat16>(grad_x, grad, x, n);
    return nullptr;
  }
  return "unknown dtype";
}

} // namespace relu
