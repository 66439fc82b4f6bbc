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
  Tensor scratch;  // given back behind the launch on the same stream
  Value memory[2] = {};
  if (image.scratch > 0) {
    const Arithmetic checked{"the size of the scratch memory"};
    const Int bytes = checked.add(checked.mul(blocks, image.scratch), image.scratch_align);
    const uintptr_t align = image.scratch_align;
    const uintptr_t data =
        reinterpret_cast<uintptr_t>(allocate_bytes(launch.op, scratch, bytes, device.index));
    memory[0].p = reinterpret_cast<void*>((data + align - 1) & ~(align - 1));
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

KBUILD_COLD void report_image(const Launch& launch, int variant, const Image& image) {
  int span = 0;  // of a kind of call and a candidate
  while (launch.spans[span + 1] <= uint32_t(variant)) ++span;
  std::string constants;
  for (int i = 0; i < launch.constant_count; ++i) {
    constants += (i ? ", " : "") + std::string(launch.constant_names[i]) + " = " +
                 constant_said(launch, i, launch.constants[Int(variant) * launch.constant_count + i]);
  }
  report_use({"image", section_name, std::to_string(image.code), launch.op, launch.function,
              std::to_string(launch.indices[span % launch.candidates]), archs[image.arch].name,
              std::to_string(image.tier), constants});
}

KBUILD_COLD void visit_images(const Launch& launch, const Device& device, bool is_loaded) {
  for (int variant = 0; variant < launch.variant_count; ++variant) {
    const uint64_t best = resolve(launch, variant, device);
    for (int tier = 0; tier < kTiers; ++tier) {
      const Image* image = image_of(best, tier);
      if (image == nullptr) continue;
      if (is_loaded) {
        kernel_of(launch.op, *image, device);
      } else {
        report_image(launch, variant, *image);
      }
    }
  }
}

// Launches are counted over all sections of the extension, these in the order of their names.
[[maybe_unused]] KBUILD_COLD void choose_in_all(Int wanted, Int candidate) {
  Int launch = wanted;
  for (kbuild::AotSection* one = kbuild::aot_sections; one != nullptr; one = one->next) {
    if (launch >= 0 && launch < one->launches) {
      if (one->choose(int(launch), int(candidate))) return;
      refuse("_kbuild_choose", "there is no candidate " + std::to_string(candidate));
    }
    launch -= one->launches;
  }
  refuse("_kbuild_choose", "there is no launch " + std::to_string(wanted));
}

void enter(kbuild::AotSection& section) {
  kbuild::AotSection** at = &kbuild::aot_sections;
  while (*at != nullptr && std::strcmp((*at)->name, section.name) < 0) at = &(*at)->next;
  section.next = *at;
  *at = &section;
}
