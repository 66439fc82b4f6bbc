// ---------------------------------------------------------------------------------------------
// TVM-FFI: what tensors are like, and new ones

[[noreturn]] KBUILD_COLD void too_many_dims(const char* op, const char* name, int32_t dim) {
  refuse(op, quoted(name) + " has " + std::to_string(dim) + " dimensions; there may be " +
                 std::to_string(kMostDims));
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
  const int32_t type = told.device.device_type;
  if (KBUILD_UNLIKELY(type != device_type)) wrong_device(op, name, type);
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

// Whether something gives memory to this call: Torch does, when a tensor of it is among the arguments.
bool has_allocator() { return TVMFFIEnvGetDLPackManagedTensorAllocator() != nullptr; }

[[noreturn]] KBUILD_COLD void cannot_allocate(const char* op, const char* name) {
  if (has_allocator()) refuse(op, "TVM-FFI cannot allocate " + quoted(name) + ": " + raised_text());
  refuse(op, "nothing allocates " + quoted(name) +
                 " for these arguments: give the results behind them, or call it with tensors of Torch");
}

void look_at_new(const char* op, const char* name, Tensor& tensor, int device) {
  tensor.handle = TVMFFITensorGetDLTensorPtr(tensor.made);
  look_at(op, name, tensor);
  tensor.device = device;
}

struct Wanted {  // a tensor that is made
  const Int* sizes;
  int dim;
  int dtype;  // index into `dtypes`
  int device;
};

DLTensor described(const Wanted& wanted) {
  DLTensor told = {};
  told.device = {DLDeviceType(device_type), device_type == kDLCPU ? 0 : wanted.device};
  told.ndim = wanted.dim;
  told.dtype = {dtypes[wanted.dtype].code, dtypes[wanted.dtype].bits, 1};
  told.shape = const_cast<Int*>(wanted.sizes);
  return told;
}

void make(const char* op, const char* name, Tensor& tensor, const Wanted& wanted) {
  DLTensor told = described(wanted);
  if (KBUILD_UNLIKELY(TVMFFIEnvTensorAlloc(&told, &tensor.made) != 0)) cannot_allocate(op, name);
  look_at_new(op, name, tensor, wanted.device);
}

// A result that the caller made.
void check_given(const char* op, const char* name, Tensor& tensor, const Shape& shape, int dtype,
                 int device) {
  look_at(op, name, tensor);
  if (KBUILD_UNLIKELY(tensor.device != device)) {
    refuse(op, quoted(name) + " is on device " + std::to_string(tensor.device) +
                   ", the arguments are on device " + std::to_string(device));
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

void allocate(const char* op, const char* name, Tensor& tensor, const Shape& shape, int dtype, int device) {
  if (tensor.handle != nullptr) {
    check_given(op, name, tensor, shape, dtype, device);
  } else {
    make(op, name, tensor, {shape.sizes, shape.dim, dtype, device});
  }
}

// ---------------------------------------------------------------------------------------------
// TVM-FFI: the current stream

#ifdef KBUILD_AOT_CPU
void* current_stream(const char*, int) { return nullptr; }
#else
void* current_stream(const char*, int device) { return TVMFFIEnvGetStream(device_kind, device); }
#endif

// ---------------------------------------------------------------------------------------------
// TVM-FFI: memory for the time of a call. Where nothing gives any, it is the host's or the driver's.

#ifdef KBUILD_AOT_CPU
void* take_memory(const char* op, const char* name, Int bytes, int) {
  void* data = nullptr;
  if (posix_memalign(&data, 64, size_t(bytes)) == 0) return data;
  refuse(op, "there are no " + std::to_string(bytes) + " bytes for " + quoted(name));
}

void return_memory(void* data, int) { std::free(data); }
#else
void* take_memory(const char* op, const char* name, Int bytes, int device) {
  const OnDevice here(op, devices[device]);
  if (driver().allocate == nullptr) refuse(op, "this driver gives no memory for " + quoted(name));
  void* data = nullptr;
  const int result = driver().allocate(&data, size_t(bytes), current_stream(op, device));
  if (result == 0) return data;
  driver_failed(op, "give " + std::to_string(bytes) + " bytes for " + quoted(name), result);
}

void return_memory(void* data, int device) {
  const OnDevice here("", devices[device]);
  driver().release(data, current_stream("", device));
}
#endif

struct Lent {
  DLManagedTensor managed = {};
  int device = 0;
  Int sizes[kMostDims], strides[kMostDims];
};

KBUILD_COLD void end_loan(DLManagedTensor* managed) {
  Lent* lent = static_cast<Lent*>(managed->manager_ctx);
  try {
    return_memory(managed->dl_tensor.data, lent->device);
  } catch (...) {  // the device is gone, and its memory with it
  }
  delete lent;
}

KBUILD_COLD void lend(const char* op, const char* name, Tensor& tensor, const Wanted& wanted) {
  const Arithmetic checked{"the size of a tensor"};
  Int bytes = dtypes[wanted.dtype].itemsize;
  for (int i = 0; i < wanted.dim; ++i) bytes = checked.mul(bytes, wanted.sizes[i]);
  void* data = take_memory(op, name, std::max<Int>(1, bytes), wanted.device);
  Lent* lent = new Lent;
  std::copy(wanted.sizes, wanted.sizes + wanted.dim, lent->sizes);
  contiguous_strides(wanted.sizes, wanted.dim, lent->strides);
  lent->device = wanted.device;
  lent->managed.dl_tensor = described(wanted);
  lent->managed.dl_tensor.shape = lent->sizes;
  lent->managed.dl_tensor.strides = lent->strides;
  lent->managed.dl_tensor.data = data;
  lent->managed.manager_ctx = lent;
  lent->managed.deleter = &end_loan;
  if (TVMFFITensorFromDLPack(&lent->managed, 0, 0, &tensor.made) != 0) {
    end_loan(&lent->managed);
    refuse(op, "TVM-FFI cannot take " + quoted(name) + ": " + raised_text());
  }
  look_at_new(op, name, tensor, wanted.device);
}

void make_for_call(const char* op, const char* name, Tensor& tensor, const Wanted& wanted) {
  if (has_allocator()) {
    make(op, name, tensor, wanted);
  } else {
    lend(op, name, tensor, wanted);
  }
}

void allocate_temporary(const char* op, const char* name, Tensor& tensor, const Shape& shape, int dtype,
                        int device) {
  make_for_call(op, name, tensor, {shape.sizes, shape.dim, dtype, device});
}

// Bytes that are given back when `memory` goes, for what follows on the stream.
void* allocate_bytes(const char* op, Tensor& memory, Int bytes, int device) {
  constexpr int kBytes = 11;
  static_assert(dtypes[kBytes].code == kDLUInt && dtypes[kBytes].bits == 8);
  make_for_call(op, "the scratch memory", memory, {&bytes, 1, kBytes, device});
  return memory.data;
}
