// ---------------------------------------------------------------------------------------------
// Dtypes

struct Dtype {
  const char* name;
  int itemsize;
  int32_t code;  // Torch's number
};

const Dtype dtypes[] = {
    {"float16", 2, aoti_torch_dtype_float16()},
    {"bfloat16", 2, aoti_torch_dtype_bfloat16()},
    {"float32", 4, aoti_torch_dtype_float32()},
    {"float64", 8, aoti_torch_dtype_float64()},
    {"float8_e4m3fn", 1, aoti_torch_dtype_float8_e4m3fn()},
    {"float8_e5m2", 1, aoti_torch_dtype_float8_e5m2()},
    {"bool", 1, aoti_torch_dtype_bool()},
    {"int8", 1, aoti_torch_dtype_int8()},
    {"int16", 2, aoti_torch_dtype_int16()},
    {"int32", 4, aoti_torch_dtype_int32()},
    {"int64", 8, aoti_torch_dtype_int64()},
    {"uint8", 1, aoti_torch_dtype_uint8()},
    {"uint16", 2, aoti_torch_dtype_uint16()},
    {"uint32", 4, aoti_torch_dtype_uint32()},
    {"uint64", 8, aoti_torch_dtype_uint64()},
};
constexpr int kDtypes = sizeof(dtypes) / sizeof(dtypes[0]);

// Torch's number -> index into `dtypes`; -1 for those that no kernel is compiled for.
struct DtypeTable {
  int8_t kinds[256];
  DtypeTable() {
    std::memset(kinds, -1, sizeof(kinds));
    for (int kind = 0; kind < kDtypes; ++kind) kinds[dtypes[kind].code & 255] = int8_t(kind);
  }
};
const DtypeTable dtype_table;

// ---------------------------------------------------------------------------------------------
// Tensors of a call

struct Tensor {
  AtenTensorHandle handle = nullptr;  // owned
  const Int* sizes = nullptr;
  const Int* strides = nullptr;
  Int dim = 0;
  Int numel = 0;
  char* data = nullptr;
  int dtype = -1;  // index into `dtypes`
  int device = 0;

