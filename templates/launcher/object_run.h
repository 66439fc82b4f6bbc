// ---------------------------------------------------------------------------------------------
// Launching through linked objects, which are told to load their code for the device that is used

struct LoadedObject {  // one for each of `objects`
  std::atomic<bool> on[kMostDevices];
};
LoadedObject loaded_objects[kObjects];

KBUILD_COLD void load_object(const char* op, const Image& image, const Device& device) {
  const OnDevice here(op, device);
  const std::lock_guard<std::mutex> lock(loading);
  std::atomic<bool>& is_loaded = loaded_objects[image.code].on[device.index];
  if (is_loaded.load(std::memory_order_relaxed)) return;
  report_use({"loaded", section_name, std::to_string(image.code)});
  const Object& object = objects[image.code];
  const char* text = object.load == nullptr ? nullptr : object.load(device);
  if (text != nullptr) {
    refuse(op, std::string("cannot load the code for ") + archs[image.arch].name + " on device " +
                   std::to_string(device.index) + " (" + device.arch + "): " + text + " (compiled by " + compiled_by + ")");
  }
  is_loaded.store(true, std::memory_order_release);
}

void* kernel_of(const char* op, const Image& image, const Device& device) {
  const bool is_loaded = loaded_objects[image.code].on[device.index].load(std::memory_order_acquire);
  if (KBUILD_UNLIKELY(!is_loaded)) load_object(op, image, device);
  return nullptr;
}

void encode(const Launch& launch, const TensorMap&, const Tensor&, void*) {
  refuse(launch.op, "an object makes its own tensor maps");
}

[[noreturn]] KBUILD_COLD void object_failed(const Launch& launch, const char* text) {
  refuse(launch.op, quoted(launch.function) + ": " + text + " (compiled by " + compiled_by + ")");
}

void run(const Launch& launch, const Image& image, const Device& device, const unsigned*,
         void** parameters, void* stream) {
  kernel_of(launch.op, image, device);
  const Value* values[kMostParameters];
  for (int i = 0; i < layouts[image.layout].count; ++i) values[i] = static_cast<const Value*>(parameters[i]);
  const char* text = objects[image.code].call(values, device, stream);
  if (KBUILD_UNLIKELY(text != nullptr)) object_failed(launch, text);
}
