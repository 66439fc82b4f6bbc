// Add and RMS norm in one kernel: a block for each row, 16 bytes per load. The sum with the residual is
// written anyway, so the second pass reads it from the cache.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "norm_launch.h"

namespace {

constexpr int kWarp = 32;
constexpr int kThreads = 256;
constexpr std::int64_t kMaxBlocks = 1 << 16; // blocks take further rows in turn
constexpr std::int64_t kVectorBytes = 16;

template <typename T, int N> struct alignas(sizeof(T) * N) Vector {
  T at[N];
};

__device__ float to_float(float x) { return x; }
__device__ float to_float(__half x) { return __half2float(x); }
__device__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T> __device__ T from_float(float x);
template <> __device__ float from_float<float>(float x) { return x; }
template <> __device__ __half from_float<__half>(float x) { return __float2half_rn(x); }
template <> __device__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// The sum over the block, in every thread of it.
__device__ float block_sum(float value) {
  __shared__ float warps[kThreads / kWarp];
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFu, value, offset);
  }
  __syncthreads(); // the last row's sums have been read
  if (threadIdx.x % kWarp == 0) {
    warps[threadIdx.x / kWarp] = value;
  }
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kThreads / kWarp; ++warp) {
    sum += warps[warp];
  }
  return sum;
}

// `hidden` is a multiple of N. In both passes a thread has the same elements, so it reads from `total`
// only what it has written itself.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    add_rms_norm_kernel(const T *sum, const T *residual, const T *weight, T *normalized, T *total,
                        std::int64_t rows, std::int64_t hidden, float eps) {
  using Pack = Vector<T, N>;
  const std::int64_t packs = hidden / N;
  const Pack *weights = reinterpret_cast<const Pack *>(weight);

  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const Pack *sums = reinterpret_cast<const Pack *>(sum + row * hidden);
    const Pack *residuals = reinterpret_cast<const Pack *>(residual + row * hidden);
    Pack *outputs = reinterpret_cast<Pack *>(normalized + row * hidden);
    Pack *totals = reinterpret_cast<Pack *>(total + row * hidden);

    float squares = 0;
    for (std::int64_t i = threadIdx.x; i < packs; i += kThreads) {
      const Pack left = residuals[i];
      const Pack right = sums[i];
      Pack pack;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        pack.at[k] = from_float<T>(to_float(left.at[k]) + to_float(right.at[k]));
        const float value = to_float(pack.at[k]);
        squares += value * value;
      }
      totals[i] = pack;
    }

    const float scale = rsqrtf(block_sum(squares) / float(hidden) + eps);
    for (std::int64_t i = threadIdx.x; i < packs; i += kThreads) {
      Pack pack = totals[i];
      const Pack factors = weights[i];
#pragma unroll
      for (int k = 0; k < N; ++k) {
        pack.at[k] = from_float<T>(to_float(pack.at[k]) * scale * to_float(factors.at[k]));
      }
      outputs[i] = pack;
    }
  }
}

template <typename... Pointers> bool aligned(Pointers... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % kVectorBytes == 0) && ...);
}

template <typename T, int N>
void launch_packs(const all_reduce_norm::Launch &launch, cudaStream_t stream) {
  const unsigned blocks = unsigned(launch.rows < kMaxBlocks ? launch.rows : kMaxBlocks);
  add_rms_norm_kernel<T, N><<<blocks, kThreads, 0, stream>>>(
      static_cast<const T *>(launch.sum), static_cast<const T *>(launch.residual),
      static_cast<const T *>(launch.weight), static_cast<T *>(launch.normalized),
      static_cast<T *>(launch.total), launch.rows, launch.hidden, launch.eps);
}

template <typename T>
const char *launch_as(const all_reduce_norm::Launch &launch, cudaStream_t stream) {
  constexpr int kWide = kVectorBytes / sizeof(T);
  if (launch.hidden % kWide == 0 && aligned(launch.sum, launch.residual, launch.weight,
                                            launch.normalized, launch.total)) {
    launch_packs<T, kWide>(launch, stream);
  } else {
    launch_packs<T, 1>(launch, stream);
  }
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

} // namespace

namespace all_reduce_norm {

const char *launch_add_rms_norm(const Launch &launch, Dtype dtype, void *stream) {
  const cudaStream_t on = static_cast<cudaStream_t>(stream);
  switch (dtype) {
  case Dtype::Float32:
    return launch_as<float>(launch, on);
  case Dtype::Float16:
    return launch_as<__half>(launch, on);
  case Dtype::BFloat16:
    return launch_as<__nv_bfloat16>(launch, on);
  }
  return "unknown dtype";
}

} // namespace all_reduce_norm
