struct Loaded {  // one for each of `codes`; a kernel serves all devices, its attributes do not
  std::atomic<void*> kernel[kMostDevices];
  void* any;
};
Loaded loaded[kCodes];

constexpr Int kSharedAlways = 48 * 1024;

// The driver's own error for machine code of a newer CUDA says only that the image is invalid.
KBUILD_COLD void check_driver(const char* op) {
  int version = 0;
  if (kOldestDriver == 0 || driver().version == nullptr || driver().version(&version) != 0 ||
      version >= kOldestDriver) {
    return;
  }
  const auto words = [](int number) {
    return "CUDA " + std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
  };
  refuse(op, "the driver is for " + words(version) + "; this kernel needs one for " + words(kOldestDriver) +
                 (kOldestDriver == 13000 ? " (580)" : "") + " or later");
}

KBUILD_COLD void* load(const char* op, const Image& image, const Device& device) {
  check_driver(op);
  const OnDevice here(op, device);
  const std::lock_guard<std::mutex> lock(loading);
  const Driver& cuda = driver();
  const Code& code = codes[image.code];
  Loaded& own = loaded[image.code];
  if (void* kernel = own.kernel[device.index].load(std::memory_order_relaxed)) return kernel;
  report_use({"loaded", section_name, std::to_string(image.code)});
  CuResult result = 0;
  if (own.any == nullptr) {
    void *library = nullptr, *kernel = nullptr;
    std::vector<unsigned char> binary;  // the driver copies it
    result = cuda.load(&library, binary_of(code, blob, binary), nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (result == 0) result = cuda.kernel(&kernel, library, code.entry);
    if (result != 0) {
      driver_failed(op, "load " + quoted(code.entry) + " for " + archs[image.arch].name + " on " +
                            device.arch, result);
    }
    own.any = kernel;
  }
  int handle = 0;
  cuda.device(&handle, device.index);
  if (code.shared > kSharedAlways) {
    result = cuda.set(kMostDynamicShared, int(code.shared), own.any, handle);
    if (result != 0) {
      driver_failed(op, "give " + quoted(code.entry) + " " + std::to_string(image.shared) +
                            " bytes of shared memory (the device has " +
                            std::to_string(device.shared) + ")", result);
    }
  }
  if (image.cluster[0] * image.cluster[1] * image.cluster[2] > 8) {
    result = cuda.set(kNonPortableCluster, 1, own.any, handle);
    if (result != 0) driver_failed(op, "allow a cluster of more than 8 blocks", result);
  }
  void* function = nullptr;  // loads it into the device now, not within a capture later
  if (cuda.function != nullptr) {
    result = cuda.function(&function, own.any);
    if (result != 0) driver_failed(op, "load " + quoted(code.entry) + " for " + device.arch, result);
  }
  own.kernel[device.index].store(own.any, std::memory_order_release);
  return own.any;
}

void* kernel_of(const char* op, const Image& image, const Device& device) {
  void* kernel = loaded[image.code].kernel[device.index].load(std::memory_order_acquire);
  return kernel != nullptr ? kernel : load(op, image, device);
}

[[noreturn]] KBUILD_COLD void wrong_map(const Launch& launch, const Tensor& tensor, const TensorMap& map,
                                        CuResult result) {
  const Int last = tensor.dim == map.rank && map.rank > 0 ? tensor.strides[map.rank - 1] : 1;
  const std::string head = quoted(launch.function) + " copies a tensor of shape " + shape_words(tensor) + " by descriptor: ";
  if (tensor.dim != map.rank) refuse(launch.op, head + "it must have " + std::to_string(map.rank) + " dimensions");
  if (last != 1) refuse(launch.op, head + "its last stride must be 1, not " + std::to_string(last));
  driver_failed(launch.op, "encode the descriptor of a tensor of shape " + shape_words(tensor) +
                " (its address and its strides in bytes must be divisible by 16)", result);
}

// A CUtensorMap: dimensions are counted from the last one, strides are in bytes.
void encode(const Launch& launch, const TensorMap& map, const Tensor& tensor, void* target) {
  uint64_t sizes[kMostMapDims] = {}, strides[kMostMapDims] = {};
  uint32_t box[kMostMapDims] = {}, steps[kMostMapDims] = {1, 1, 1, 1, 1};
  if (driver().encode_tiled == nullptr) refuse(launch.op, "this CUDA driver has no tensor maps");
  if (tensor.dim != map.rank || tensor.strides[map.rank - 1] != 1) wrong_map(launch, tensor, map, 0);
  for (int i = 0; i < map.rank; ++i) {
    const int from = map.rank - 1 - i;
    sizes[i] = uint64_t(tensor.sizes[from]);
    box[i] = map.block[from];
    if (i > 0) strides[i - 1] = uint64_t(tensor.strides[from]) * uint64_t(map.element_size);
  }
  if (map.is_padded_fp4) sizes[0] *= 2;
  constexpr int kNoInterleave = 0, kPromote128 = 2;
  const CuResult result = driver().encode_tiled(target, map.element_type, uint32_t(map.rank), tensor.data,
                                                sizes, strides, box, steps, kNoInterleave, map.swizzle,
                                                kPromote128, map.fills_with_nan ? 1 : 0);
  if (KBUILD_UNLIKELY(result != 0)) wrong_map(launch, tensor, map, result);
}

void run(const Launch& launch, const Image& image, const Device& device, const unsigned* grid,
         void** parameters, void* stream) {
  CuLaunchAttribute attributes[4];
  unsigned count = 0;
  const auto add = [&](int id, int number) {
    attributes[count].id = id;
    attributes[count++].value.number = number;
  };
  const uint8_t* cluster = image.cluster;
  if (cluster[0] * cluster[1] * cluster[2] > 1) {
    add(kClusterDimension, 0);
    for (int i = 0; i < 3; ++i) attributes[count - 1].value.dims[i] = cluster[i];
    add(kClusterScheduling, kSpread);
  }
  if (image.pdl) add(kProgrammaticStream, 1);
  if (image.cooperative) add(kCooperative, 1);
  void* kernel = kernel_of(launch.op, image, device);
  const CuLaunchConfig config = {{grid[0], grid[1], grid[2]}, {image.threads, 1, 1}, image.shared,
                                 stream, attributes, count};
  const CuResult result = driver().launch(&config, kernel, parameters, nullptr);
  if (KBUILD_UNLIKELY(result != 0)) {
    driver_failed(launch.op, "launch " + quoted(launch.function) + " with " +
                  std::to_string(grid[0]) + " x " + std::to_string(grid[1]) + " x " +
                  std::to_string(grid[2]) + " blocks of " + std::to_string(image.threads) + " threads",
                  result);
  }
}
