// What a backend implements.
//
// The binding takes care of shapes, layouts and types, so a backend may rely on this: the tensors of
// one call have the same device, dtype, sizes and strides, fill their memory without gaps and hold at
// least one element. Element i of the memory is then one flat array's element i in each of them.

#pragma once

#include <ATen/core/TensorBase.h>

namespace relu {

// out = max(x, 0), NaN stays NaN. `out` may be `x`.
void forward(const at::TensorBase &x, const at::TensorBase &out);

// grad_x = grad where x > 0 or x is NaN, else 0.
void backward(const at::TensorBase &grad, const at::TensorBase &x, const at::TensorBase &grad_x);

} // namespace relu
