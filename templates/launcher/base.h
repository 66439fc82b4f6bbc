// What every launcher needs: tensors of a call, the choice of an image, loading, launching.
// Only Torch's C functions of the stable ABI are used; the driver is found when the first kernel runs.

#pragma GCC diagnostic ignored "-Wunused-function"  // each kernel needs some of what follows

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <torch/csrc/stable/c/shim.h>

#define KBUILD_COLD __attribute__((cold, noinline))
#define KBUILD_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#define KBUILD_TEXT_(text) #text
#define KBUILD_TEXT(text) KBUILD_TEXT_(text)

// Launchers of one extension know each other, so that `_kbuild_preload` is one op for all of them.
namespace kbuild {
struct AotSection {
  const char* name;
  int launches;
  void (*preload)(int device);
  bool (*choose)(int launch, int candidate);
  AotSection* next;
};
__attribute__((visibility("hidden"))) inline AotSection* aot_sections = nullptr;
}  // namespace kbuild

namespace {

using Int = int64_t;
using kbuild::Arithmetic;

constexpr int kMostDevices = 64;
constexpr int kMostDims = 64;

#if defined(KBUILD_AOT_TEST_CPU) || defined(KBUILD_AOT_CPU)
#define KBUILD_AOT_KEY "CPU"
const char* const device_words = "CPU";
int32_t wanted_device_type() { return aoti_torch_device_type_cpu(); }
#else
#define KBUILD_AOT_KEY "CUDA"
const char* const device_words = "CUDA";
int32_t wanted_device_type() { return aoti_torch_device_type_cuda(); }
#endif
const int32_t device_type = wanted_device_type();

// ---------------------------------------------------------------------------------------------
// Errors

// No image was made for a call. Ops with a fallback run that instead.
struct NoImage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

KBUILD_COLD std::string quoted(const std::string& text) { return "`" + text + "`"; }

[[noreturn]] KBUILD_COLD void refuse(const char* op, const std::string& why) {
  throw std::runtime_error(quoted(op) + ": " + why);
}

// A function of libtorch that older releases lack; null without it.
KBUILD_COLD void* torch_function(const char* name) {
  void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : dlsym(library, name);
}

KBUILD_COLD std::string torch_says() {
  using What = const char* (*)();
  const What what = reinterpret_cast<What>(torch_function("torch_exception_get_what_without_backtrace"));
  const char* text = what == nullptr ? nullptr : what();
  return text == nullptr || *text == '\0' ? std::string() : std::string(": ") + text;
}

[[noreturn]] KBUILD_COLD void torch_failed(const char* op, const char* doing, const char* name) {
  refuse(op, std::string("Torch cannot ") + doing + " " + quoted(name) + torch_says());
}

// "a", "a or b", "a, b or c"
KBUILD_COLD std::string listed(const char* const* names, int count, const char* word) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (i > 0) text += i + 1 == count ? std::string(" ") + word + " " : std::string(", ");
    text += names[i];
  }
  return text;
}
