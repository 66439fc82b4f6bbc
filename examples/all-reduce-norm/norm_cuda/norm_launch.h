// Between Torch and the device code. Only plain C++ types cross this line, so the device code is
// compiled without Torch's headers, and its object serves every version of Torch.

#pragma once

#include <cstdint>

namespace all_reduce_norm {

enum class Dtype { Float32, Float16, BFloat16 };

struct Launch {
  const void *sum;      // (rows, hidden)
  const void *residual; // (rows, hidden)
  const void *weight;   // (hidden)
  void *normalized;     // (rows, hidden), written
  void *total;          // (rows, hidden), written
  std::int64_t rows;
  std::int64_t hidden;
  float eps;
};

// Returns nullptr, or what went wrong. `stream` is a cudaStream_t of the current device.
const char *launch_add_rms_norm(const Launch &launch, Dtype dtype, void *stream);

} // namespace all_reduce_norm