  Tensor() = default;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() {
    if (handle != nullptr) aoti_torch_delete_tensor_object(handle);
  }
  Int itemsize() const { return dtypes[dtype].itemsize; }
  Int address() const { return Int(reinterpret_cast<intptr_t>(data)); }
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

KBUILD_COLD std::string shape_words(const Tensor& tensor) {
  std::string text = "[";
  for (Int i = 0; i < tensor.dim; ++i) {
    text += (i ? ", " : "") + std::to_string(tensor.sizes[i]);
  }
  return text + "]";
}

KBUILD_COLD std::string dtype_words(const Tensor& tensor) {
  if (tensor.dtype >= 0) return dtypes[tensor.dtype].name;
  int32_t code = -1;
  aoti_torch_get_dtype(tensor.handle, &code);
  return "of a dtype that no kernel is compiled for (Torch's number " + std::to_string(code) + ")";
}

[[noreturn]] KBUILD_COLD void wrong_device(const char* op, const char* name, int32_t type) {
  const bool host = type == aoti_torch_device_type_cpu();
  const std::string where = host ? "on the CPU" : "on another kind of device";
  refuse(op, quoted(name) + " is " + where + "; the op takes " + device_words + " tensors");
}

[[noreturn]] KBUILD_COLD void two_devices(const char* op, const char* a, const Tensor& x,
                                          const char* b, const Tensor& y) {
  refuse(op, quoted(a) + " is on device " + std::to_string(x.device) + ", " + quoted(b) +
                 " on device " + std::to_string(y.device) + ": they must be on the same one");
}

[[noreturn]] KBUILD_COLD void wrong_dtype(const char* op, const char* name, const Tensor& tensor,
                                          const char* const* supported, int count) {
  refuse(op, quoted(name) + " is " + dtype_words(tensor) + "; it takes " +
                 listed(supported, count, "or"));
}

[[noreturn]] KBUILD_COLD void different_dtypes(const char* op, const char* a, const Tensor& x,
                                               const char* b, const Tensor& y) {
  refuse(op, quoted(a) + " is " + dtype_words(x) + ", but " + quoted(b) + " is " + dtype_words(y) +
                 ": they must be the same");
}

[[noreturn]] KBUILD_COLD void wrong_rank(const char* op, const char* name, const Tensor& tensor,
                                         int rank, bool at_least) {
  refuse(op, quoted(name) + " must have " + (at_least ? "at least " : "") + std::to_string(rank) +
                 (rank == 1 ? " dimension" : " dimensions") + ", but its shape is " +
                 shape_words(tensor));
}

[[noreturn]] KBUILD_COLD void wrong_size(const char* op, const char* name, const Tensor& tensor,
                                         int axis, const char* rule, Int wanted) {
  const std::string value = std::to_string(wanted);
  const std::string is = value == rule ? "" : quoted(rule) + ", which is ";
  refuse(op, "dimension " + std::to_string(axis) + " of " + quoted(name) + " must be " + is + value +
                 ", but its shape is " + shape_words(tensor));
}

[[noreturn]] KBUILD_COLD void wrong_shape(const char* op, const char* a, const Tensor& x,
                                          const char* b, const Tensor& y, const char* words) {
  refuse(op, quoted(a) + " and " + quoted(b) + words + ": their shapes are " + shape_words(x) +
                 " and " + shape_words(y));
}

[[noreturn]] KBUILD_COLD void not_contiguous(const char* op, const char* name, const Tensor& tensor) {
  std::string strides = "[";
  for (Int i = 0; i < tensor.dim; ++i) strides += (i ? ", " : "") + std::to_string(tensor.strides[i]);
  refuse(op, quoted(name) + " must be contiguous: its shape is " + shape_words(tensor) +
                 ", its strides are " + strides + "]");
}

struct Named {
  const char* name;
  Int value;
};

[[noreturn]] KBUILD_COLD void broken_rule(const char* op, const char* rule, const Named* values,
                                          int count) {
  std::string given;
  for (int i = 0; i < count; ++i) {
    given += (i ? ", " : " (") + quoted(values[i].name) + " is " + std::to_string(values[i].value);
  }
  refuse(op, "the call must have " + quoted(rule) + given + (count > 0 ? ")" : ""));
}

// Everything about a tensor, each asked once.
void look_at(const char* op, const char* name, Tensor& tensor) {
  int32_t type = -1, device = 0, code = -1;
  int64_t *sizes = nullptr, *strides = nullptr;
  void* data = nullptr;
  AtenTensorHandle handle = tensor.handle;
  const AOTITorchError failed =
      aoti_torch_get_device_type(handle, &type) | aoti_torch_get_device_index(handle, &device) |
      aoti_torch_get_dtype(handle, &code) | aoti_torch_get_dim(handle, &tensor.dim) |
      aoti_torch_get_numel(handle, &tensor.numel) | aoti_torch_get_sizes(handle, &sizes) |
      aoti_torch_get_strides(handle, &strides);
  if (KBUILD_UNLIKELY(failed)) torch_failed(op, "describe", name);
  if (KBUILD_UNLIKELY(type != device_type)) wrong_device(op, name, type);
  if (KBUILD_UNLIKELY(aoti_torch_get_data_ptr(handle, &data))) torch_failed(op, "read", name);
  tensor.sizes = sizes;
  tensor.strides = strides;
  tensor.data = static_cast<char*>(data);
  tensor.dtype = dtype_table.kinds[code & 255];
  tensor.device = device;
#ifdef KBUILD_AOT_CPU
  tensor.device = 0;
#elif defined(KBUILD_AOT_TEST_CPU)
  tensor.device = test_device_of(data);
#endif
}

void check_contiguous(const char* op, const char* name, const Tensor& tensor) {
  bool is_contiguous = false;
  if (aoti_torch_is_contiguous(tensor.handle, &is_contiguous)) torch_failed(op, "describe", name);
  if (KBUILD_UNLIKELY(!is_contiguous)) not_contiguous(op, name, tensor);
}

bool same_dims(const Int* a, const Int* b, Int count) {
  for (Int i = 0; i < count; ++i) {
    if (a[i] != b[i]) return false;
  }
  return true;
}

bool same_shape(const Tensor& a, const Tensor& b) {
  return a.dim == b.dim && same_dims(a.sizes, b.sizes, a.dim);
}

// A question about a tensor that may be None, or may have fewer dimensions than are asked for.
Int asked(const char* op, const char* question, const Tensor& tensor, const Int* of, Int axis) {
  if (KBUILD_UNLIKELY(tensor.handle == nullptr)) refuse(op, quoted(question) + ": the tensor is None");
  const Int at = axis < 0 ? axis + tensor.dim : axis;
  if (KBUILD_UNLIKELY(at < 0 || at >= tensor.dim)) {
    refuse(op, quoted(question) + ": the tensor's shape is " + shape_words(tensor));
  }
  return of[at];
}

const Tensor& there(const char* op, const char* question, const Tensor& tensor) {
  if (KBUILD_UNLIKELY(tensor.handle == nullptr)) refuse(op, quoted(question) + ": the tensor is None");
  return tensor;
}

// The shape of a tensor that is allocated.
struct Shape {
  Int sizes[kMostDims];
  int dim = 0;

