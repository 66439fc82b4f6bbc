#include "relu_binding.h"

#include <sycl/sycl.hpp>

#include <cstdint>

namespace {

constexpr std::int64_t kVectorBytes = 16;

// ReLU needs no arithmetic, so each float type is handled as the integer of its width: as a signed
// integer, every negative number down to -inf is at most the bits of -inf, negative NaNs are above.
// A device without float64 can thus handle float64 too.
template <typename Int, Int kMinusInf> struct Bits {
  using Element = Int;
  static Int relu(Int x) { return x > kMinusInf ? x : Int(0); }
  static Int relu_grad(Int grad, Int x) { return x > kMinusInf && x != 0 ? grad : Int(0); }
};

using Float32 = Bits<std::int32_t, std::int32_t(0xFF800000)>;
using Float64 = Bits<std::int64_t, std::int64_t(0xFFF0000000000000)>;
using Float16 = Bits<std::int16_t, std::int16_t(0xFC00)>;
using BFloat16 = Bits<std::int16_t, std::int16_t(0xFF80)>;

template <typename T, int N> struct alignas(sizeof(T) * N) Vector {
  T at[N];
};

template <typename... Pointers> bool aligned(Pointers... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % kVectorBytes == 0) && ...);
}

// Each work item takes N neighbouring elements; only the last item can have fewer.
template <typename Kind, int N, typename T = typename Kind::Element>
void forward_kernel(sycl::queue &queue, T *out, const T *x, std::int64_t n) {
  using Pack = Vector<T, N>;
  const std::int64_t items = (n + N - 1) / N;
  queue.parallel_for(sycl::range<1>(items), [=](sycl::id<1> id) {
    const std::int64_t i = id[0];
    if ((i + 1) * N <= n) {
      Pack pack = reinterpret_cast<const Pack *>(x)[i];
      for (int k = 0; k < N; ++k) {
        pack.at[k] = Kind::relu(pack.at[k]);
      }
      reinterpret_cast<Pack *>(out)[i] = pack;
    } else {
      for (std::int64_t j = i * N; j < n; ++j) {
        out[j] = Kind::relu(x[j]);
      }
    }
  });
}

template <typename Kind, int N, typename T = typename Kind::Element>
void backward_kernel(sycl::queue &queue, T *grad_x, const T *grad, const T *x, std::int64_t n) {
  using Pack = Vector<T, N>;
  const std::int64_t items = (n + N - 1) / N;
  queue.parallel_for(sycl::range<1>(items), [=](sycl::id<1> id) {
    const std::int64_t i = id[0];
    if ((i + 1) * N <= n) {
      Pack pack = reinterpret_cast<const Pack *>(grad)[i];
      const Pack inputs = reinterpret_cast<const Pack *>(x)[i];
      for (int k = 0; k < N; ++k) {
        pack.at[k] = Kind::relu_grad(pack.at[k], inputs.at[k]);
      }
      reinterpret_cast<Pack *>(grad_x)[i] = pack;
    } else {
      for (std::int64_t j = i * N; j < n; ++j) {
        grad_x[j] = Kind::relu_grad(grad[j], x[j]);
      }
    }
  });
}

template <typename Kind>
void forward_as(sycl::queue &queue, void *out, const void *x, std::int64_t n) {
  using T = typename Kind::Element;
  constexpr int kWide = kVectorBytes / sizeof(T);
  T *to = static_cast<T *>(out);
  const T *in = static_cast<const T *>(x);
  if (aligned(to, in)) {
    forward_kernel<Kind, kWide>(queue, to, in, n);
  } else {
    forward_kernel<Kind, 1>(queue, to, in, n);
  }
}

template <typename Kind>
void backward_as(sycl::queue &queue, void *grad_x, const void *grad, const void *x,
                 std::int64_t n) {
  using T = typename Kind::Element;
  constexpr int kWide = kVectorBytes / sizeof(T);
  T *to = static_cast<T *>(grad_x);
  const T *from = static_cast<const T *>(grad);
  const T *in = static_cast<const T *>(x);
  if (aligned(to, from, in)) {
    backward_kernel<Kind, kWide>(queue, to, from, in, n);
  } else {
    backward_kernel<Kind, 1>(queue, to, from, in, n);
  }
}

constexpr const char *kNoQueue = "no current SYCL queue: only Torch's tensors bring one";

} // namespace

namespace relu {

// The stream of an XPU is taken for a pointer to a SYCL queue. Nobody has tried this on a device yet.
const char *forward(void *out, const void *x, std::int64_t n, Dtype dtype, Place place) {
  if (place.stream == nullptr) {
    return kNoQueue;
  }
  sycl::queue &queue = *static_cast<sycl::queue *>(place.stream);
  switch (dtype) {
  case Dtype::Float32:
    forward_as<Float32>(queue, out, x, n);
    return nullptr;
  case Dtype::Float64:
    forward_as<Float64>(queue, out, x, n);
    return nullptr;
  case Dtype::Float16:
    forward_as<Float16>(queue, out, x, n);
    return nullptr;
  case Dtype::BFloat16:
    forward_as<BFloat16>(queue, out, x, n);
    return nullptr;
  }
  return "unknown dtype";
}

const char *backward(void *grad_x, const void *grad, const void *x, std::int64_t n, Dtype dtype,
                     Place place) {
  if (place.stream == nullptr) {
    return kNoQueue;
  }
  sycl::queue &queue = *static_cast<sycl::queue *>(place.stream);
  switch (dtype) {
  case Dtype::Float32:
    backward_as<Float32>(queue, grad_x, grad, x, n);
    return nullptr;
  case Dtype::Float64:
    backward_as<Float64>(queue, grad_x, grad, x, n);
    return nullptr;
  case Dtype::Float16:
    backward_as<Float16>(queue, grad_x, grad, x, n);
    return nullptr;
  case Dtype::BFloat16:
    backward_as<BFloat16>(queue, grad_x, grad, x, n);
    return nullptr;
  }
  return "unknown dtype";
}

} // namespace relu
