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

constexpr int32_t kFfiCuda = 2;
enum FfiType : int32_t { kFfiInt = 1, kFfiBool = 2, kFfiFloat = 3, kFfiTensor = 7 };

using FfiFunction = int (*)(void*, const kbuild::FfiAny*, int32_t, kbuild::FfiAny*);

template <int count>
class FfiArguments {
 public:
  explicit FfiArguments(int device) : device_(device) {}

  void add(Int value, bool is_bool = false) {
    kbuild::FfiAny& any = next(is_bool ? kFfiBool : kFfiInt);
    any.v_int64 = value;
  }
  void add(double value) { next(kFfiFloat).v_float64 = value; }
  void add(const Tensor& tensor, bool is_flat) {
    kbuild::FfiTensor& told = tensors_[size_];
    told.data = tensor.data;
    told.device = {decltype(told.device.device_type)(kFfiCuda), device_};
    told.ndim = int32_t(is_flat ? 1 : tensor.dim);
    told.dtype = {dtypes[tensor.dtype].code, dtypes[tensor.dtype].bits, 1};
    told.shape = const_cast<Int*>(is_flat ? &tensor.numel : tensor.sizes);
    told.strides = const_cast<Int*>(is_flat ? &one_ : tensor.strides);
    told.byte_offset = 0;
    next(kFfiTensor).v_ptr = &told;
  }
  const char* call(FfiFunction function, int32_t given, void* stream) {
    kbuild::FfiAny result = {};
    use_stream(stream);
    kbuild::launch_stream = stream;
    if (KBUILD_UNLIKELY(function(nullptr, args_, given, &result) != 0)) return object_says();
    return nullptr;
  }

 private:
  kbuild::FfiAny& next(int32_t type) {
    args_[size_].type_index = type;
    args_[size_].zero_padding = 0;
    return args_[size_++];
  }
  static constexpr Int one_ = 1;
  kbuild::FfiAny args_[count];
  kbuild::FfiTensor tensors_[count];
  int size_ = 0;
  int32_t device_;
};
