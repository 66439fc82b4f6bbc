// ---------------------------------------------------------------------------------------------
// TVM-FFI: what tensors are like, and new ones

[[noreturn]] KBUILD_COLD void too_many_dims(const char* op, const char* name, int32_t dim) {
  refuse(op, quoted(name) + " has " + std::to_string(dim) + " dimensions; there may be " + std::to_string(kMostDims));
}

[[noreturn]] KBUILD_COLD void no_data(const char* op, const char* name) {
  refuse(op, quoted(name) + " has no data: is it one of Torch's fake or meta tensors?");
}

KBUILD_COLD void fill_strides(Tensor& tensor) {
  contiguous_strides(tensor.sizes, tensor.dim, tensor.filled);
  tensor.strides = tensor.filled;
}

// Everything about a tensor.
void look_at(const char* op, const char* name, Tensor& tensor) {
  const DLTensor& told = *tensor.handle;
  if (KBUILD_UNLIKELY(told.device.device_type != device_type)) wrong_device(op, name, told.device.device_type);
  if (KBUILD_UNLIKELY(told.ndim > kMostDims)) too_many_dims(op, name, told.ndim);
  tensor.dim = told.ndim;
  tensor.sizes = told.shape;
  tensor.strides = told.strides;
  tensor.numel = 1;
  for (Int i = 0; i < tensor.dim; ++i) tensor.numel *= told.shape[i];
  tensor.dtype = dtype_table.of(told.dtype);
  if (KBUILD_UNLIKELY(told.strides == nullptr)) fill_strides(tensor);
  if (KBUILD_UNLIKELY(told.data == nullptr && tensor.numel != 0)) no_data(op, name);
  tensor.data = static_cast<char*>(told.data) + told.byte_offset;
  tensor.device = device_of(tensor.data, told.device.device_id);
}

void check_contiguous(const char* op, const char* name, const Tensor& tensor) {
  Int stride = 1;
  for (Int i = tensor.dim; i-- > 0;) {
    if (tensor.sizes[i] == 1) continue;
    if (KBUILD_UNLIKELY(tensor.strides[i] != stride && tensor.numel != 0)) not_contiguous(op, name, tensor);
    stride *= tensor.sizes[i];
  }
}

[[noreturn]] KBUILD_COLD void cannot_allocate(const char* op, const char* name) {
  refuse(op, "TVM-FFI cannot allocate " + quoted(name) + ": " + raised_text() +
                 ". Call it with tensors of Torch, or give the results behind the arguments");
}

void make(const char* op, const char* name, Tensor& tensor, Int* sizes, int dim, int dtype, int device) {
  DLTensor wanted = {};
  wanted.device = {DLDeviceType(device_type), device_type == kDLCPU ? 0 : device};
  wanted.ndim = dim;
  wanted.dtype = {dtypes[dtype].code, dtypes[dtype].bits, 1};
  wanted.shape = sizes;
  if (KBUILD_UNLIKELY(TVMFFIEnvTensorAlloc(&wanted, &tensor.made) != 0)) cannot_allocate(op, name);
  tensor.handle = TVMFFITensorGetDLTensorPtr(tensor.made);
  look_at(op, name, tensor);
  tensor.device = device;
}

// A result that the caller made.
void check_given(const char* op, const char* name, Tensor& tensor, const Shape& shape, int dtype, int device) {
  look_at(op, name, tensor);
  if (KBUILD_UNLIKELY(tensor.device != device)) {
    refuse(op, quoted(name) + " is on device " + std::to_string(tensor.device) + ", the arguments are on device " +
                   std::to_string(device));
  }
  if (KBUILD_UNLIKELY(tensor.dtype != dtype)) wrong_dtype(op, name, tensor, &dtypes[dtype].name, 1);
  if (KBUILD_UNLIKELY(tensor.dim != shape.dim || !same_dims(tensor.sizes, shape.sizes, shape.dim))) {
    Tensor wanted;
    wanted.sizes = shape.sizes;
    wanted.dim = shape.dim;
    refuse(op, quoted(name) + " must have the shape " + shape_words(wanted) + ", but its shape is " +
                   shape_words(tensor));
  }
  check_contiguous(op, name, tensor);
}

void allocate(const char* op, const char* name, Tensor& tensor, Shape& shape, int dtype, int device) {
  if (tensor.handle != nullptr) {
    check_given(op, name, tensor, shape, dtype, device);
  } else {
    make(op, name, tensor, shape.sizes, shape.dim, dtype, device);
  }
}

// Bytes that are given back to the allocator when `memory` goes, for what follows on the stream.
void* allocate_bytes(const char* op, Tensor& memory, Int bytes, int device) {
  constexpr int kBytes = 11;
  static_assert(dtypes[kBytes].code == kDLUInt && dtypes[kBytes].bits == 8);
  make(op, "the scratch memory", memory, &bytes, 1, kBytes, device);
  return memory.data;
}

// ---------------------------------------------------------------------------------------------
// TVM-FFI: the current stream

#ifdef KBUILD_AOT_CPU
void* current_stream(const char*, int) { return nullptr; }
#else
void* current_stream(const char*, int device) { return TVMFFIEnvGetStream(device_kind, device); }
#endif
