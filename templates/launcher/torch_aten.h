// ---------------------------------------------------------------------------------------------
// Torch: ATen calls between launches, by the functions of the stable ABI of Torch 2.10

struct AtenFunctions {
  AOTITorchError (*call)(const char*, const char*, StableIValue*, uint64_t) = nullptr;
  AOTITorchError (*new_list)(size_t, void**) = nullptr;
  AOTITorchError (*push_back)(void*, StableIValue) = nullptr;
  AOTITorchError (*list_size)(void*, size_t*) = nullptr;
  AOTITorchError (*list_item)(void*, size_t, StableIValue*) = nullptr;
  AOTITorchError (*delete_list)(void*) = nullptr;
  AOTITorchError (*new_string)(const char*, size_t, void**) = nullptr;
  AOTITorchError (*subtract)(AtenTensorHandle, AtenTensorHandle, double, AtenTensorHandle*) = nullptr;
};

template <typename F>
void find_aten(F& function, const char* name) {
  function = reinterpret_cast<F>(torch_function(name));
  if (function == nullptr) throw std::runtime_error("ATen calls need Torch 2.10 or later");
}

KBUILD_COLD AtenFunctions find_aten_functions() {
  AtenFunctions functions;
  find_aten(functions.call, "torch_call_dispatcher");
  find_aten(functions.new_list, "torch_new_list_reserve_size");
  find_aten(functions.push_back, "torch_list_push_back");
  find_aten(functions.list_size, "torch_list_size");
  find_aten(functions.list_item, "torch_list_get_item");
  find_aten(functions.delete_list, "torch_delete_list");
  find_aten(functions.new_string, "torch_new_string_handle");
  find_aten(functions.subtract, "aoti_torch_aten_subtract_Tensor");
  return functions;
}

const AtenFunctions& aten() {
  static const AtenFunctions functions = find_aten_functions();
  return functions;
}

// Gradients are the business of whoever calls the op: what it calls itself records none.
struct NoGradient {
  const bool was = aoti_torch_grad_mode_is_enabled();
  NoGradient() {
    if (was) aoti_torch_grad_mode_set_enabled(false);
  }
  ~NoGradient() {
    if (was) aoti_torch_grad_mode_set_enabled(true);
  }
};

[[noreturn]] KBUILD_COLD void aten_failed(const char* op, const char* operator_name) {
  refuse(op, "ATen's " + quoted(operator_name) + " failed" + torch_says());
}

template <typename T>
StableIValue raw_of(T value) {
  StableIValue raw = 0;
  std::memcpy(&raw, &value, sizeof(value));
  return raw;
}

// Torch deletes what the values of a call own.
StableIValue lend(const char* op, const Tensor& tensor) {
  AtenTensorHandle handle = nullptr;
  if (KBUILD_UNLIKELY(aoti_torch_new_tensor_handle(tensor.handle, &handle))) torch_failed(op, "lend", "a tensor");
  return raw_of(handle);
}

StableIValue boxed(StableIValue raw) { return raw_of(new StableIValue(raw)); }

StableIValue lend_optional(const char* op, const Tensor& tensor) {
  return tensor.handle == nullptr ? 0 : boxed(lend(op, tensor));
}

StableIValue list_of(const char* op, const StableIValue* items, size_t count) {
  void* list = nullptr;
  AOTITorchError failed = aten().new_list(count, &list);
  for (size_t i = 0; i < count && !failed; ++i) failed = aten().push_back(list, items[i]);
  if (KBUILD_UNLIKELY(failed)) torch_failed(op, "make", "a list");
  return raw_of(list);
}

template <size_t count>
StableIValue list_of(const char* op, const StableIValue (&items)[count]) {
  return list_of(op, items, count);
}

StableIValue string_of(const char* op, const char* text, size_t size) {
  void* string = nullptr;
  if (KBUILD_UNLIKELY(aten().new_string(text, size, &string))) torch_failed(op, "make", "a string");
  return raw_of(string);
}

StableIValue device_value([[maybe_unused]] const Tensor& tensor) {
#if defined(KBUILD_AOT_TEST_CPU) || defined(KBUILD_AOT_CPU)
  const int32_t index = -1;
#else
  const int32_t index = tensor.device;
#endif
  return StableIValue(uint32_t(device_type)) << 32 | uint32_t(index);
}

void call_aten(const char* op, const char* name, const char* overload, const char* operator_name,
               StableIValue* stack) {
  if (KBUILD_UNLIKELY(aten().call(name, overload, stack, TORCH_ABI_VERSION))) aten_failed(op, operator_name);
}

