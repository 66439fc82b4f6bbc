// ---------------------------------------------------------------------------------------------
// Which image fits

// Load all images that a device can run, of the whole extension; or only report that they exist.
KBUILD_COLD void visit_sections(int device, bool is_loaded) {
  for (kbuild::AotSection* one = kbuild::aot_sections; one != nullptr; one = one->next) {
    one->visit(device, is_loaded);
  }
}

KBUILD_COLD const Device& learn(const char* op, int index) {
  if (index < 0 || index >= kMostDevices) refuse(op, "there is no device " + std::to_string(index));
  Device& device = devices[index];
  {
    const std::lock_guard<std::mutex> lock(loading);
    if (!device.known.load(std::memory_order_relaxed)) {
      device.index = index;
      describe(op, device);
      device.known.store(true, std::memory_order_release);
    }
  }
  if (coverage_folder() != nullptr && !kbuild::reported_devices[index].exchange(true)) {
    visit_sections(index, false);
  }
  return device;
}

const Device& device_at(const char* op, int index) {
  if (index >= 0 && index < kMostDevices && devices[index].known.load(std::memory_order_acquire)) {
    return devices[index];
  }
  return learn(op, index);
}

// How well an arch fits a device: 0 not at all, else more is better.
KBUILD_COLD int fit(const Arch& arch, const Device& device) {
  if (arch.number == 0) return std::strcmp(arch.name, device.arch) == 0 ? 1 : 0;
  const bool same_chip = arch.number == device.number;
  const bool same_major = arch.number / 10 == device.number / 10;
  const bool older = arch.number <= device.number;
  const bool family = same_major && older;
  const int feature = arch.feature == 'a' ? 2 : arch.feature == 'f' ? 1 : 0;
  const int rank = arch.number * 4 + feature;
  if (feature == 2 ? !same_chip : feature == 1 ? !family : false) return 0;
  if (arch.kind == kPtx) return older ? rank : 0;
  return family ? rank + (1 << 20) : 0;
}

// The best images of a variant for a device, one of each tier: index + 1 each, packed into one number
// with a bit that says so.
constexpr uint64_t kKnown = uint64_t(1) << 63;
constexpr int kTiers = 4, kTierBits = 16;
constexpr uint64_t kTierMask = (uint64_t(1) << (kTierBits - 1)) - 1;
static_assert(sizeof(all_images) / sizeof(Image) < kTierMask, "too many images");

KBUILD_COLD uint64_t best_images(const Launch& launch, const Variant& variant, const Device& device) {
  uint64_t best = kKnown;
  int ranks[kTiers] = {};
  for (uint32_t at = variant.first; at < variant.first + variant.count; ++at) {
    const Image& image = all_images[launch.images[at]];
    const int rank = Int(image.shared) <= device.shared ? fit(archs[image.arch], device) : 0;
    if (rank > ranks[image.tier]) {
      ranks[image.tier] = rank;
      const int shift = image.tier * kTierBits;
      best = (best & ~(kTierMask << shift)) | uint64_t(launch.images[at] + 1) << shift;
    }
  }
  return best;
}

uint64_t resolve(const Launch& launch, int variant, const Device& device) {
  if (KBUILD_UNLIKELY(device.index >= kQuickDevices)) {
    return best_images(launch, launch.variants[variant], device);
  }
  std::atomic<uint64_t>& slot = launch.quick[variant].best[device.index];
  uint64_t found = slot.load(std::memory_order_relaxed);
  if (KBUILD_UNLIKELY(found == 0)) {
    found = best_images(launch, launch.variants[variant], device);
    slot.store(found, std::memory_order_relaxed);
  }
  return found;
}

const Image* image_of(uint64_t best, int tier) {
  const uint64_t index = best >> (tier * kTierBits) & kTierMask;
  return index == 0 ? nullptr : &all_images[index - 1];
}

const Image* choose_image(uint64_t best, Bits divisible, Bits ones) {
  for (int tier = kTiers - 1; tier > 0; --tier) {
    const Image* image = image_of(best, tier);
    if (image != nullptr && (image->divisible & ~divisible) == 0 && (image->ones & ~ones) == 0) {
      return image;
    }
  }
  return image_of(best, 0);
}

// The variant of a candidate for a kind of call; -1 when none was compiled.
int find_variant(const Launch& launch, int combination, int candidate, const Int* constants) {
  const uint32_t* span = launch.spans + combination * launch.candidates + candidate;
  for (uint32_t variant = span[0]; variant < span[1]; ++variant) {
    const Int* own = launch.constants + Int(variant) * launch.constant_count;
    if (same_dims(own, constants, launch.constant_count)) return int(variant);
  }
  return -1;
}

// ---------------------------------------------------------------------------------------------
// Tuned tables

double distance(const Int* a, const Int* b, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) {
    sum += std::fabs(std::log2(1.0 + double(std::max<Int>(a[i], 0))) -
                     std::log2(1.0 + double(std::max<Int>(b[i], 0))));
  }
  return sum;
}

// The row with the same dtypes and the same or else the nearest key.
KBUILD_COLD const Row* nearest(const Launch& launch, const Device& device, int dtypes, const Int* key,
                               bool exact_device) {
  const Row* best = nullptr;
  double least = 0;
  for (int i = 0; i < launch.row_count; ++i) {
    const Row& row = launch.rows[i];
    const MeasuredOn& table = measured_on[row.table];
    const bool fits = exact_device ? std::strcmp(table.device, device.name) == 0
                                   : std::strcmp(table.arch, device.arch) == 0;
    if (!fits || row.dtypes != dtypes) continue;
    const Int* own = launch.keys + Int(i) * launch.key_count;
    if (same_dims(own, key, launch.key_count)) return &row;
    const double far = distance(own, key, launch.key_count);
    if (best == nullptr || far < least) best = &row, least = far;
  }
  return best;
}

