// What Torch's headers declare with <thrust/complex.h>, which is large. Sources that have complex numbers get Thrust's.
#pragma once

#ifdef KBUILD_INLINE_COMPLEX
#include_next <thrust/complex.h>
#else

#include <cuda_runtime.h>

namespace thrust {

template <typename T>
class complex {
 public:
  __host__ __device__ complex(const T &real = T(), const T &imag = T()) : real_(real), imag_(imag) {}
  template <typename U>
  __host__ __device__ complex(const complex<U> &other) : real_(T(other.real())), imag_(T(other.imag())) {}
  __host__ __device__ T real() const { return real_; }
  __host__ __device__ T imag() const { return imag_; }

 private:
  T real_, imag_;
};

// None of these has a body: a call would not link.
template <typename T>
__host__ __device__ T abs(const complex<T> &);
template <typename T>
__host__ __device__ complex<T> polar(const T &, const T & = T());
template <typename T, typename U>
__host__ __device__ complex<T> pow(const T &, const U &);

#define KBUILD_INLINE_FUNCTION(name) \
  template <typename T>              \
  __host__ __device__ complex<T> name(const complex<T> &);
KBUILD_INLINE_FUNCTION(exp)
KBUILD_INLINE_FUNCTION(log)
KBUILD_INLINE_FUNCTION(log10)
KBUILD_INLINE_FUNCTION(sqrt)
KBUILD_INLINE_FUNCTION(sin)
KBUILD_INLINE_FUNCTION(cos)
KBUILD_INLINE_FUNCTION(tan)
KBUILD_INLINE_FUNCTION(asin)
KBUILD_INLINE_FUNCTION(acos)
KBUILD_INLINE_FUNCTION(atan)
KBUILD_INLINE_FUNCTION(sinh)
KBUILD_INLINE_FUNCTION(cosh)
KBUILD_INLINE_FUNCTION(tanh)
KBUILD_INLINE_FUNCTION(asinh)
KBUILD_INLINE_FUNCTION(acosh)
KBUILD_INLINE_FUNCTION(atanh)
#undef KBUILD_INLINE_FUNCTION

}  // namespace thrust

#endif
