// ---------------------------------------------------------------------------------------------
// Objects with functions of TVM-FFI. The few functions that such an object calls back are here, so
// that libtvm_ffi is not needed; they are hidden, and the same in every launcher of an extension.

}  // namespace

namespace kbuild {

struct FfiAny {  // TVMFFIAny
  int32_t type;
  uint32_t zero;
  union {
    int64_t integer;
    double real;
    void* pointer;
  };
};

struct FfiTensor {  // DLTensor
  void* data;
  int32_t device_type;
  int32_t device;
  int32_t dim;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  const int64_t* shape;
  const int64_t* strides;
  uint64_t byte_offset;
};

struct FfiThread {
  void* stream;
  char text[1024];
};
__attribute__((visibility("hidden"))) inline thread_local FfiThread ffi_thread = {};

}  // namespace kbuild

#define KBUILD_FFI extern "C" __attribute__((weak, visibility("hidden")))

// Of the CUDA runtime, where that is linked.
extern "C" __attribute__((weak)) const char* cudaGetErrorString(int code);

KBUILD_FFI void* TVMFFIEnvGetStream(int32_t, int32_t) { return kbuild::ffi_thread.stream; }

KBUILD_FFI void TVMFFIErrorSetRaisedFromCStrParts(const char*, const char** parts, int32_t count) {
  char* text = kbuild::ffi_thread.text;
  size_t length = 0;
  for (int32_t i = 0; i < count && length + 1 < sizeof(kbuild::FfiThread::text); ++i) {
    const char* part = parts[i] == nullptr ? "" : parts[i];
    const size_t room = sizeof(kbuild::FfiThread::text) - 1 - length, wanted = std::strlen(part);
    const size_t taken = wanted < room ? wanted : room;
    std::memcpy(text + length, part, taken);
    length += taken;
  }
  text[length] = '\0';
}

KBUILD_FFI void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message) {
  TVMFFIErrorSetRaisedFromCStrParts(kind, &message, 1);
}

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

struct FfiDtype {
  uint8_t code, bits;
};

// By index into `dtypes`: what DLPack calls them.
constexpr FfiDtype ffi_dtypes[] = {{2, 16}, {4, 16}, {2, 32}, {2, 64}, {10, 8}, {12, 8}, {6, 8},
                                   {0, 8},  {0, 16}, {0, 32}, {0, 64}, {1, 8},  {1, 16}, {1, 32},
                                   {1, 64}};
static_assert(sizeof(ffi_dtypes) / sizeof(ffi_dtypes[0]) == kDtypes, "a dtype has no DLPack number");

constexpr int32_t kFfiCuda = 2;
enum FfiType : int32_t { kFfiInt = 1, kFfiBool = 2, kFfiFloat = 3, kFfiTensor = 7 };

using FfiFunction = int (*)(void*, const kbuild::FfiAny*, int32_t, kbuild::FfiAny*);

template <int count>
class FfiArguments {
 public:
  explicit FfiArguments(int device) : device_(device) {}

  void add(Int value, bool is_bool = false) {
    kbuild::FfiAny& any = next(is_bool ? kFfiBool : kFfiInt);
    any.integer = value;
  }
  void add(double value) { next(kFfiFloat).real = value; }
  void add(const Tensor& tensor, bool is_flat) {
    kbuild::FfiTensor& told = tensors_[size_];
    const FfiDtype dtype = ffi_dtypes[tensor.dtype];
    told = {tensor.data, kFfiCuda, device_, int32_t(is_flat ? 1 : tensor.dim), dtype.code, dtype.bits, 1,
            is_flat ? &tensor.numel : tensor.sizes, is_flat ? &one_ : tensor.strides, 0};
    next(kFfiTensor).pointer = &told;
  }
  const char* call(FfiFunction function, int32_t given, void* stream) {
    kbuild::FfiAny result = {};
    kbuild::ffi_thread.stream = stream;
    if (KBUILD_UNLIKELY(function(nullptr, args_, given, &result) != 0)) return kbuild::ffi_thread.text;
    return nullptr;
  }

 private:
  kbuild::FfiAny& next(int32_t type) {
    args_[size_].type = type;
    args_[size_].zero = 0;
    return args_[size_++];
  }
  static constexpr Int one_ = 1;
  kbuild::FfiAny args_[count];
  kbuild::FfiTensor tensors_[count];
  int size_ = 0;
  int32_t device_;
};
