// ---------------------------------------------------------------------------------------------
// Loading and launching on CUDA

// The primary context of a device is current while this lives. A thread that never touched CUDA has
// none. Another context of the same device (a green one) is left alone: streams belong to it.
class OnDevice {
 public:
  OnDevice(const char* op, const Device& device) {
    void* context = nullptr;
    driver().current(&context);
    if (KBUILD_UNLIKELY(context != device.context)) change(op, device, context);
  }
  ~OnDevice() {
    void* context = nullptr;
    if (KBUILD_UNLIKELY(is_pushed_)) driver().pop(&context);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  KBUILD_COLD void change(const char* op, const Device& device, void* context) {
    int current = -1, wanted = -2;
    if (context != nullptr && driver().current_device(&current) == 0 &&
        driver().device(&wanted, device.index) == 0 && current == wanted) {
      return;
    }
    const CuResult result = driver().push(device.context);
    if (result != 0) driver_failed(op, "use device " + std::to_string(device.index), result);
    is_pushed_ = true;
  }
  bool is_pushed_ = false;
};

KBUILD_COLD void describe(const char* op, Device& device) {
  const Driver& cuda = driver();
  int handle = 0, major = 0, minor = 0, shared = 0, multiprocessors = 0;
  CuResult result = cuda.init(0);
  if (result == 0) result = cuda.device(&handle, device.index);
  if (result == 0) result = cuda.device_name(device.name, int(sizeof(device.name)), handle);
  if (result == 0) result = cuda.device_attribute(&major, kMajor, handle);
  if (result == 0) result = cuda.device_attribute(&minor, kMinor, handle);
  if (result == 0) result = cuda.device_attribute(&shared, kSharedOptIn, handle);
  if (result == 0) result = cuda.device_attribute(&multiprocessors, kMultiprocessors, handle);
  if (result == 0) result = cuda.retain(&device.context, handle);
  if (result != 0) driver_failed(op, "describe device " + std::to_string(device.index), result);
  device.number = major * 10 + minor;
  device.shared = shared;
  device.multiprocessors = multiprocessors;
  std::snprintf(device.arch, sizeof(device.arch), "sm_%d", device.number);
}
