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

// Arguments that Torch boxes: what is in an optional box, None without one.
const StableIValue* boxed(Held& held, StableIValue raw) {
  held.box = value_of<StableIValue*>(raw);
  held.release = [](Held& one) { delete static_cast<StableIValue*>(one.box); };
  return static_cast<const StableIValue*>(held.box);
}

template <typename T>
void take(const char*, const char*, Maybe<T>& argument, StableIValue raw, bool) {
  const StableIValue* value = boxed(argument, raw);
  argument.given = value != nullptr;
  if (value != nullptr) argument.value = value_of<T>(*value);
}

void take(const char*, const char*, DtypeArgument& argument, StableIValue raw, bool optional) {
  const StableIValue* value = optional ? boxed(argument, raw) : &raw;
  argument.given = value != nullptr;
  if (value == nullptr) return;
  const int32_t code = value_of<int32_t>(*value);
  argument.kind = code < 0 || code > 255 ? -1 : dtype_table.kinds[code];
  if (argument.kind < 0) argument.words = "Torch's number " + std::to_string(code);
}

// Torch's number of the type in the upper half, the index in the lower.
void take(const char*, const char*, DeviceArgument& argument, StableIValue raw, bool optional) {
  const StableIValue* value = optional ? boxed(argument, raw) : &raw;
  argument.given = value != nullptr;
  if (value == nullptr) return;
  argument.type = int32_t(*value >> 32);
  argument.index = int32_t(*value);
}

// Strings and lists come with functions of libtorch, from 2.10 on.
template <typename... Args>
using TorchFunction = AOTITorchError (*)(Args...);

template <typename F>
F torch_needs(const char* op, const char* name, F, const char* function) {
  const F found = reinterpret_cast<F>(torch_function(function));
  if (found == nullptr) {
    refuse(op, "this Torch passes no strings and no lists to ops, as " + quoted(name) + " is one; 2.10 does");
  }
  return found;
}

void release_string(Held& held) {
  static const auto remove = reinterpret_cast<TorchFunction<void*>>(torch_function("torch_delete_string"));
  if (held.handle != nullptr && remove != nullptr) remove(held.handle);
  delete static_cast<StableIValue*>(held.box);
}

void take(const char* op, const char* name, Text& argument, StableIValue raw, bool optional) {
  const StableIValue* value = optional ? boxed(argument, raw) : &raw;
  argument.given = value != nullptr;
  if (value == nullptr) return;
  argument.handle = value_of<void*>(*value);
  argument.release = &release_string;
  static const auto size_of =
      torch_needs(op, name, TorchFunction<void*, size_t*>(), "torch_string_length");
  static const auto text_of =
      torch_needs(op, name, TorchFunction<void*, const char**>(), "torch_string_c_str");
  size_t size = 0;
  const char* text = nullptr;
  if (size_of(argument.handle, &size) || text_of(argument.handle, &text)) torch_failed(op, "read", name);
  argument.value.assign(text, size);
}

void release_list(Held& held) {
  static const auto remove = reinterpret_cast<TorchFunction<void*>>(torch_function("torch_delete_list"));
  if (held.handle != nullptr && remove != nullptr) remove(held.handle);
  delete static_cast<StableIValue*>(held.box);
}

// `Told` is what Torch has in the list.
template <typename Told, typename T>
void take_list(const char* op, const char* name, List<T>& argument, StableIValue raw, bool optional) {
  const StableIValue* value = optional ? boxed(argument, raw) : &raw;
  argument.given = value != nullptr;
  if (value == nullptr) return;
  argument.handle = value_of<void*>(*value);
  argument.release = &release_list;
  static const auto size_of = torch_needs(op, name, TorchFunction<void*, size_t*>(), "torch_list_size");
  static const auto get =
      torch_needs(op, name, TorchFunction<void*, size_t, StableIValue*>(), "torch_list_get_item");
  size_t count = 0;
  if (size_of(argument.handle, &count)) torch_failed(op, "read", name);
  for (size_t i = 0; i < count; ++i) {
    StableIValue item = 0;
    if (get(argument.handle, i, &item)) torch_failed(op, "read", name);
    argument.items.push_back(T(value_of<Told>(item)));
  }
}

// The handles in a list are ours, too: what the call has no room for is dropped.
template <typename T, size_t most>
void take_tensors(const char* op, const char* name, TensorList& list, T (&tensors)[most], StableIValue raw) {
  list.handle = value_of<void*>(raw);
  list.release = &release_list;
  static const auto size_of = torch_needs(op, name, TorchFunction<void*, size_t*>(), "torch_list_size");
  static const auto get =
      torch_needs(op, name, TorchFunction<void*, size_t, StableIValue*>(), "torch_list_get_item");
  if (size_of(list.handle, &list.count)) torch_failed(op, "read", name);
  for (size_t i = 0; i < list.count; ++i) {
    StableIValue item = 0;
    if (get(list.handle, i, &item)) torch_failed(op, "read", name);
    T dropped;
    take(i < most ? tensors[i] : dropped, item);
  }
}

// Pass the ownership of the values on.
void leave(Tensor& tensor) { tensor.handle = nullptr; }
void leave(OptionalTensor& tensor) { tensor.handle = nullptr, tensor.box = nullptr; }

StableIValue give(Tensor& tensor) {
  StableIValue raw = 0;
  std::memcpy(&raw, &tensor.handle, sizeof(tensor.handle));
  tensor.handle = nullptr;
  return raw;
}

// A result that may be None: a box that holds the tensor, or nothing.
StableIValue give_optional(Tensor& tensor) {
  StableIValue* box = tensor.handle == nullptr ? nullptr : new StableIValue(give(tensor));
  StableIValue raw = 0;
  std::memcpy(&raw, &box, sizeof(box));
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
