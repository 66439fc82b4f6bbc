// ---------------------------------------------------------------------------------------------
// Launching through linked objects, which load their code themselves

// Nothing can be loaded ahead: the first call of an object does so, for all devices.
void* kernel_of(const char*, const Image&, const Device&) { return nullptr; }

void encode(const Launch& launch, const TensorMap&, const Tensor&, void*) {
  refuse(launch.op, "an object makes its own tensor maps");
}

[[noreturn]] KBUILD_COLD void object_failed(const Launch& launch, const char* text) {
  refuse(launch.op, quoted(launch.function) + ": " + text + " (compiled by " + compiled_by + ")");
}

void run(const Launch& launch, const Image& image, const Device& device, const unsigned*,
         void** parameters, void* stream) {
  const Value* values[kMostParameters];
  for (int i = 0; i < layouts[image.layout].count; ++i) values[i] = static_cast<const Value*>(parameters[i]);
  const char* text = objects[image.code](values, device, stream);
  if (KBUILD_UNLIKELY(text != nullptr)) object_failed(launch, text);
}