KBUILD_COLD int look_up(const Launch& launch, const Device& device, int dtypes, const Int* key) {
  const Row* row = nearest(launch, device, dtypes, key, true);
  if (row == nullptr) row = nearest(launch, device, dtypes, key, false);
  return row == nullptr ? -1 : row->candidate;
}

// The candidate that the tables name for a call, -1 for none. Remembered without locks.
int tuned(const Launch& launch, const Device& device, int dtypes, const Int* key) {
  const int count = launch.key_count;
  if (count > kMostKeys) return look_up(launch, device, dtypes, key);
  const Int what = (Int(dtypes) << 8 | device.index) + 1;
  uint64_t hash = uint64_t(what);
  for (int i = 0; i < count; ++i) hash = (hash ^ uint64_t(key[i])) * UINT64_C(0x9e3779b97f4a7c15);
  Remembered& slot = launch.remembered[(hash ^ uint64_t(what)) >> 32 & (kRemembered - 1)];
  const uint32_t before = slot.sequence.load(std::memory_order_acquire);
  if ((before & 1) == 0) {
    bool same = slot.key[count].load(std::memory_order_relaxed) == what;
    for (int i = 0; i < count; ++i) same &= slot.key[i].load(std::memory_order_relaxed) == key[i];
    const int candidate = slot.candidate.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (same && slot.sequence.load(std::memory_order_relaxed) == before) return candidate;
  }
  const int candidate = look_up(launch, device, dtypes, key);
  uint32_t free = before & ~uint32_t(1);
  if (slot.sequence.compare_exchange_strong(free, free + 1, std::memory_order_acq_rel)) {
    std::atomic_thread_fence(std::memory_order_release);
    for (int i = 0; i < count; ++i) slot.key[i].store(key[i], std::memory_order_relaxed);
    slot.key[count].store(what, std::memory_order_relaxed);
    slot.candidate.store(candidate, std::memory_order_relaxed);
    slot.sequence.store(free + 2, std::memory_order_release);
  }
  return candidate;
}

// ---------------------------------------------------------------------------------------------
// The reason why nothing fits

struct Fate {  // how far the candidates of a launch came
  bool is_compiled = false;  // one whose constants an image has
  bool is_allowed = false;   // one whose condition holds
  bool is_unaligned = false; // one with an image for the device, for aligned calls alone
  int variant = -1;
  Int constants[16] = {};
};

KBUILD_COLD std::string constant_said(const Launch& launch, int constant, Int value) {
  const char* const* const words = launch.constant_words[constant];
  if (words == nullptr) return std::to_string(value);
  return value < 0 ? std::string("another value") : words[value];
}

[[noreturn]] KBUILD_COLD void nothing_fits(const Launch& launch, const Device& device, const Fate& fate) {
  const std::string head = quoted(launch.op) + ": ";
  const int forced = launch.forced == nullptr ? -1 : launch.forced->load();
  if (forced >= 0) {
    throw std::runtime_error(head + "candidate " + std::to_string(forced) + " of " + quoted(launch.function) +
                  " does not fit this call on " + device.arch +
                  (fate.is_unaligned ? ": it is only for aligned calls" : ""));
  }
  if (launch.variant_count == 0) {
    throw NoImage(head + "no image of " + quoted(launch.function) +
                  " was compiled: it is for none of the archs of this build");
  }
  if (!fate.is_allowed) {
    throw NoImage(head + "no candidate of " + quoted(launch.function) +
                  " fits this call; their conditions are " + launch.conditions);
  }
  if (!fate.is_compiled) {
    std::string given, all;
    for (int i = 0; i < launch.constant_count; ++i) {
      given += (i ? ", " : "") + std::string(launch.constant_names[i]) + " = " +
               constant_said(launch, i, fate.constants[i]);
      std::string values;
      for (int v = 0; v < launch.variant_count; ++v) {
        const std::string one =
            constant_said(launch, i, launch.constants[Int(v) * launch.constant_count + i]);
        if ((", " + values + ",").find(", " + one + ",") == std::string::npos) {
          values += (values.empty() ? "" : ", ") + one;
        }
      }
      all += (i ? "; " : "") + std::string(launch.constant_names[i]) + " = " + values;
    }
    throw NoImage(head + "no image of " + quoted(launch.function) + " for this call" +
                  (given.empty() ? "" : ": it needs " + given + "; there are images for " + all));
  }
  Int least = -1;
  const Variant& variant = launch.variants[fate.variant];
  for (uint32_t at = variant.first; at < variant.first + variant.count; ++at) {
    const Image& image = all_images[launch.images[at]];
    if (fit(archs[image.arch], device) > 0 && (least < 0 || Int(image.shared) < least)) {
      least = image.shared;
    }
  }
  if (least > device.shared) {
    throw NoImage(head + quoted(launch.function) + " needs " + std::to_string(least) +
                  " bytes of shared memory; a block of this device (" + device.name + ", " +
                  device.arch + ") has at most " + std::to_string(device.shared));
  }
  if (fate.is_unaligned) {
    throw NoImage(head + "every candidate of " + quoted(launch.function) + " that fits " + device.arch +
                  " is only for aligned calls: pointers and `divisible` integers are multiples of 16, "
                  "`ones` are 1");
  }
  if (least >= 0) {
    throw NoImage(head + "all images of " + quoted(launch.function) + " for " + device.arch +
                  " assume aligned addresses (multiples of 16), or something else that this call does not have");
  }
  throw NoImage(head + "no image for " + device.arch + "; there are images for " + kArchWords);
}