  void add(const char* op, const char* name, Int size) {
    if (KBUILD_UNLIKELY(size < 0 || dim == kMostDims)) wrong(op, name, size);
    sizes[dim++] = size;
  }
  void add(const char* op, const char* name, const Int* begin, const Int* end) {
    for (; begin < end; ++begin) add(op, name, *begin);
  }
  [[noreturn]] KBUILD_COLD static void wrong(const char* op, const char* name, Int size) {
    if (size < 0) refuse(op, quoted(name) + " would have a dimension of " + std::to_string(size));
    refuse(op, quoted(name) + " would have more than " + std::to_string(kMostDims) + " dimensions");
  }
};

AtenTensorHandle empty(const char* op, const char* name, const Shape& shape, int32_t code, int device) {
  Int strides[kMostDims];
  Int stride = 1;
  for (int i = shape.dim; i-- > 0;) {
    strides[i] = stride;
    stride = Arithmetic{"the size of a new tensor"}.mul(stride, shape.sizes[i] > 1 ? shape.sizes[i] : 1);
  }
  AtenTensorHandle handle = nullptr;
#if defined(KBUILD_AOT_TEST_CPU) || defined(KBUILD_AOT_CPU)
  device = -1;
#endif
  if (KBUILD_UNLIKELY(aoti_torch_empty_strided(shape.dim, shape.sizes, strides, code, device_type,
                                               device, &handle))) {
    torch_failed(op, "allocate", name);
  }
  return handle;
}

void allocate(const char* op, const char* name, Tensor& tensor, const Shape& shape, int dtype,
              int device) {
  tensor.handle = empty(op, name, shape, dtypes[dtype].code, device);
  look_at(op, name, tensor);
  tensor.device = device;
}

// ---------------------------------------------------------------------------------------------
// The current stream

#ifdef KBUILD_AOT_CPU
void* current_stream(const char*, int) { return nullptr; }
#else
struct Streams {
  // libtorch_cuda, libtorch_hip: every release
  AOTITorchError (*direct)(int32_t, void**) = nullptr;
  // libtorch: from 2.13 on, where the former is not loaded
  AOTITorchError (*current)(int32_t, StreamHandle*) = nullptr;
  AOTITorchError (*native)(StreamHandle, void**) = nullptr;
  AOTITorchError (*release)(StreamHandle) = nullptr;
};

template <typename F>
void find(F& function, void* library, const char* name) {
  function = library == nullptr ? nullptr : reinterpret_cast<F>(dlsym(library, name));
}

KBUILD_COLD Streams find_streams() {
  Streams found;
  find(found.direct, dlopen(KBUILD_AOT_TORCH_LIBRARY, RTLD_LAZY | RTLD_NOLOAD),
       "aoti_torch_get_current_cuda_stream");
  void* torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  find(found.current, torch, "aoti_torch_get_current_stream");
  find(found.native, torch, "torch_stream_native_handle");
  find(found.release, torch, "aoti_torch_delete_stream");
  return found;
}

void* current_stream(const char* op, int device) {
  static const Streams streams = find_streams();
  void* stream = nullptr;
  if (streams.direct != nullptr) {
    if (KBUILD_UNLIKELY(streams.direct(device, &stream))) torch_failed(op, "name", "the stream");
    return stream;
  }
  StreamHandle handle = nullptr;
  if (streams.native == nullptr || streams.current == nullptr || streams.release == nullptr) {
    refuse(op, "this Torch has no " KBUILD_AOT_PLATFORM " support: " KBUILD_AOT_TORCH_LIBRARY
               " is not loaded");
  }
  if (streams.current(device, &handle)) torch_failed(op, "name", "the stream");
  const AOTITorchError failed = streams.native(handle, &stream);
  streams.release(handle);
  if (failed) torch_failed(op, "name", "the stream");
  return stream;
}
#endif
