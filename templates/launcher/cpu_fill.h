// ---------------------------------------------------------------------------------------------
// Values before the first launch, on the host's processor

int set_memory(char* data, uint64_t pattern, int size, size_t count, void*) {
  if (pattern == 0) {
    std::memset(data, 0, size_t(size) * count);
  } else {
    for (size_t i = 0; i < count; ++i) std::memcpy(data + i * size_t(size), &pattern, size_t(size));
  }
  return 0;
}

[[noreturn]] KBUILD_COLD void driver_failed(const char* op, const std::string& doing, int) {
  refuse(op, "cannot " + doing);
}
