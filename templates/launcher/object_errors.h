// ---------------------------------------------------------------------------------------------
// Objects with functions of TVM-FFI. What else they call back, of CuTe DSL's own, is here.

}  // namespace

// Of the CUDA runtime, where that is linked.
extern "C" __attribute__((weak)) const char* cudaGetErrorString(int code);

KBUILD_FFI void CuteDSLRT_TVMFFISetRaisedCudaError(void (*raise)(const char*, const char**, int32_t),
                                                   int32_t code) {
  char number[16];
  std::snprintf(number, sizeof(number), "%d", int(code));
  const char* words = &cudaGetErrorString == nullptr ? "the CUDA runtime fails" : cudaGetErrorString(code);
  const char* parts[] = {words, " (error ", number, ")"};
  raise("RuntimeError", parts, 4);
}

KBUILD_FFI void CuteDSLRT_TVMFFISetRaisedCudaLaunchError(
    void (*raise)(const char*, const char**, int32_t), int32_t grid_x, int32_t grid_y, int32_t grid_z,
    int32_t block_x, int32_t block_y, int32_t block_z, int32_t, int64_t shared, int32_t, int32_t, int32_t,
    int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, const char* violation, const char*,
    int32_t, int32_t, int32_t) {
  char numbers[160];
  std::snprintf(numbers, sizeof(numbers), ": %d x %d x %d blocks of %d x %d x %d threads with %lld bytes",
                int(grid_x), int(grid_y), int(grid_z), int(block_x), int(block_y), int(block_z),
                static_cast<long long>(shared));
  const char* parts[] = {"the launch is not possible, ", violation, numbers};
  raise("RuntimeError", parts, 3);
}

namespace {

using FfiFunction = int (*)(void*, const kbuild::FfiAny*, int32_t, kbuild::FfiAny*);
