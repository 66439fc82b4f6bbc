// ---------------------------------------------------------------------------------------------
// The HIP runtime that Torch itself uses: no library is linked

#define KBUILD_AOT_PLATFORM "ROCm"
#define KBUILD_AOT_HIP
#define KBUILD_AOT_TORCH_LIBRARY "libtorch_hip.so"

struct Driver {
  const char* (*error_text)(int);
  int (*properties)(void*, int);  // hipGetDevicePropertiesR0600
  int (*current)(int*);
  int (*use)(int);
  int (*load)(void**, const void*);
  int (*function)(void**, void*, const char*);
  int (*allocate)(void**, size_t, void*);
  int (*release)(void*, void*);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                void**, void**);
  int (*launch_cooperative)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            unsigned, void*, void**);
};

template <typename F>
void find_driver(F& function, void* library, const char* name) {
  function = reinterpret_cast<F>(dlsym(library, name));
}

// Through Torch's library its own dependency is found, whatever it is called.
KBUILD_COLD void* find_hip() {
  void* library = dlopen(KBUILD_AOT_TORCH_LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
  if (library != nullptr && dlsym(library, "hipModuleLoadData") != nullptr) return library;
  for (const char* name : {"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6"}) {
    library = dlopen(name, RTLD_LAZY);
    if (library != nullptr) return library;
  }
  throw std::runtime_error(std::string("cannot load the HIP runtime: ") + dlerror());
}

KBUILD_COLD Driver find_driver() {
  void* library = find_hip();
  Driver found = {};
  find_driver(found.error_text, library, "hipGetErrorString");
  find_driver(found.properties, library, "hipGetDevicePropertiesR0600");
  find_driver(found.current, library, "hipGetDevice");
  find_driver(found.use, library, "hipSetDevice");
  find_driver(found.load, library, "hipModuleLoadData");
  find_driver(found.function, library, "hipModuleGetFunction");
  find_driver(found.allocate, library, "hipMallocAsync");
  find_driver(found.release, library, "hipFreeAsync");
  find_driver(found.launch, library, "hipModuleLaunchKernel");
  find_driver(found.launch_cooperative, library, "hipModuleLaunchCooperativeKernel");
  if (found.properties == nullptr || found.launch == nullptr) {
    throw std::runtime_error(
        "the HIP runtime is too old: it has no `hipGetDevicePropertiesR0600`, which needs ROCm 6.0 or later");
  }
  return found;
}

const Driver& driver() {
  static const Driver found = find_driver();
  return found;
}

[[noreturn]] KBUILD_COLD void driver_failed(const char* op, const std::string& doing, int result) {
  const char* text = driver().error_text == nullptr ? nullptr : driver().error_text(result);
  refuse(op, "HIP cannot " + doing + ": " + (text == nullptr ? "" : text) + " (error " +
                 std::to_string(result) + ")");
}

#ifdef KBUILD_AOT_TEST_CPU
int test_device_of(const void* data) {
  using Where = int (*)(const void*);
  static const Where where = reinterpret_cast<Where>(dlsym(find_hip(), "fake_device_of"));
  return where == nullptr ? 0 : where(data);
}
#endif
