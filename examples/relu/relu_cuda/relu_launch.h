// Between Torch and the device code. Only plain C++ types cross this line, so the device code is
// compiled without Torch's headers, in seconds, and its object serves every version of Torch.

#pragma once

#include <cstdint>

namespace relu {

enum class Dtype { Float32, Float64, Float16, BFloat16 };

// Both return nullptr, or what went wrong. `stream` is a cudaStream_t of the current device.
const char *launch_forward(void *out, const void *x, std::int64_t n, Dtype dtype, void *stream);
const char *launch_backward(void *grad_x, const void *grad, const void *x, std::int64_t n,
                            Dtype dtype, void *stream);

} // namespace relu
