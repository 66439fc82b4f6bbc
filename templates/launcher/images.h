// ---------------------------------------------------------------------------------------------
// Images

enum Kind : uint8_t { kCubin, kPtx, kHsaco, kObject };

struct Arch {
  const char* name;  // "sm_90a"
  Kind kind;
  uint16_t number;  // 90; 0 for AMD's
  char feature;     // 'a', 'f' or 0
};

struct Code {  // one entry of one binary in the blob
  uint32_t offset;
  uint32_t stored;  // bytes in the blob; fewer than `size` if it is compressed
  uint32_t size;
  uint32_t shared;  // bytes of dynamic shared memory
  const char* entry;
};

struct Image {
  uint16_t arch;    // index into `archs`
  uint16_t code;    // index into `codes`, or into `objects`
  uint16_t layout;  // index into `layouts`
  uint16_t threads;
  uint32_t shared;
  uint32_t scratch;
  uint32_t scratch_align;
  uint8_t cluster[3];
  bool pdl;
  bool cooperative;
  uint8_t tier;  // 0 without assumptions; larger ones are tried first
  Bits divisible;  // bits of the values that it assumes to be divisible by 16
  Bits ones;       // those that it assumes to be 1
  uint32_t first_map;  // index into `tensor_maps`
  uint32_t map_count;
};

constexpr int kMostMapDims = 5;

struct TensorMap {  // a parameter that describes a tensor to the device's copy engine
  int value;        // whose tensor it is
  int rank;
  int element_size;
  int element_type;
  int swizzle;
  bool is_padded_fp4;
  bool fills_with_nan;
  uint32_t block[kMostMapDims];
};

struct Layout {  // which value each parameter of an image gets
  const uint8_t* values;
  int count;
};
constexpr uint8_t kMaps = 128;  // numbers from here on are tensor maps
constexpr uint8_t kScratch = 254;
constexpr uint8_t kProfile = 255;

struct Variant {  // all images of one candidate for one kind of call
  uint32_t first;  // index into the launch's `images`
  uint32_t count;
};

struct Row {  // a measurement
  uint16_t table;
  uint16_t dtypes;
  int16_t candidate;
};

struct MeasuredOn {
  const char* device;
  const char* arch;
};

constexpr int kRemembered = 64;
constexpr int kMostKeys = 8;

// The candidates that tables chose for the last few keys; a slot is written under an odd sequence.
struct Remembered {
  std::atomic<uint32_t> sequence{0};
  std::atomic<Int> key[kMostKeys + 1];
  std::atomic<int> candidate{-1};
};

constexpr int kQuickDevices = 16;

struct Quick {  // the best images of a variant, by device; 0 is unknown
  std::atomic<uint64_t> best[kQuickDevices];
};

struct Launch {
  const char* op;
  const char* function;
  int candidates;           // those with images
  const int16_t* indices;   // their indices in the author's list
  int candidates_in_all;
  const uint32_t* spans;    // (kind of call, candidate) -> its first variant
  const Variant* variants;
  int variant_count;
  const uint32_t* images;   // of variants: indices into `all_images`
  Quick* quick;             // by variant
  const Int* constants;     // by variant: those that calls decide
  int constant_count;
  const char* const* constant_names;
  const char* const* const* constant_words;  // of those that are looked up by their place
  const char* conditions;   // of the candidates, in words
  const Row* rows;
  int row_count;
  const Int* keys;
  int key_count;
  Remembered* remembered;
  std::atomic<int>* forced;
};

// A value of a kernel argument. Little endian: the first bytes are the same number with fewer bits.
union Value {
  Int i;
  void* p;
  float f32;
  double f64;
  uint16_t f16;
};

uint16_t half_of(double value) {  // rounded to even
  const float single = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &single, sizeof(bits));
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return uint16_t(sign | 0x7e00);
  if (magnitude >= 0x47800000) return uint16_t(sign | 0x7c00);
  if (magnitude < 0x38800000) {
    return uint16_t(sign | uint32_t(std::nearbyint(std::ldexp(double(std::fabs(single)), 24))));
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return uint16_t(sign | (rounded - 0x38000000) >> 13);
}

uint16_t bfloat_of(double value) {
  const float single = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &single, sizeof(bits));
  if (single != single) return 0x7fc0;
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

[[noreturn]] KBUILD_COLD void too_large(const Launch& launch, const char* name, Int value,
                                        const char* type) {
  refuse(launch.op, quoted(name) + " of " + quoted(launch.function) + " is " + std::to_string(value) +
                        ", which does not fit " + type +
                        (std::strcmp(type, "i32") == 0 ? "; `int64` in build.toml makes it 64 bits" : ""));
}

// ---------------------------------------------------------------------------------------------
// Devices

struct Device {
  std::atomic<bool> known{false};
  int index = 0;
  int number = 0;  // compute capability: 90; 0 for AMD's
  Int multiprocessors = 0;
  Int shared = 0;  // bytes of shared memory that a block may have
  void* context = nullptr;
  char name[256] = "";
  char arch[64] = "";  // "sm_90", "gfx942"
};
Device devices[kMostDevices];
std::mutex loading;
