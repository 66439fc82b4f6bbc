// The kernel is loaded from the library that fits the device, which lies beside the program.
#include <dlfcn.h>

#include <string>

#include "check.h"

int main(int, char** arguments) {
  const char* arch = arch_of_device();
  if (arch == nullptr) return 2;
  const std::string program = arguments[0];
  const std::string folder = program.substr(0, program.find_last_of('/') + 1);
  const std::string file = (folder.empty() ? "./" : folder) + "libaxpy_" + arch + ".so";
  void* library = dlopen(file.c_str(), RTLD_NOW);
  const void* found = library == nullptr ? nullptr : dlsym(library, (std::string("axpy_") + arch).c_str());
  if (found == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  return check(*static_cast<const Axpy*>(found), arch);
}
