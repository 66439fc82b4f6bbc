// glibc 2.35: which loaded object holds an address, and where its unwind table is. Static unwinders
// ask for it. The layout is that of `struct dl_find_object` on 64-bit systems.
#include <link.h>
#include <stddef.h>

namespace {

struct Object {
  unsigned long long flags;
  void *map_start, *map_end;
  void *link_map;
  void *eh_frame;
  unsigned long long reserved[7];
};

struct Search {
  ElfW(Addr) address;
  Object *found;
};

int look(dl_phdr_info *info, size_t, void *data) {
  const Search *search = static_cast<Search *>(data);
  ElfW(Addr) low = ~ElfW(Addr){0}, high = 0, unwind = 0;
  bool holds = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) &header = info->dlpi_phdr[i];
    const ElfW(Addr) start = info->dlpi_addr + header.p_vaddr, end = start + header.p_memsz;
    if (header.p_type == PT_GNU_EH_FRAME) unwind = start;
    if (header.p_type != PT_LOAD) continue;
    if (start < low) low = start;
    if (end > high) high = end;
    holds |= search->address >= start && search->address < end;
  }
  if (!holds || !unwind) return 0;
  auto pointer = [](ElfW(Addr) address) { return reinterpret_cast<void *>(address); };
  *search->found = {0, pointer(low), pointer(high), nullptr, pointer(unwind), {}};
  return 1;
}

}  // namespace

// The header may declare the function: the name is given to the linker only.
extern "C" __attribute__((visibility("hidden"))) int find_object(void *, Object *)
    __asm__("_dl_find_object");

int find_object(void *address, Object *found) {
  Search search = {reinterpret_cast<ElfW(Addr)>(address), found};
  return dl_iterate_phdr(look, &search) ? 0 : -1;
}
