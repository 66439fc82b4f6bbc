// ---------------------------------------------------------------------------------------------
// Loading and launching on HIP

class OnDevice {
 public:
  OnDevice(const char* op, const Device& device) {
    driver().current(&before_);
    if (KBUILD_UNLIKELY(before_ != device.index)) change(op, device.index);
  }
  ~OnDevice() {
    if (KBUILD_UNLIKELY(is_changed_)) driver().use(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  KBUILD_COLD void change(const char* op, int device) {
    const int result = driver().use(device);
    if (result != 0) driver_failed(op, "use device " + std::to_string(device), result);
    is_changed_ = true;
  }
  int before_ = 0;
  bool is_changed_ = false;
};

// Where hipDeviceProp_tR0600 has its members; the structure is fixed since ROCm 6.0.
constexpr int kSharedAt = 296, kMultiprocessorsAt = 388, kArchAt = 1160, kArchLength = 256;

KBUILD_COLD void describe(const char* op, Device& device) {
  alignas(16) char properties[4096] = {};
  const int result = driver().properties(properties, device.index);
  if (result != 0) driver_failed(op, "describe device " + std::to_string(device.index), result);
  std::snprintf(device.name, sizeof(device.name), "%.255s", properties);
  size_t shared = 0;
  int multiprocessors = 0;
  std::memcpy(&shared, properties + kSharedAt, sizeof(shared));
  std::memcpy(&multiprocessors, properties + kMultiprocessorsAt, sizeof(multiprocessors));
  device.shared = Int(shared);
  device.multiprocessors = multiprocessors;
  std::snprintf(device.arch, sizeof(device.arch), "%.63s", properties + kArchAt);
  device.arch[std::strcspn(device.arch, ":")] = '\0';  // "gfx942:sramecc+:xnack-"
}