bool is_contiguous(const char* op, const Tensor& tensor) {
  bool answer = false;
  if (KBUILD_UNLIKELY(aoti_torch_is_contiguous(tensor.handle, &answer))) torch_failed(op, "describe", "a tensor");
  return answer;
}

void keep(Tensor& tensor, StableIValue raw) { tensor.handle = value_of<AtenTensorHandle>(raw); }

void drop(StableIValue raw) {
  Tensor dropped;
  keep(dropped, raw);
}

// The tensors of a list that an operator returned.
template <size_t count>
void take_results(const char* op, const char* operator_name, StableIValue raw, StableIValue (&items)[count]) {
  void* const list = value_of<void*>(raw);
  size_t size = 0;
  AOTITorchError failed = aten().list_size(list, &size);
  if (!failed && size != count) {
    aten().delete_list(list);
    refuse(op, quoted(operator_name) + " returned " + std::to_string(size) + " tensors, not " + std::to_string(count));
  }
  for (size_t i = 0; i < count && !failed; ++i) failed = aten().list_item(list, i, &items[i]);
  if (failed || aten().delete_list(list)) torch_failed(op, "read", operator_name);
}

bool is_float(int dtype) { return dtype >= 0 && (dtypes[dtype].code == 2 || dtypes[dtype].code == 4); }
bool is_bool(int dtype) { return dtype >= 0 && dtypes[dtype].code == 6; }

// A number in place of a tensor, which has none but this part in the dtype of the result: that of
// Python's number beside `other`, whose dtype the result has unless it is of a lower kind.
void scalar_tensor(const char* op, const char* operator_name, Tensor& scalar, const Tensor* other, double value) {
  AOTITorchError failed = 0;
  const bool beside_float = other == nullptr || is_float(other->dtype);
  if (beside_float && (other == nullptr || other->dim > 0 || other->itemsize() == 8)) {
    failed = aoti_torch_scalar_to_tensor_float64(value, &scalar.handle);
  } else if (beside_float && other->itemsize() < 4) {
    refuse(op, quoted(operator_name) + ": a float beside a tensor of " + dtypes[other->dtype].name +
                   " without dimensions; give it one dimension");
  } else {
    failed = aoti_torch_scalar_to_tensor_float32(float(value), &scalar.handle);
  }
  if (KBUILD_UNLIKELY(failed)) torch_failed(op, "make a tensor for", operator_name);
}

void scalar_tensor(const char* op, const char* operator_name, Tensor& scalar, const Tensor* other, bool value) {
  (void)other;
  if (aoti_torch_scalar_to_tensor_bool(value, &scalar.handle)) torch_failed(op, "make a tensor for", operator_name);
}

void scalar_tensor(const char* op, const char* operator_name, Tensor& scalar, const Tensor* other, Int value) {
  AOTITorchError failed = 0;
  const bool is_alone = other == nullptr || other->dim > 0 || other->dtype < 0 || is_float(other->dtype);
  const Dtype kind = is_alone ? Dtype{"", 8, 0, 64} : dtypes[other->dtype];
  if (kind.code == 1 && kind.itemsize == 1) {
    failed = aoti_torch_scalar_to_tensor_uint8(uint8_t(value), &scalar.handle);
  } else if (kind.code == 0 && kind.itemsize == 1) {
    failed = aoti_torch_scalar_to_tensor_int8(int8_t(value), &scalar.handle);
  } else if (kind.code == 0 && kind.itemsize == 2) {
    failed = aoti_torch_scalar_to_tensor_int16(int16_t(value), &scalar.handle);
  } else if (kind.code == 0 && kind.itemsize == 4) {
    failed = aoti_torch_scalar_to_tensor_int32(int32_t(value), &scalar.handle);
  } else {
    failed = aoti_torch_scalar_to_tensor_int64(value, &scalar.handle);
  }
  if (KBUILD_UNLIKELY(failed)) torch_failed(op, "make a tensor for", operator_name);
}

int dtype_index(const char* op, AtenTensorHandle handle) {
  int32_t code = -1;
  if (KBUILD_UNLIKELY(aoti_torch_get_dtype(handle, &code))) torch_failed(op, "describe", "a tensor");
  return dtype_table.kinds[code & 255];
}

Int dim_of(const char* op, AtenTensorHandle handle) {
  Int dim = 0;
  if (KBUILD_UNLIKELY(aoti_torch_get_dim(handle, &dim))) torch_failed(op, "describe", "a tensor");
  return dim;
}

