// ---------------------------------------------------------------------------------------------
// What CuTe DSL's objects launch with, instead of `cudaLaunchKernelExC`

}  // namespace

namespace kbuild {
struct LaunchConfig {  // cudaLaunchConfig_t
  unsigned grid[3], block[3];
  size_t shared;
  void *stream, *attributes;
  unsigned attribute_count;
};
static_assert(sizeof(LaunchConfig) == 56, "as driver_types.h has it");

// Of the call that this thread is in.
__attribute__((visibility("hidden"))) inline thread_local void* launch_stream = nullptr;
}  // namespace kbuild

// Of the CUDA runtime, where that is linked.
extern "C" __attribute__((weak)) int cudaLaunchKernelExC(const kbuild::LaunchConfig*, const void*, void**);

// What objects call instead of `cudaLaunchKernelExC`: a host function without a stream parameter, or one
// that hands it to some of its launches only, would launch the others on the default stream.
KBUILD_FFI int kbuild_aot_launch(const kbuild::LaunchConfig* config, const void* kernel, void** arguments) {
  constexpr int kNoRuntime = 3;  // cudaErrorInitializationError
  kbuild::LaunchConfig own = *config;
  own.stream = kbuild::launch_stream;
  return &cudaLaunchKernelExC == nullptr ? kNoRuntime : cudaLaunchKernelExC(&own, kernel, arguments);
}

namespace {
