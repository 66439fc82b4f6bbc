// ---------------------------------------------------------------------------------------------
// Calls of objects with functions of TVM-FFI

constexpr int32_t kFfiCuda = 2;
enum FfiType : int32_t { kFfiInt = 1, kFfiBool = 2, kFfiFloat = 3, kFfiTensor = 7 };

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
