// Kernels as a compiler of a DSL would make them: scratch pointers behind the arguments, one block
// per program, dynamic shared memory.

extern "C" __global__ void add_fast(const float4 *x, const float4 *y, float4 *out, int n, char *, char *) {
  const int at = blockIdx.x * 256 + threadIdx.x;  // 1024 numbers for 256 threads
  if (4 * at + 3 < n) {
    const float4 a = x[at], b = y[at];
    out[at] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
  } else {
    for (int i = 4 * at; i < n; ++i) {
      reinterpret_cast<float *>(out)[i] =
          reinterpret_cast<const float *>(x)[i] + reinterpret_cast<const float *>(y)[i];
    }
  }
}

extern "C" __global__ void add_plain(const float *x, const float *y, float *out, int n, char *, char *) {
  for (int i = blockIdx.x * 1024 + threadIdx.x; i < min(n, int(blockIdx.x + 1) * 1024); i += 256) {
    out[i] = x[i] + y[i];
  }
}

// Scales in place through a large shared memory and the global scratch memory of its block.
extern "C" __global__ void scale(float *x, int n, float factor, unsigned char negate, char *scratch, char *) {
  extern __shared__ float memory[];
  float *own = reinterpret_cast<float *>(scratch + 1024 * blockIdx.x);
  const int at = blockIdx.x * 256 + threadIdx.x;
  memory[20000 + threadIdx.x] = at < n ? x[at] * factor : 0;
  own[threadIdx.x] = memory[20000 + threadIdx.x];
  __syncthreads();
  if (at < n) x[at] = negate ? -own[threadIdx.x] : own[threadIdx.x];
}

// Two launches: sums of blocks, then their sum.
extern "C" __global__ void part(const float *x, float *sums, int n, char *, char *) {
  __shared__ float total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  const int at = blockIdx.x * 256 + threadIdx.x;
  if (at < n) atomicAdd(&total, x[at]);
  __syncthreads();
  if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

extern "C" __global__ void whole(const float *sums, float *out, int count, char *, char *) {
  if (threadIdx.x != 0) return;
  float total = 0;
  for (int i = 0; i < count; ++i) total += sums[i];
  out[0] = total;
}
