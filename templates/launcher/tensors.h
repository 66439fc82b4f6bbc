// ---------------------------------------------------------------------------------------------
// What is said of the tensors of a call

KBUILD_COLD std::string shape_words(const Tensor& tensor) {
  std::string text = "[";
  for (Int i = 0; i < tensor.dim; ++i) {
    text += (i ? ", " : "") + std::to_string(tensor.sizes[i]);
  }
  return text + "]";
}

KBUILD_COLD std::string dtype_words(const Tensor& tensor) {
  if (tensor.dtype >= 0) return dtypes[tensor.dtype].name;
  return "of a dtype that no kernel is compiled for (" + dtype_number(tensor) + ")";
}

[[noreturn]] KBUILD_COLD void wrong_device(const char* op, const char* name, int32_t type) {
  refuse(op, quoted(name) + " is " + place_words(type) + "; the op takes " + device_words + " tensors");
}

[[noreturn]] KBUILD_COLD void two_devices(const char* op, const char* a, const Tensor& x,
                                          const char* b, const Tensor& y) {
  refuse(op, quoted(a) + " is on device " + std::to_string(x.device) + ", " + quoted(b) +
                 " on device " + std::to_string(y.device) + ": they must be on the same one");
}

// A device that is an argument says nothing new: the op runs on that of its tensors.
void check_device(const char* op, const char* name, const DeviceArgument& argument, const char* other,
                  const Tensor& tensor) {
  if (!argument.given) return;
  const bool is_other = argument.type != device_type || (argument.index >= 0 && argument.index != tensor.device);
  if (KBUILD_UNLIKELY(is_other)) {
    refuse(op, quoted(name) + " is a different device than that of " + quoted(other) + ", where the op runs");
  }
}

[[noreturn]] KBUILD_COLD void wrong_dtype(const char* op, const char* name, const Tensor& tensor,
                                          const char* const* supported, int count) {
  const std::string why = quoted(name) + " is " + dtype_words(tensor) + "; it takes " +
                          listed(supported, count, "or");
  report_use({"missing", quoted(op) + ": " + why});
  refuse(op, why);
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

void contiguous_strides(const Int* sizes, Int dim, Int* strides) {
  Int stride = 1;
  for (Int i = dim; i-- > 0;) {
    strides[i] = stride;
    stride = Arithmetic{"the size of a tensor"}.mul(stride, sizes[i] > 1 ? sizes[i] : 1);
  }
}
