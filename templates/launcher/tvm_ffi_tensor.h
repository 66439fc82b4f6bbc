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
