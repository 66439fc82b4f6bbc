// ---------------------------------------------------------------------------------------------
// Values before the first launch, on HIP

struct Setters {
  int (*bytes)(void*, unsigned char, size_t, void*) = nullptr;
  int (*halves)(void*, unsigned short, size_t, void*) = nullptr;
  int (*words)(void*, int, size_t, void*) = nullptr;
  int (*column)(void*, size_t, int, size_t, size_t, void*) = nullptr;
};

KBUILD_COLD Setters find_setters() {
  void* library = find_hip();
  Setters found;
  find_driver(found.bytes, library, "hipMemsetD8Async");
  find_driver(found.halves, library, "hipMemsetD16Async");
  find_driver(found.words, library, "hipMemsetD32Async");
  find_driver(found.column, library, "hipMemset2DAsync");
  return found;
}

// `count` elements of `size` bytes; elements of 8 bytes are eight columns of bytes.
int set_memory(char* data, uint64_t pattern, int size, size_t count, void* stream) {
  static const Setters set = find_setters();
  switch (size) {
    case 1: return set.bytes(data, static_cast<unsigned char>(pattern), count, stream);
    case 2: return set.halves(data, static_cast<unsigned short>(pattern), count, stream);
    case 4: return set.words(data, int(pattern), count, stream);
    default: break;
  }
  if (unsigned(pattern) == unsigned(pattern >> 32)) return set.words(data, int(pattern), 2 * count, stream);
  int result = 0;
  for (int at = 0; at < 8 && result == 0; ++at) {
    result = set.column(data + at, 8, int(pattern >> 8 * at & 255), 1, count, stream);
  }
  return result;
}
