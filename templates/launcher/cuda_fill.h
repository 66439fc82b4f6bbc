// ---------------------------------------------------------------------------------------------
// Values before the first launch, on CUDA

struct Setters {
  CuResult (*bytes)(void*, unsigned char, size_t, void*) = nullptr;
  CuResult (*halves)(void*, unsigned short, size_t, void*) = nullptr;
  CuResult (*words)(void*, unsigned, size_t, void*) = nullptr;
  CuResult (*column)(void*, size_t, unsigned, size_t, size_t, void*) = nullptr;
};

KBUILD_COLD Setters find_setters() {
  void* library = dlopen("libcuda.so.1", RTLD_LAZY);
  Setters found;
  find_driver(found.bytes, library, "cuMemsetD8Async");
  find_driver(found.halves, library, "cuMemsetD16Async");
  find_driver(found.words, library, "cuMemsetD32Async");
  find_driver(found.column, library, "cuMemsetD2D32Async");
  return found;
}

// `count` elements of `size` bytes; elements of 8 bytes are two columns of words.
CuResult set_memory(char* data, uint64_t pattern, int size, size_t count, void* stream) {
  static const Setters set = find_setters();
  const unsigned low = unsigned(pattern), high = unsigned(pattern >> 32);
  switch (size) {
    case 1: return set.bytes(data, static_cast<unsigned char>(pattern), count, stream);
    case 2: return set.halves(data, static_cast<unsigned short>(pattern), count, stream);
    case 4: return set.words(data, low, count, stream);
    default: break;
  }
  if (low == high) return set.words(data, low, 2 * count, stream);
  const CuResult result = set.column(data, 8, low, 1, count, stream);
  return result != 0 ? result : set.column(data + 4, 8, high, 1, count, stream);
}
