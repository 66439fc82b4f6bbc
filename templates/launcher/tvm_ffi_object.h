// ---------------------------------------------------------------------------------------------
// TVM-FFI: what objects call back is in libtvm_ffi

}  // namespace

namespace kbuild {
using FfiAny = TVMFFIAny;
using FfiTensor = DLTensor;
}  // namespace kbuild

namespace {

// Valid until the thread's next failure.
KBUILD_COLD const char* object_says() {
  static thread_local char text[1024];
  std::snprintf(text, sizeof(text), "%s", raised_text().c_str());
  return text;
}

// Objects ask the runtime for the stream, as the launcher did.
void use_stream(void*) {}
