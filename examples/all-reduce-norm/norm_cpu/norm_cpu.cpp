#include "torch_binding.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>
#include <c10/util/Half.h>
#include <torch/csrc/stable/c/shim.h> // torch_parallel_for: Torch's threads, without OpenMP flags here

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace {

constexpr std::int64_t kGrain = 1 << 14; // elements that are worth a thread

template <typename Body> void parallel_for(std::int64_t n, std::int64_t grain, const Body &body) {
  auto call = [](std::int64_t begin, std::int64_t end, void *context) {
    (*static_cast<const Body *>(context))(begin, end);
  };
  auto status = torch_parallel_for(0, n, grain, call, const_cast<Body *>(&body));
  TORCH_CHECK(status == 0, "all_reduce_rms_norm: torch_parallel_for failed");
}

template <typename T> void add_rms_norm_as(const all_reduce_norm::AddNorm &call) {
  const std::int64_t hidden = call.weight.numel();
  const std::int64_t rows = call.residual.numel() / hidden;
  const T *sum = static_cast<const T *>(call.sum.const_data_ptr());
  const T *residual = static_cast<const T *>(call.residual.const_data_ptr());
  const T *weight = static_cast<const T *>(call.weight.const_data_ptr());
  T *normalized = static_cast<T *>(call.normalized.mutable_data_ptr());
  T *total = static_cast<T *>(call.total.mutable_data_ptr());
  const float eps = float(call.eps);

  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / hidden);
  parallel_for(rows, grain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t start = row * hidden;
      double squares = 0;
      for (std::int64_t i = start; i < start + hidden; ++i) {
        total[i] = T(float(residual[i]) + float(sum[i]));
        const float value = float(total[i]);
        squares += double(value) * value;
      }
      const float scale = 1.0f / std::sqrt(float(squares / double(hidden)) + eps);
      for (std::int64_t i = 0; i < hidden; ++i) {
        normalized[start + i] = T(float(total[start + i]) * scale * float(weight[i]));
      }
    }
  });
}

} // namespace

namespace all_reduce_norm {

void add_rms_norm(const AddNorm &call) {
  switch (call.residual.scalar_type()) {
  case at::kFloat:
    return add_rms_norm_as<float>(call);
  case at::kHalf:
    return add_rms_norm_as<c10::Half>(call);
  case at::kBFloat16:
    return add_rms_norm_as<c10::BFloat16>(call);
  default:
    TORCH_CHECK(false, "all_reduce_rms_norm: unsupported dtype ", call.residual.scalar_type());
  }
}

} // namespace all_reduce_norm
