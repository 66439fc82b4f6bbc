// ---------------------------------------------------------------------------------------------
// The CUDA driver, found when the first kernel runs: no CUDA library is linked

#define KBUILD_AOT_PLATFORM "CUDA"
#define KBUILD_AOT_TORCH_LIBRARY "libtorch_cuda.so"

using CuResult = int;

struct CuLaunchAttribute {
  int id;
  int padding;
  union {
    char bytes[64];
    int number;
    unsigned dims[3];
  } value;
};
static_assert(sizeof(CuLaunchAttribute) == 72, "as cuda.h has it");

struct CuLaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared;
  void* stream;
  CuLaunchAttribute* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(CuLaunchConfig) == 56, "as cuda.h has it");

enum {  // numbers of cuda.h
  kCooperative = 2,
  kClusterDimension = 4,
  kClusterScheduling = 5,
  kProgrammaticStream = 6,
  kSpread = 1,
  kMostDynamicShared = 8,
  kNonPortableCluster = 14,
  kMultiprocessors = 16,
  kMajor = 75,
  kMinor = 76,
  kSharedOptIn = 97,
};

struct Driver {
  CuResult (*init)(unsigned);
  CuResult (*version)(int*);
  CuResult (*error_text)(CuResult, const char**);
  CuResult (*device)(int*, int);
  CuResult (*device_name)(char*, int, int);
  CuResult (*device_attribute)(int*, int, int);
  CuResult (*retain)(void**, int);
  CuResult (*current)(void**);
  CuResult (*current_device)(int*);
  CuResult (*push)(void*);
  CuResult (*pop)(void**);
  CuResult (*load)(void**, const void*, int*, void**, unsigned, int*, void**, unsigned);
  CuResult (*kernel)(void**, void*, const char*);
  CuResult (*function)(void**, void*);
  CuResult (*set)(int, int, void*, int);
  CuResult (*launch)(const CuLaunchConfig*, void*, void**, void**);
  CuResult (*allocate)(void**, size_t, void*);
  CuResult (*release)(void*, void*);
  CuResult (*encode_tiled)(void*, int, uint32_t, void*, const uint64_t*, const uint64_t*,
                           const uint32_t*, const uint32_t*, int, int, int, int);
};

template <typename F>
void find_driver(F& function, void* library, const char* name) {
  function = reinterpret_cast<F>(dlsym(library, name));
}

KBUILD_COLD Driver find_driver() {
  void* library = dlopen("libcuda.so.1", RTLD_LAZY);
  if (library == nullptr) throw std::runtime_error(std::string("cannot load the CUDA driver: ") + dlerror());
  Driver found = {};
  find_driver(found.init, library, "cuInit");
  find_driver(found.version, library, "cuDriverGetVersion");
  find_driver(found.error_text, library, "cuGetErrorString");
  find_driver(found.device, library, "cuDeviceGet");
  find_driver(found.device_name, library, "cuDeviceGetName");
  find_driver(found.device_attribute, library, "cuDeviceGetAttribute");
  find_driver(found.retain, library, "cuDevicePrimaryCtxRetain");
  find_driver(found.current, library, "cuCtxGetCurrent");
  find_driver(found.current_device, library, "cuCtxGetDevice");
  find_driver(found.push, library, "cuCtxPushCurrent_v2");
  find_driver(found.pop, library, "cuCtxPopCurrent_v2");
  find_driver(found.load, library, "cuLibraryLoadData");
  find_driver(found.kernel, library, "cuLibraryGetKernel");
  find_driver(found.function, library, "cuKernelGetFunction");
  find_driver(found.set, library, "cuKernelSetAttribute");
  find_driver(found.launch, library, "cuLaunchKernelEx");
  find_driver(found.allocate, library, "cuMemAllocAsync");
  find_driver(found.release, library, "cuMemFreeAsync");
  find_driver(found.encode_tiled, library, "cuTensorMapEncodeTiled");
  if (found.load == nullptr || found.kernel == nullptr || found.set == nullptr ||
      found.launch == nullptr) {
    throw std::runtime_error(
        "the CUDA driver is too old: it has no `cuLibraryLoadData`, which needs a driver of CUDA 12.0 (525) or later");
  }
  return found;
}

const Driver& driver() {
  static const Driver found = find_driver();
  return found;
}

[[noreturn]] KBUILD_COLD void driver_failed(const char* op, const std::string& doing, CuResult result) {
  const char* text = nullptr;
  if (driver().error_text != nullptr) driver().error_text(result, &text);
  refuse(op, "the CUDA driver cannot " + doing + ": " + (text == nullptr ? "" : text) + " (error " +
                 std::to_string(result) + ")");
}

#ifdef KBUILD_AOT_TEST_CPU
int test_device_of(const void* data) {
  using Where = int (*)(const void*);
  static const Where where =
      reinterpret_cast<Where>(dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "fake_device_of"));
  return where == nullptr ? 0 : where(data);
}
#endif
