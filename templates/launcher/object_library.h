// ---------------------------------------------------------------------------------------------
// Libraries of CuTe DSL's: loaded once, and made ready for each device when that is first used. Its
// runtime would do so for every device that is visible, with the first call.

}  // namespace

extern "C" __attribute__((weak)) int cudaGetLastError(void);

namespace {

class ObjectLibrary {
 public:
  using Init = int (*)(void**);
  using Ready = int (*)(void**, int32_t);

  // For the runtime: a call comes after `load`.
  int give(void** library, Init init) const {
    if (handle_ == nullptr) return init(library);
    *library = handle_;
    return 0;
  }
  // In the device's context, with `loading` held.
  const char* load(const Device& device, Init init, Ready make_ready) {
    int failed = handle_ == nullptr ? init(&handle_) : 0;
    if (failed != 0) handle_ = nullptr;
    if (failed == 0) failed = make_ready(&handle_, device.index);
    if (failed == 0) failed = load_kernels();
    return failed == 0 ? nullptr : words_of(failed);
  }

 private:
  // The driver loads a kernel into a device when that is launched, which may be captured; or now.
  int load_kernels() const {
    static void* const cuda = dlopen("libcuda.so.1", RTLD_LAZY);
    if (cuda == nullptr) return 0;
    int (*count_of)(unsigned*, void*) = nullptr;
    int (*list)(void**, unsigned, void*) = nullptr;
    find_driver(count_of, cuda, "cuLibraryGetKernelCount");
    find_driver(list, cuda, "cuLibraryEnumerateKernels");
    if (count_of == nullptr || list == nullptr || driver().function == nullptr) return 0;
    unsigned count = 0;
    int failed = count_of(&count, handle_);
    std::vector<void*> kernels(count);
    if (failed == 0 && count > 0) failed = list(kernels.data(), count, handle_);
    for (unsigned i = 0; failed == 0 && i < count; ++i) {
      void* function = nullptr;
      failed = driver().function(&function, kernels[i]);
    }
    return failed;
  }
  static const char* words_of(int failed) {
    static thread_local char text[160];
    if (&cudaGetLastError != nullptr) cudaGetLastError();  // or Torch finds it at the next kernel
    const char* words = &cudaGetErrorString == nullptr ? "the CUDA runtime fails" : cudaGetErrorString(failed);
    std::snprintf(text, sizeof(text), "%s (error %d)", words, failed);
    return text;
  }
  void* handle_ = nullptr;
};
