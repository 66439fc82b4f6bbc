// What a backend implements.
//
// The binding takes care of shapes and types, so a backend may rely on this: the arrays of one call
// are contiguous, on the same device of its kind, and have the same dtype and `n` > 0 elements.

#pragma once

#include <cstdint>

namespace relu {

enum class Dtype { Float32, Float64, Float16, BFloat16 };

// Where a call runs: the number of the device, and its current stream where the device has streams.
struct Place {
  int device;
  void *stream;
};

// out = max(x, 0), NaN stays NaN. `out` may be `x`. Returns nullptr, or what went wrong.
const char *forward(void *out, const void *x, std::int64_t n, Dtype dtype, Place place);

// grad_x = grad where x > 0 or x is NaN, else 0. Returns nullptr, or what went wrong.
const char *backward(void *grad_x, const void *grad, const void *x, std::int64_t n, Dtype dtype,
                     Place place);

} // namespace relu
