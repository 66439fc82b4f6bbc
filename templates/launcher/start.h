[[noreturn]] KBUILD_COLD void wrong_grid(const Launch& launch, int axis, Int blocks) {
  const std::string which = std::string("`grid[") + char('0' + axis) + "]` of " + quoted(launch.function);
  if (blocks < 0) refuse(launch.op, which + " is negative: " + std::to_string(blocks));
  refuse(launch.op, which + " is " + std::to_string(blocks) + "; a device takes at most " +
                        (axis == 0 ? "2147483647" : "65535"));
}

// Launch an image unless the grid is empty.
void start(const Launch& launch, const Image& image, const Device& device, const Int (&wanted)[3],
           Value* values, const Tensor* const* described) {
  unsigned grid[3];
  Int blocks = 1;
  for (int axis = 0; axis < 3; ++axis) {
    const Int most = axis == 0 ? 2147483647 : 65535;
    Int size = wanted[axis];
    if (size >= 0 && size <= most) size *= image.cluster[axis];
    if (KBUILD_UNLIKELY(size < 0 || size > most)) wrong_grid(launch, axis, size);
    grid[axis] = unsigned(size);
    blocks = size == 0 ? 0 : blocks * (blocks == 0 ? 0 : size);
  }
  if (blocks == 0) return;
  Tensor scratch;  // given back to Torch's allocator behind the launch on the same stream
  Value memory[2] = {};
  if (image.scratch > 0) {
    Shape shape;
    const Arithmetic checked{"the size of the scratch memory"};
    const Int bytes = checked.add(checked.mul(blocks, image.scratch), image.scratch_align);
    shape.add(launch.op, "scratch", bytes);
    scratch.handle = empty(launch.op, "the scratch memory", shape, aoti_torch_dtype_uint8(), device.index);
    void* data = nullptr;
    if (aoti_torch_get_data_ptr(scratch.handle, &data)) torch_failed(launch.op, "read", "scratch");
    const uintptr_t align = image.scratch_align;
    memory[0].p = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(data) + align - 1) & ~(align - 1));
  }
  void* parameters[kMostParameters];
  alignas(64) char maps[kMostMaps][128];
  const Layout& layout = layouts[image.layout];
  for (int i = 0; i < layout.count; ++i) {
    const uint8_t value = layout.values[i];
    parameters[i] = value < kMaps      ? static_cast<void*>(&values[value])
                    : value < kScratch ? static_cast<void*>(maps[value - kMaps])
                                       : &memory[value - kScratch];
  }
  const OnDevice here(launch.op, device);
  for (uint32_t i = 0; i < image.map_count; ++i) {
    const TensorMap& map = tensor_maps[image.first_map + i];
    encode(launch, map, *described[map.value], maps[i]);
  }
  run(launch, image, device, grid, parameters, current_stream(launch.op, device.index));
}

// ---------------------------------------------------------------------------------------------
// Loading ahead, and choosing by hand

KBUILD_COLD void preload_launch(const Launch& launch, const Device& device) {
  for (int variant = 0; variant < launch.variant_count; ++variant) {
    const uint64_t best = resolve(launch, variant, device);
    for (const Image* image : {fast_of(best), plain_of(best)}) {
      if (image != nullptr) kernel_of(launch.op, *image, device);
    }
  }
}

KBUILD_COLD void preload_all(StableIValue*, uint64_t, uint64_t) {
  int32_t device = 0;
#if !defined(KBUILD_AOT_TEST_CPU) && !defined(KBUILD_AOT_CPU)
  if (aoti_torch_get_current_device_index(&device)) torch_failed("_kbuild_preload", "name", "the device");
#endif
  for (kbuild::AotSection* one = kbuild::aot_sections; one != nullptr; one = one->next) {
    one->preload(device);
  }
}

// Launches are counted over all sections of the extension, these in the order of their names.
[[maybe_unused]] KBUILD_COLD void choose(StableIValue* stack, uint64_t, uint64_t) {
  Int launch = Int(stack[0]);
  const Int candidate = Int(stack[1]);
  for (kbuild::AotSection* one = kbuild::aot_sections; one != nullptr; one = one->next) {
    if (launch >= 0 && launch < one->launches) {
      if (one->choose(int(launch), int(candidate))) return;
      refuse("_kbuild_choose", "there is no candidate " + std::to_string(candidate));
    }
    launch -= one->launches;
  }
  refuse("_kbuild_choose", "there is no launch " + std::to_string(Int(stack[0])));
}

// ---------------------------------------------------------------------------------------------
// Registration, and what ops without an image do

using Boxed = void (*)(StableIValue*, uint64_t, uint64_t);

struct Library {  // never deleted: ops stay until the process ends
  TorchLibraryHandle handle = nullptr;

  explicit Library(const char* key) {
    const char* space = KBUILD_TEXT(TORCH_EXTENSION_NAME);
    if (key == nullptr) {
      aoti_torch_library_init_fragment(space, __FILE__, __LINE__, &handle);
    } else {
      aoti_torch_library_init_impl(space, key, __FILE__, __LINE__, &handle);
    }
  }
  void def(const char* schema) {
    if (aoti_torch_library_def(handle, schema)) torch_failed(schema, "define", "the op");
  }
  void impl(const char* name, Boxed function) {
#if TORCH_FEATURE_VERSION >= TORCH_VERSION_2_10_0
    const AOTITorchError failed = torch_library_impl(handle, name, function, TORCH_ABI_VERSION);
#else
    const AOTITorchError failed = aoti_torch_library_impl(handle, name, function);
#endif
    if (failed) torch_failed(name, "register", "the op");
  }
};

void enter(kbuild::AotSection& section, bool control) {
  if (kbuild::aot_sections == nullptr) {
    Library fragment(nullptr), library("CompositeExplicitAutograd");
    fragment.def("_kbuild_preload() -> ()");
    library.impl("_kbuild_preload", &preload_all);
    if (control) {
      fragment.def("_kbuild_choose(int launch, int candidate) -> ()");
      library.impl("_kbuild_choose", &choose);
    }
  }
  kbuild::AotSection** at = &kbuild::aot_sections;
  while (*at != nullptr && std::strcmp((*at)->name, section.name) < 0) at = &(*at)->next;
  section.next = *at;
  *at = &section;
}

// The op's DSL itself, where it is installed: an op that Python registers. It takes over `stack`.
[[maybe_unused]] KBUILD_COLD void run_jit(const char* name, StableIValue* stack, const char* toolchain,
                                          const NoImage& reason) {
#if TORCH_FEATURE_VERSION >= TORCH_VERSION_2_10_0
  const AOTITorchError failed = torch_call_dispatcher(name, "", stack, TORCH_ABI_VERSION);
#else
  const AOTITorchError failed = aoti_torch_call_dispatcher(name, "", stack);
#endif
  if (failed) {
    throw std::runtime_error(std::string(reason.what()) + ", or install " + toolchain + " (" + quoted(name) +
                             " did not run" + torch_says() + ")");
  }
}
