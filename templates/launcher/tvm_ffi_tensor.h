// ---------------------------------------------------------------------------------------------
// TVM-FFI: the arguments of a call

#ifdef KBUILD_AOT_HIP
constexpr int32_t device_kind = kDLROCM;
#else
constexpr int32_t device_kind = kDLCUDA;
#endif
#if defined(KBUILD_AOT_TEST_CPU) || defined(KBUILD_AOT_CPU)
constexpr int32_t device_type = kDLCPU;
const char* const device_words = "CPU";
#else
constexpr int32_t device_type = device_kind;
const char* const device_words = KBUILD_AOT_PLATFORM;
#endif

// DLPack's code and bits -> index into `dtypes`; -1 for those that no kernel is compiled for.
struct DtypeTable {
  int8_t kinds[16][4] = {};
  static constexpr int width(int bits) { return bits == 8 ? 0 : bits == 16 ? 1 : bits == 32 ? 2 : 3; }
  constexpr DtypeTable() {
    for (auto& row : kinds) {
      for (int8_t& kind : row) kind = -1;
    }
    for (int kind = 0; kind < kDtypes; ++kind) {
      kinds[dtypes[kind].code][width(dtypes[kind].bits)] = int8_t(kind);
    }
  }
  int of(const DLDataType& type) const {
    const int kind = type.code < 16 ? kinds[type.code][width(type.bits)] : -1;
    return kind >= 0 && type.lanes == 1 && dtypes[kind].bits == type.bits ? kind : -1;
  }
};
constexpr DtypeTable dtype_table;

struct Tensor : View {
  const DLTensor* handle = nullptr;   // null is None
  TVMFFIObjectHandle made = nullptr;  // the object, where the launcher made it
  Int filled[kMostDims];              // the strides, where the caller says none

  Tensor() = default;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() {
    if (made != nullptr) TVMFFIObjectDecRef(made);
  }
};

// An argument that may be None.
struct OptionalTensor : Tensor {};

// A dtype that is none of `dtypes`.
KBUILD_COLD std::string dtype_number(const Tensor& tensor) {
  const DLDataType& type = tensor.handle->dtype;
  return "DLPack's code " + std::to_string(type.code) + ", " + std::to_string(type.bits) + " bits" +
         (type.lanes == 1 ? "" : " x " + std::to_string(type.lanes));
}

KBUILD_COLD const char* place_words(int32_t type) {
  switch (type) {
    case kDLCPU: return "on the CPU";
    case kDLCUDA: return "on a CUDA device";
    case kDLROCM: return "on a ROCm device";
    case kDLCUDAHost: case kDLROCMHost: return "in pinned memory of the host";
    case kDLCUDAManaged: return "in managed memory";
    default: return "on another kind of device";
  }
}

// ---------------------------------------------------------------------------------------------
// TVM-FFI: reading arguments

// The arguments are not those of the signature: a TypeError.
struct WrongArguments : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr int32_t kBigInt = 78;  // kTVMFFIBigInt, since 0.1.15

KBUILD_COLD const char* kind_words(int32_t type) {
  switch (type) {
    case kTVMFFINone: return "None";
    case kTVMFFIInt: return "an int";
    case kTVMFFIBool: return "a bool";
    case kTVMFFIFloat: return "a float";
    case kTVMFFIDLTensorPtr: case kTVMFFITensor: return "a tensor";
    case kTVMFFIRawStr: case kTVMFFISmallStr: case kTVMFFIStr: return "a str";
    case kBigInt: return "an int of more than 64 bits";
    case kTVMFFIArray: return "an array";
    default: return "of another kind";
  }
}

[[noreturn]] KBUILD_COLD void wrong_kind(const char* op, const char* name, const char* wanted,
                                         int32_t type) {
  throw WrongArguments(quoted(op) + ": " + quoted(name) + " must be " + wanted + ", but it is " +
                       kind_words(type));
}

