// ---------------------------------------------------------------------------------------------
// Torch: what tensors are like, and new ones

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
  tensor.device = device_of(data, device);
}

void check_contiguous(const char* op, const char* name, const Tensor& tensor) {
  bool is_contiguous = false;
  if (aoti_torch_is_contiguous(tensor.handle, &is_contiguous)) torch_failed(op, "describe", name);
  if (KBUILD_UNLIKELY(!is_contiguous)) not_contiguous(op, name, tensor);
}

AtenTensorHandle empty(const char* op, const char* name, const Shape& shape, int32_t code, int device) {
  Int strides[kMostDims];
  contiguous_strides(shape.sizes, shape.dim, strides);
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
  tensor.handle = empty(op, name, shape, torch_dtypes[dtype], device);
  look_at(op, name, tensor);
  tensor.device = device;
}

void allocate_temporary(const char* op, const char* name, Tensor& tensor, const Shape& shape, int dtype,
                        int device) {
  allocate(op, name, tensor, shape, dtype, device);
}

// Bytes that are given back to Torch's allocator when `memory` goes, for what follows on the stream.
void* allocate_bytes(const char* op, Tensor& memory, Int bytes, int device) {
  Shape shape;
  shape.add(op, "scratch", bytes);
  memory.handle = empty(op, "the scratch memory", shape, aoti_torch_dtype_uint8(), device);
  void* data = nullptr;
  if (aoti_torch_get_data_ptr(memory.handle, &data)) torch_failed(op, "read", "scratch");
  return data;
}

// ---------------------------------------------------------------------------------------------
// Torch: the current stream

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
