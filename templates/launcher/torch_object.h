// ---------------------------------------------------------------------------------------------
// Torch: the few functions that objects of TVM-FFI call back, so that libtvm_ffi is not needed; they
// are hidden, and the same in every launcher of an extension. Members are called as there.

}  // namespace

namespace kbuild {

struct FfiDevice {
  int32_t device_type, device_id;
};

struct FfiDtype {
  uint8_t code, bits;
  uint16_t lanes;
};

struct FfiTensor {  // DLTensor
  void* data;
  FfiDevice device;
  int32_t ndim;
  FfiDtype dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};

struct FfiAny {  // TVMFFIAny
  int32_t type_index;
  uint32_t zero_padding;
  union {
    int64_t v_int64;
    double v_float64;
    void* v_ptr;
  };
};

struct FfiThread {
  void* stream;
  char text[1024];
};
__attribute__((visibility("hidden"))) inline thread_local FfiThread ffi_thread = {};

}  // namespace kbuild

KBUILD_FFI void* TVMFFIEnvGetStream(int32_t, int32_t) { return kbuild::ffi_thread.stream; }

KBUILD_FFI void TVMFFIErrorSetRaisedFromCStrParts(const char*, const char** parts, int32_t count) {
  char* text = kbuild::ffi_thread.text;
  size_t length = 0;
  for (int32_t i = 0; i < count && length + 1 < sizeof(kbuild::FfiThread::text); ++i) {
    const char* part = parts[i] == nullptr ? "" : parts[i];
    const size_t room = sizeof(kbuild::FfiThread::text) - 1 - length, wanted = std::strlen(part);
    const size_t taken = wanted < room ? wanted : room;
    std::memcpy(text + length, part, taken);
    length += taken;
  }
  text[length] = '\0';
}

KBUILD_FFI void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message) {
  TVMFFIErrorSetRaisedFromCStrParts(kind, &message, 1);
}

namespace {

const char* object_says() { return kbuild::ffi_thread.text; }

void use_stream(void* stream) { kbuild::ffi_thread.stream = stream; }