[[noreturn]] KBUILD_COLD void wrong_count(const char* op, const char* signature, int arguments, int results,
                                          int32_t given) {
  const std::string all = std::to_string(arguments + results);
  const std::string more = results == 0 ? "" : ", or " + all + " with its results";
  throw WrongArguments(quoted(op) + ": " + quoted(signature) + " takes " + std::to_string(arguments) +
                       (arguments == 1 ? " argument" : " arguments") + more + "; " + std::to_string(given) +
                       (given == 1 ? " is given" : " are given"));
}

void take(const char* op, const char* name, Tensor& tensor, const TVMFFIAny& any) {
  if (any.type_index == kTVMFFIDLTensorPtr) {
    tensor.handle = static_cast<const DLTensor*>(any.v_ptr);
  } else if (any.type_index == kTVMFFITensor) {
    tensor.handle = TVMFFITensorGetDLTensorPtr(any.v_obj);
  } else {
    wrong_kind(op, name, "a tensor", any.type_index);
  }
}

void take(const char* op, const char* name, OptionalTensor& tensor, const TVMFFIAny& any) {
  if (any.type_index == kTVMFFINone) return;
  if (any.type_index != kTVMFFIDLTensorPtr && any.type_index != kTVMFFITensor) {
    wrong_kind(op, name, "a tensor or None", any.type_index);
  }
  take(op, name, static_cast<Tensor&>(tensor), any);
}

void take(const char* op, const char* name, Int& value, const TVMFFIAny& any) {
  const bool is_int = any.type_index == kTVMFFIInt || any.type_index == kTVMFFIBool;
  if (!is_int) wrong_kind(op, name, "an int", any.type_index);
  value = any.v_int64;
}

void take(const char* op, const char* name, bool& value, const TVMFFIAny& any) {
  if (any.type_index != kTVMFFIBool) wrong_kind(op, name, "a bool", any.type_index);
  value = any.v_int64 != 0;
}

void take(const char* op, const char* name, double& value, const TVMFFIAny& any) {
  if (any.type_index == kTVMFFIFloat) {
    value = any.v_float64;
  } else if (any.type_index == kTVMFFIInt || any.type_index == kTVMFFIBool) {
    value = double(any.v_int64);
  } else {
    wrong_kind(op, name, "a float", any.type_index);
  }
}

template <typename T>
void take(const char* op, const char* name, Maybe<T>& argument, const TVMFFIAny& any) {
  argument.given = any.type_index != kTVMFFINone;
  if (argument.given) take(op, name, argument.value, any);
}

// The characters of a string, however it is passed; false when it is none.
bool text_of(const TVMFFIAny& any, std::string& text) {
  if (any.type_index == kTVMFFIRawStr) {
    text = any.v_c_str;
  } else if (any.type_index == kTVMFFISmallStr) {
    text.assign(any.v_bytes, any.small_str_len);
  } else if (any.type_index == kTVMFFIStr) {
    const TVMFFIByteArray* bytes = TVMFFIBytesGetByteArrayPtr(any.v_obj);
    text.assign(bytes->data, bytes->size);
  } else {
    return false;
  }
  return true;
}

void take(const char* op, const char* name, Text& argument, const TVMFFIAny& any, bool optional) {
  argument.given = !optional || any.type_index != kTVMFFINone;
  if (argument.given && !text_of(any, argument.value)) wrong_kind(op, name, "a string", any.type_index);
}

// A dtype, or its name.
void take(const char* op, const char* name, DtypeArgument& argument, const TVMFFIAny& any, bool optional) {
  argument.given = !optional || any.type_index != kTVMFFINone;
  if (!argument.given) return;
  if (any.type_index == kTVMFFIDataType) {
    const DLDataType type = any.v_dtype;
    argument.kind = dtype_table.of(type);
    argument.words = "DLPack's code " + std::to_string(type.code) + ", " + std::to_string(type.bits) + " bits";
  } else if (text_of(any, argument.words)) {
    for (int kind = 0; kind < kDtypes; ++kind) {
      if (argument.words == dtypes[kind].name) argument.kind = kind;
    }
  } else {
    wrong_kind(op, name, "a dtype", any.type_index);
  }
}

