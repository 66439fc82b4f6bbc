// ---------------------------------------------------------------------------------------------
// Arguments that are neither tensors nor plain numbers

struct Held {  // what the host lent for an argument, given back at the end
  void* box = nullptr;
  void* handle = nullptr;
  void (*release)(Held&) = nullptr;

  Held() = default;
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    if (release != nullptr) release(*this);
  }
};

// Pass the ownership on.
void leave(Held& held) { held.release = nullptr; }

template <typename T>
struct Maybe : Held {  // a number that may be None
  T value{};
  bool given = false;
};

struct Text : Held {
  std::string value;
  bool given = false;

  bool is(const char* text, size_t size) const {
    return given && value.size() == size && std::memcmp(value.data(), text, size) == 0;
  }
};

struct DtypeArgument : Held {  // a dtype
  int kind = -1;      // index into `dtypes`
  std::string words;  // for one that is none of them
  bool given = false;
};

struct DeviceArgument : Held {  // a device, in the host's numbers; without an index, any of its type
  int32_t type = -1;
  int32_t index = -1;
  bool given = false;
};

template <typename T>
struct List : Held {
  std::vector<T> items;
  bool given = false;
};

template <typename T>
T item_of(const char* op, const char* asked, const List<T>& list, Int place) {
  const Int count = Int(list.items.size());
  const Int at = place < 0 ? place + count : place;
  if (KBUILD_UNLIKELY(at < 0 || at >= count)) {
    refuse(op, quoted(asked) + " is used, but the list has " + std::to_string(count) +
                   (count == 1 ? " item" : " items"));
  }
  return list.items[size_t(at)];
}

struct TensorList : Held {  // its tensors are members of the call
  size_t count = 0;
};

// With `up_to`, each may be None, and those behind the end of a shorter list are.
void check_length(const char* op, const char* name, const TensorList& list, size_t wanted, bool up_to) {
  if (KBUILD_UNLIKELY(up_to ? list.count > wanted : list.count != wanted)) {
    refuse(op, quoted(name) + " must have " + (up_to ? "up to " : "") + std::to_string(wanted) +
                   (wanted == 1 ? " tensor" : " tensors") + ", but it has " + std::to_string(list.count));
  }
}

[[noreturn]] KBUILD_COLD void wrong_kind_of_dtype(const char* op, const char* name, const DtypeArgument& kind,
                                                  const char* const* supported, int count) {
  const std::string is = kind.kind >= 0 ? std::string(dtypes[kind.kind].name)
                                        : "a dtype that no kernel is compiled for (" + kind.words + ")";
  refuse(op, quoted(name) + (kind.given ? " is " : " is None, which stands for ") + is + "; it takes " +
                 listed(supported, count, "or"));
}
