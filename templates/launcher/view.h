// ---------------------------------------------------------------------------------------------
// Dtypes, and what a launcher knows of a tensor whoever made it

struct Dtype {
  const char* name;
  int itemsize;
  uint8_t code, bits;  // DLPack's numbers
};

constexpr Dtype dtypes[] = {
    {"float16", 2, 2, 16}, {"bfloat16", 2, 4, 16},     {"float32", 4, 2, 32},
    {"float64", 8, 2, 64}, {"float8_e4m3fn", 1, 10, 8}, {"float8_e5m2", 1, 12, 8},
    {"bool", 1, 6, 8},     {"int8", 1, 0, 8},          {"int16", 2, 0, 16},
    {"int32", 4, 0, 32},   {"int64", 8, 0, 64},        {"uint8", 1, 1, 8},
    {"uint16", 2, 1, 16},  {"uint32", 4, 1, 32},       {"uint64", 8, 1, 64},
};
constexpr int kDtypes = sizeof(dtypes) / sizeof(dtypes[0]);

struct View {
  const Int* sizes = nullptr;
  const Int* strides = nullptr;
  Int dim = 0;
  Int numel = 0;
  char* data = nullptr;
  int dtype = -1;  // index into `dtypes`
  int device = 0;

  Int itemsize() const { return dtypes[dtype].itemsize; }
  Int address() const { return Int(reinterpret_cast<intptr_t>(data)); }
};

// The device that data lies on.
int device_of([[maybe_unused]] const void* data, [[maybe_unused]] int told) {
#ifdef KBUILD_AOT_CPU
  return 0;
#elif defined(KBUILD_AOT_TEST_CPU)
  return test_device_of(data);
#else
  return told;
#endif
}
