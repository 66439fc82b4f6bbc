// ---------------------------------------------------------------------------------------------
// The host's processor as a device

struct OnDevice {
  OnDevice(const char*, const Device&) {}
};

KBUILD_COLD void describe(const char*, Device& device) {
  device.shared = std::numeric_limits<Int>::max();
  device.multiprocessors = std::max(1u, std::thread::hardware_concurrency());
  std::snprintf(device.name, sizeof(device.name), "the CPU");
  std::snprintf(device.arch, sizeof(device.arch), "cpu");
}
