struct Loaded {  // one for each of `codes`: modules belong to a device
  std::atomic<void*> kernel[kMostDevices];
};
Loaded loaded[kCodes];

KBUILD_COLD void* load(const char* op, const Image& image, const Device& device) {
  const OnDevice here(op, device);
  const std::lock_guard<std::mutex> lock(loading);
  const Code& code = codes[image.code];
  std::atomic<void*>& own = loaded[image.code].kernel[device.index];
  if (void* kernel = own.load(std::memory_order_relaxed)) return kernel;
  report_use({"loaded", section_name, std::to_string(image.code)});
  void *module = nullptr, *kernel = nullptr;
  static std::vector<unsigned char> binaries[kCodes];  // the driver may not copy them
  int result = driver().load(&module, binary_of(code, blob, binaries[image.code]));
  if (result == 0) result = driver().function(&kernel, module, code.entry);
  if (result != 0) driver_failed(op, "load " + quoted(code.entry) + " for " + device.arch, result);
  own.store(kernel, std::memory_order_release);
  return kernel;
}

void* kernel_of(const char* op, const Image& image, const Device& device) {
  void* kernel = loaded[image.code].kernel[device.index].load(std::memory_order_acquire);
  return kernel != nullptr ? kernel : load(op, image, device);
}

void encode(const Launch& launch, const TensorMap&, const Tensor&, void*) {
  refuse(launch.op, "HIP has no tensor maps");
}

void run(const Launch& launch, const Image& image, const Device& device, const unsigned* grid,
         void** parameters, void* stream) {
  void* kernel = kernel_of(launch.op, image, device);
  const int result =
      image.cooperative
          ? driver().launch_cooperative(kernel, grid[0], grid[1], grid[2], image.threads, 1, 1,
                                        image.shared, stream, parameters)
          : driver().launch(kernel, grid[0], grid[1], grid[2], image.threads, 1, 1, image.shared,
                            stream, parameters, nullptr);
  if (KBUILD_UNLIKELY(result != 0)) {
    driver_failed(launch.op, "launch " + quoted(launch.function) + " with " +
                  std::to_string(grid[0]) + " x " + std::to_string(grid[1]) + " x " +
                  std::to_string(grid[2]) + " blocks of " + std::to_string(image.threads) + " threads",
                  result);
  }
}