// The values of an operand; a number, which is on the host, is spread over the shape of the other one.
StableIValue operand(const char* op, const char* operator_name, const Tensor& tensor, const Tensor& other) {
  int32_t type = -1;
  if (KBUILD_UNLIKELY(aoti_torch_get_device_type(tensor.handle, &type))) torch_failed(op, "describe", "a tensor");
  if (type == device_type) return lend(op, tensor);
  const StableIValue dtype = boxed(raw_of(torch_dtypes[dtype_index(op, tensor.handle)]));
  StableIValue empty[] = {lend(op, other), dtype, 0, 0, 0, 0};
  call_aten(op, "aten::empty_like", "", operator_name, empty);
  StableIValue filled[] = {empty[0], lend(op, tensor)};
  call_aten(op, "aten::fill_", "Tensor", operator_name, filled);
  return filled[0];
}

// `first + factor * second`. The ABI passes no `Scalar`, and its own function takes floats as factors,
// which integers refuse: those are added as the sum of both in one tensor.
void add(const char* op, const char* operator_name, Tensor& sum, const Tensor& first, const Tensor& second,
         double factor) {
  if (is_float(dtype_index(op, first.handle)) || is_float(dtype_index(op, second.handle))) {
    if (aten().subtract(first.handle, second.handle, -factor, &sum.handle)) aten_failed(op, operator_name);
    return;
  }
  StableIValue other = operand(op, operator_name, second, first);
  if (factor != 1) {
    Tensor scalar;
    scalar_tensor(op, operator_name, scalar, nullptr, Int(factor));
    StableIValue product[] = {other, lend(op, scalar)};
    call_aten(op, "aten::mul", "Tensor", operator_name, product);
    other = product[0];
  }
  StableIValue both[] = {list_of(op, {operand(op, operator_name, first, second), other}), 0};
  call_aten(op, "aten::broadcast_tensors", "", operator_name, both);
  call_aten(op, "aten::stack", "", operator_name, both);
  int dtype = dtype_index(op, value_of<AtenTensorHandle>(both[0]));
  // A tensor without dimensions has no part in the dtype beside one of the same kind.
  const Int dims[] = {dim_of(op, first.handle), dim_of(op, second.handle)};
  const int kinds[] = {dtype_index(op, first.handle), dtype_index(op, second.handle)};
  const int wider = dims[0] > 0 ? 0 : 1;
  if (dims[wider] > 0 && dims[1 - wider] == 0 && !is_bool(kinds[wider])) dtype = kinds[wider];
  StableIValue added[] = {both[0], boxed(list_of(op, {raw_of(Int(0))})), raw_of(false),
                          boxed(raw_of(torch_dtypes[dtype < 0 ? 0 : dtype]))};
  call_aten(op, "aten::sum", "dim_IntList", operator_name, added);
  keep(sum, added[0]);
}

[[noreturn]] KBUILD_COLD void used_before(const char* op, const char* name, const char* operator_name) {
  refuse(op, quoted(name) + " is used before " + quoted(operator_name) + " produces it");
}

[[noreturn]] KBUILD_COLD void wrong_produced(const char* op, const char* name, const char* operator_name,
                                            const Tensor& tensor, const Shape& shape, int dtype) {
  const std::string from = quoted(operator_name) + " returned " + quoted(name);
  if (tensor.dtype != dtype) refuse(op, from + " as " + dtype_words(tensor) + ", not " + dtypes[dtype].name);
  Tensor wanted;
  wanted.sizes = shape.sizes;
  wanted.dim = shape.dim;
  if (same_shape(tensor, wanted)) {
    refuse(op, from + ", which is not contiguous; describe the result in `views`, or copy it");
  }
  refuse(op, from + " with the shape " + shape_words(tensor) + ", not " + shape_words(wanted));
}

// What an operator returned has to be what the op says of it.
void check_produced(const char* op, const char* name, const char* operator_name, const Tensor& tensor,
                    const Shape& shape, int dtype, bool is_result) {
  bool is_right = tensor.dtype == dtype && tensor.dim == shape.dim &&
                  same_dims(tensor.sizes, shape.sizes, shape.dim);
  if (is_right && is_result) is_right = is_contiguous(op, tensor);
  if (KBUILD_UNLIKELY(!is_right)) wrong_produced(op, name, operator_name, tensor, shape, dtype);
}
