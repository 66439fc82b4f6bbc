// Torch ops whose exceptions cross from one library into the other, in both directions.
#include <c10/core/Device.h>
#include <torch/library.h>

#include <filesystem>
#include <stdexcept>

extern "C" const char *stress();

namespace {

std::string run() { return stress(); }

int64_t checked(int64_t number) {
  TORCH_CHECK(number > 0, "got ", number, " and ", 2.5);
  return number;
}

int64_t standard(int64_t number) {
  if (number > 0) throw std::out_of_range("out of range");
  throw std::filesystem::filesystem_error("no file", std::make_error_code(std::errc::io_error));
}

std::string caught() {
  try {
    c10::Device nowhere("nowhere:1");
  } catch (const c10::Error &error) {
    return error.what_without_backtrace();
  }
  return "";
}

}  // namespace

TORCH_LIBRARY(kbuild_stress, library) {
  library.def("run() -> str", run);
  library.def("checked(int number) -> int", checked);
  library.def("standard(int number) -> int", standard);
  library.def("caught() -> str", caught);
}
