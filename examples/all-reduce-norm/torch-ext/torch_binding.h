// What a backend implements.
//
// The binding takes care of shapes, layouts and types, so a backend may rely on this: the tensors of
// one call have the same device and dtype (float32, float16 or bfloat16), are contiguous and hold at
// least one element. All have shape (..., hidden), but `weight` has shape (hidden).

#pragma once

#include <ATen/core/TensorBase.h>

namespace all_reduce_norm {

struct AddNorm {
  const at::TensorBase &sum;
  const at::TensorBase &residual;
  const at::TensorBase &weight;
  const at::TensorBase &normalized; // written
  const at::TensorBase &total;      // written
  double eps;
};

// total = residual + sum, rounded to the dtype; normalized = total / rms(total) * weight, where
// rms(total) = sqrt(mean(total^2) + eps) over the last dimension. Every element is
// computed in float32 at least.
void add_rms_norm(const AddNorm &call);

} // namespace all_reduce_norm
