// ---------------------------------------------------------------------------------------------
// Torch: what it says of errors

// A function of libtorch that older releases lack; null without it.
KBUILD_COLD void* torch_function(const char* name) {
  void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : dlsym(library, name);
}

KBUILD_COLD std::string torch_says() {
  using What = const char* (*)();
  const What what = reinterpret_cast<What>(torch_function("torch_exception_get_what_without_backtrace"));
  const char* text = what == nullptr ? nullptr : what();
  return text == nullptr || *text == '\0' ? std::string() : std::string(": ") + text;
}

[[noreturn]] KBUILD_COLD void torch_failed(const char* op, const char* doing, const char* name) {
  refuse(op, std::string("Torch cannot ") + doing + " " + quoted(name) + torch_says());
}

// ---------------------------------------------------------------------------------------------
// Torch: the tensors of a call

#if defined(KBUILD_AOT_TEST_CPU) || defined(KBUILD_AOT_CPU)
#define KBUILD_AOT_KEY "CPU"
const char* const device_words = "CPU";
int32_t wanted_device_type() { return aoti_torch_device_type_cpu(); }
#else
#define KBUILD_AOT_KEY "CUDA"
const char* const device_words = "CUDA";
int32_t wanted_device_type() { return aoti_torch_device_type_cuda(); }
#endif
const int32_t device_type = wanted_device_type();

// By index into `dtypes`: Torch's numbers.
const int32_t torch_dtypes[] = {
    aoti_torch_dtype_float16(),       aoti_torch_dtype_bfloat16(),    aoti_torch_dtype_float32(),
    aoti_torch_dtype_float64(),       aoti_torch_dtype_float8_e4m3fn(),
    aoti_torch_dtype_float8_e5m2(),   aoti_torch_dtype_bool(),        aoti_torch_dtype_int8(),
    aoti_torch_dtype_int16(),         aoti_torch_dtype_int32(),       aoti_torch_dtype_int64(),
    aoti_torch_dtype_uint8(),         aoti_torch_dtype_uint16(),      aoti_torch_dtype_uint32(),
    aoti_torch_dtype_uint64(),
};
static_assert(sizeof(torch_dtypes) / sizeof(torch_dtypes[0]) == kDtypes, "a dtype has no number of Torch");

// Torch's number -> index into `dtypes`; -1 for those that no kernel is compiled for.
struct DtypeTable {
  int8_t kinds[256];
  DtypeTable() {
    std::memset(kinds, -1, sizeof(kinds));
    for (int kind = 0; kind < kDtypes; ++kind) kinds[torch_dtypes[kind] & 255] = int8_t(kind);
  }
};
const DtypeTable dtype_table;

struct Tensor : View {
  AtenTensorHandle handle = nullptr;  // owned

  Tensor() = default;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() {
    if (handle != nullptr) aoti_torch_delete_tensor_object(handle);
  }
};

// An argument that may be None: a box that holds the tensor, or nothing.
struct OptionalTensor : Tensor {
  StableIValue* box = nullptr;
  ~OptionalTensor() { delete box; }
};

template <typename T>
T value_of(StableIValue raw) {
  T value;
  std::memcpy(&value, &raw, sizeof(value));
  return value;
}

void take(Tensor& tensor, StableIValue raw) { tensor.handle = value_of<AtenTensorHandle>(raw); }

void take(OptionalTensor& tensor, StableIValue raw) {
  tensor.box = value_of<StableIValue*>(raw);
  if (tensor.box != nullptr) tensor.handle = value_of<AtenTensorHandle>(*tensor.box);
}

// Leave the values to somebody else.
void leave(Tensor& tensor) { tensor.handle = nullptr; }
void leave(OptionalTensor& tensor) { tensor.handle = nullptr, tensor.box = nullptr; }

StableIValue give(Tensor& tensor) {
  StableIValue raw = 0;
  std::memcpy(&raw, &tensor.handle, sizeof(tensor.handle));
  tensor.handle = nullptr;
  return raw;
}

// A dtype that is none of `dtypes`.
KBUILD_COLD std::string dtype_number(const Tensor& tensor) {
  int32_t code = -1;
  aoti_torch_get_dtype(tensor.handle, &code);
  return "Torch's number " + std::to_string(code);
}

KBUILD_COLD const char* place_words(int32_t type) {
  return type == aoti_torch_device_type_cpu() ? "on the CPU" : "on another kind of device";
}