KBUILD_COLD TVMFFIObjectHandle global_function(const char* op, const char* name) {
  const TVMFFIByteArray bytes = {name, std::strlen(name)};
  TVMFFIObjectHandle function = nullptr;
  if (TVMFFIFunctionGetGlobal(&bytes, &function) != 0 || function == nullptr) {
    refuse(op, std::string("this TVM-FFI has no function ") + quoted(name));
  }
  return function;
}

Int size_of_list(const char* op, const char* name, const TVMFFIAny& any) {
  if (any.type_index != kTVMFFIArray) wrong_kind(op, name, "a list", any.type_index);
  static const TVMFFIObjectHandle size_of = global_function(op, "ffi.ArraySize");
  TVMFFIAny asked = any, found = {};
  if (TVMFFIFunctionCall(size_of, &asked, 1, &found) != 0) refuse(op, "TVM-FFI cannot read " + quoted(name));
  return found.v_int64;
}

// An item of a list; an object is the caller's to give back.
TVMFFIAny item_at(const char* op, const char* name, const TVMFFIAny& any, Int place) {
  static const TVMFFIObjectHandle get = global_function(op, "ffi.ArrayGetItem");
  TVMFFIAny asked[2] = {any, {}}, found = {};
  asked[1].type_index = kTVMFFIInt;
  asked[1].v_int64 = place;
  if (TVMFFIFunctionCall(get, asked, 2, &found) != 0) refuse(op, "TVM-FFI cannot read " + quoted(name));
  return found;
}

template <typename T>
void take_list(const char* op, const char* name, List<T>& argument, const TVMFFIAny& any, bool optional) {
  argument.given = !optional || any.type_index != kTVMFFINone;
  if (!argument.given) return;
  const Int count = size_of_list(op, name, any);
  for (Int i = 0; i < count; ++i) {
    T value{};
    take(op, name, value, item_at(op, name, any, i));
    argument.items.push_back(value);
  }
}

// As many as the call has room for; the caller's list keeps them alive.
template <typename T, size_t most>
void take_tensors(const char* op, const char* name, TensorList& list, T (&tensors)[most], const TVMFFIAny& any) {
  list.count = size_t(size_of_list(op, name, any));
  for (size_t i = 0; i < std::min(list.count, most); ++i) {
    const TVMFFIAny item = item_at(op, name, any, Int(i));
    if (item.type_index >= kTVMFFIStaticObjectBegin) TVMFFIObjectDecRef(item.v_obj);
    take(op, name, tensors[i], item);
  }
}

// ---------------------------------------------------------------------------------------------
// TVM-FFI: errors

// What the runtime, or an object, said last; it is forgotten.
KBUILD_COLD std::string raised_text() {
  TVMFFIObjectHandle error = nullptr;
  TVMFFIErrorMoveFromRaised(&error);
  if (error == nullptr) return "it gives no reason";
  const TVMFFIByteArray& message = TVMFFIErrorGetCellPtr(error)->message;
  const std::string text(message.data, message.size);
  TVMFFIObjectDecRef(error);
  return text;
}

// The exception that is being handled, told to the caller.
KBUILD_COLD int raise_caught() noexcept {
  try {
    throw;
  } catch (const WrongArguments& error) {
    TVMFFIErrorSetRaisedFromCStr("TypeError", error.what());
  } catch (const std::exception& error) {
    TVMFFIErrorSetRaisedFromCStr("RuntimeError", error.what());
  } catch (...) {
    TVMFFIErrorSetRaisedFromCStr("RuntimeError", "an exception that says nothing");
  }
  return -1;
}
