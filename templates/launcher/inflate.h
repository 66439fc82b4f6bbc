// ---------------------------------------------------------------------------------------------
// Compressed images: RFC 1951, without a header. Every package has this, since not every machine has zlib.

class Inflation {
 public:
  Inflation(const unsigned char* from, size_t stored, size_t size) : from_(from), end_(from + stored) {
    result_.reserve(size);
    for (bool is_last = false; !is_last;) {
      is_last = bits(1) != 0;
      const int kind = bits(2);
      if (kind == 0) copy_stored();
      else read_block(kind == 1);
    }
    if (result_.size() != size) broken();
  }
  const std::vector<unsigned char>& result() const { return result_; }

 private:
  static constexpr int kLongest = 15, kLiterals = 288, kDistances = 30, kBlockEnd = 256;
  struct Alphabet {  // symbols in the order of their codes, and how many codes there are of each length
    uint16_t counts[kLongest + 1] = {};
    uint16_t symbols[kLiterals] = {};
    Alphabet(const uint8_t* lengths, int count) {
      for (int i = 0; i < count; ++i) ++counts[lengths[i]];
      counts[0] = 0;
      uint16_t next[kLongest + 1] = {};
      for (int length = 1; length < kLongest; ++length) next[length + 1] = next[length] + counts[length];
      for (int i = 0; i < count; ++i) {
        if (lengths[i] != 0) symbols[next[lengths[i]]++] = uint16_t(i);
      }
    }
  };

  [[noreturn]] static void broken() { throw std::runtime_error("an image of the package is damaged"); }

  int bits(int count) {
    while (held_ < count) {
      if (from_ == end_) broken();
      buffer_ |= uint32_t(*from_++) << held_;
      held_ += 8;
    }
    const int value = int(buffer_ & ((1u << count) - 1));
    buffer_ >>= count;
    held_ -= count;
    return value;
  }

  int symbol(const Alphabet& alphabet) {
    int code = 0, first = 0, index = 0;
    for (int length = 1; length <= kLongest; ++length) {
      code |= bits(1);
      const int count = alphabet.counts[length];
      if (code - first < count) return alphabet.symbols[index + code - first];
      index += count;
      first = (first + count) << 1;
      code <<= 1;
    }
    broken();
  }

  void copy_stored() {
    buffer_ = 0;
    held_ = 0;  // up to the next byte
    const int size = bits(16);
    bits(16);
    if (end_ - from_ < size) broken();
    result_.insert(result_.end(), from_, from_ + size);
    from_ += size;
  }

  void read_block(bool is_fixed) {
    uint8_t lengths[kLiterals + kDistances + 2] = {};
    int literals = kLiterals, distances = kDistances;
    if (is_fixed) {
      for (int i = 0; i < kLiterals; ++i) lengths[i] = i < 144 || i >= 280 ? 8 : i < 256 ? 9 : 7;
      std::fill(lengths + kLiterals, lengths + kLiterals + kDistances, uint8_t(5));
    } else {
      literals = bits(5) + 257;
      distances = bits(5) + 1;
      read_lengths(lengths, bits(4) + 4, literals + distances);
    }
    copy(Alphabet(lengths, literals), Alphabet(lengths + literals, distances));
  }

  void read_lengths(uint8_t* lengths, int count, int all) {
    static const uint8_t order[] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    uint8_t own[19] = {};
    for (int i = 0; i < count; ++i) own[order[i]] = uint8_t(bits(3));
    const Alphabet alphabet(own, 19);
    for (int at = 0; at < all;) {
      const int value = symbol(alphabet);
      if (value < 16) {
        lengths[at++] = uint8_t(value);
        continue;
      }
      if (value == 16 && at == 0) broken();
      const uint8_t again = value == 16 ? lengths[at - 1] : 0;
      const int times = value == 16 ? 3 + bits(2) : value == 17 ? 3 + bits(3) : 11 + bits(7);
      if (at + times > all) broken();
      for (int i = 0; i < times; ++i) lengths[at++] = again;
    }
  }

  void copy(const Alphabet& literals, const Alphabet& distances) {
    for (;;) {
      const int value = symbol(literals);
      if (value == kBlockEnd) return;
      if (value < kBlockEnd) {
        result_.push_back(static_cast<unsigned char>(value));
        continue;
      }
      size_t length = size_t(value) - 254;  // 257 is a length of 3
      if (value >= 265) {
        const int extra = (value - 261) / 4;
        length = value == 285 ? 258 : (size_t(4 + (value - 265) % 4) << extra) + 3 + size_t(bits(extra));
      }
      const int near = symbol(distances);
      size_t distance = size_t(near) + 1;
      if (near >= 4) {
        const int extra = near / 2 - 1;
        distance = (size_t(2 + near % 2) << extra) + 1 + size_t(bits(extra));
      }
      if (distance > result_.size()) broken();
      for (size_t i = 0; i < length; ++i) result_.push_back(result_[result_.size() - distance]);
    }
  }

  const unsigned char *from_, *end_;
  uint32_t buffer_ = 0;
  int held_ = 0;
  std::vector<unsigned char> result_;
};

// The binary of an image, as the driver takes it, for as long as `kept` lives.
const unsigned char* binary_of(const Code& code, const unsigned char* blob, std::vector<unsigned char>& kept) {
  const unsigned char* const stored = blob + code.offset;
  if (code.stored == code.size) return stored;
  kept = Inflation(stored, code.stored, code.size).result();
  return kept.data();
}
