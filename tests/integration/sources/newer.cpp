// A few lines that need glibc 2.34 and GLIBCXX_3.4.29 when linked with what a newer system has.
#include <charconv>
#include <sstream>
#include <string>
#include <thread>

#include <sys/stat.h>

extern "C" double newer(const char *text) {
  std::ostringstream out;
  out << text;
  const std::string copy = out.str();
  double value = 0;
  std::from_chars(copy.data(), copy.data() + copy.size(), value);
  std::thread([&] { value += 1; }).join();
  struct stat status;
  return stat("/", &status) ? -1 : value;
}
