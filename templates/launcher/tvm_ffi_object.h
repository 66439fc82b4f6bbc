// ---------------------------------------------------------------------------------------------
// TVM-FFI: what objects call back is in libtvm_ffi

}  // namespace

namespace kbuild {
using FfiAny = TVMFFIAny;
using FfiTensor = DLTensor;
}  // namespace kbuild

namespace {

const char* object_says() { return raised_text(); }

// Objects ask the runtime for the stream, as the launcher did.
void use_stream(void*) {}
