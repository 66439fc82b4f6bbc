// What every launcher needs: tensors of a call, the choice of an image, loading, launching.
// It calls only C functions of the host, which calls the ops (`torch_*.h`, `tvm_ffi_*.h`), and finds the
// driver when the first kernel runs.

#pragma GCC diagnostic ignored "-Wunused-function"  // each kernel needs some of what follows

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#define KBUILD_COLD __attribute__((cold, noinline))
#define KBUILD_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#define KBUILD_FFI extern "C" __attribute__((weak, visibility("hidden")))
#define KBUILD_TEXT_(text) #text
#define KBUILD_TEXT(text) KBUILD_TEXT_(text)

// Launchers of one extension know each other, so that `_kbuild_preload` is one for all of them.
namespace kbuild {
struct AotSection {
  const char* name;
  int launches;
  void (*visit)(int device, bool is_loaded);
  bool (*choose)(int launch, int candidate);
  AotSection* next;
};
__attribute__((visibility("hidden"))) inline AotSection* aot_sections = nullptr;
__attribute__((visibility("hidden"))) inline std::atomic<bool> reported_devices[64] = {};
}  // namespace kbuild

namespace {

using Int = int64_t;
using kbuild::Arithmetic;

constexpr int kMostDevices = 64;
constexpr int kMostDims = 64;

// ---------------------------------------------------------------------------------------------
// The use of images, for `kbuild capture --coverage`: where its variable is set, lines in a file of the process

const char* coverage_folder() { return std::getenv("KBUILD_COVERAGE"); }

KBUILD_COLD void report_use(std::initializer_list<std::string> words) {
  const char* const folder = coverage_folder();
  if (folder == nullptr) return;
  Dl_info library = {};
  dladdr(&kbuild::aot_sections, &library);
  std::string line = library.dli_fname == nullptr ? "" : library.dli_fname;
  for (const std::string& word : words) line += "\t" + word;
  std::FILE* const file = std::fopen((std::string(folder) + "/" + std::to_string(getpid())).c_str(), "a");
  if (file == nullptr) return;
  std::fprintf(file, "%s\n", line.c_str());
  std::fclose(file);
}

// ---------------------------------------------------------------------------------------------
// Errors

// No image was made for a call. Ops with a fallback run that instead.
struct NoImage : std::runtime_error {
  explicit NoImage(const std::string& why) : std::runtime_error(why) { report_use({"missing", why}); }
};

KBUILD_COLD std::string quoted(const std::string& text) { return "`" + text + "`"; }

[[noreturn]] KBUILD_COLD void refuse(const char* op, const std::string& why) {
  throw std::runtime_error(quoted(op) + ": " + why);
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
