// Asks for as much of a newer libstdc++ and glibc as possible, and says what went wrong.
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iomanip>
#include <iostream>
#include <locale>
#include <map>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <random>
#include <regex>
#include <shared_mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <typeinfo>
#include <unordered_map>
#include <variant>
#include <vector>
#if __has_include(<format>)
#include <format>
#endif
#if __has_include(<semaphore>) && __cplusplus >= 202002L
#include <barrier>
#include <latch>
#include <semaphore>
#include <stop_token>
#endif
#if __has_include(<syncstream>) && __cplusplus >= 202002L
#include <syncstream>
#endif

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
std::string failures;

void expect(bool good, const char *what) {
  if (!good) failures += std::string(failures.empty() ? "" : ", ") + what;
}

void streams() {
  std::ostringstream text;  // the default constructor is GLIBCXX_3.4.26
  text << std::setprecision(3) << 2.5 << ' ' << std::hex << 255 << ' ' << std::boolalpha << true;
  expect(text.str() == "2.5 ff true", "ostringstream");
  std::stringstream both;
  both << "7 x 0.5";
  int seven = 0;
  char x = 0;
  double half = 0;
  both >> seven >> x >> half;
  expect(seven == 7 && x == 'x' && half == 0.5, "stringstream");
  std::wostringstream wide;
  wide << L"wide" << 3;
  expect(wide.str() == L"wide3", "wostringstream");
  std::istringstream date("2024-02-29 12:34:56");
  std::tm parts{};
  date >> std::get_time(&parts, "%Y-%m-%d %H:%M:%S");
  expect(!date.fail() && parts.tm_mday == 29 && parts.tm_sec == 56, "get_time");
  std::ostringstream money;
  money << std::put_money(1234) << std::put_time(&parts, "%Y");
  expect(money.str().find("2024") != std::string::npos, "put_time");
  std::clog << std::flush;
#if defined(__cpp_lib_syncbuf)
  std::ostringstream target;
  std::osyncstream(target) << "synced";
  expect(target.str() == "synced", "osyncstream");
#endif
}

void locales() {
  // A second copy of a facet's id would throw std::bad_cast here.
  const std::locale &classic = std::locale::classic();
  expect(std::use_facet<std::ctype<char>>(classic).toupper('a') == 'A', "ctype");
  expect(std::use_facet<std::numpunct<char>>(classic).decimal_point() == '.', "numpunct");
  expect(std::has_facet<std::time_get<char>>(classic), "time_get");
  const char word[] = "word";
  expect(std::use_facet<std::collate<char>>(classic).hash(word, word + 4) != 0, "collate");
}

void numbers() {
  double value = 0;
  const std::string_view text = "3.25e2";
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  expect(read.ec == std::errc() && value == 325, "from_chars");
  char room[64];
  const auto wrote = std::to_chars(room, room + sizeof room, 0.1);
  expect(std::string(room, wrote.ptr) == "0.1", "to_chars");
  const auto exact = std::to_chars(room, room + sizeof room, 1.0f / 3, std::chars_format::hex, 4);
  expect(exact.ec == std::errc(), "to_chars hex");
  long double wide = 0;
  std::from_chars(text.data(), text.data() + text.size(), wide);
  expect(wide == 325.0L, "from_chars long double");
  volatile double x = 3, y = 4;
  expect(std::hypot(x, y) == 5 && std::pow(x, 2) == 9 && std::fmod(y, x) == 1, "hypot, pow, fmod");
  expect(std::abs(std::exp(std::log(y)) - 4) < 1e-12 && std::exp2(x) == 8, "exp, log");
  volatile float f = 2;
  expect(std::pow(f, 3.0f) == 8 && std::abs(std::sin(f) - 0.909297f) < 1e-6f, "float math");
  expect(strtol("12", nullptr, 10) == 12 && std::stoull("18446744073709551615") == ~0ULL, "strtol");
  int scanned = 0;
  expect(sscanf("41", "%d", &scanned) == 1 && scanned == 41, "sscanf");
}

void files() {
  const fs::path folder = fs::temp_directory_path() / ("stress-" + std::to_string(getpid()));
  fs::create_directories(folder / "a" / "b");
  std::ofstream(folder / "a" / "file") << "content";
  std::size_t found = 0;
  for (const auto &entry : fs::recursive_directory_iterator(folder)) found += entry.exists();
  expect(found == 3 && fs::file_size(folder / "a" / "file") == 7, "filesystem");
  fs::copy_file(folder / "a" / "file", folder / "copy");
  expect(fs::equivalent(folder / "copy", folder / "." / "copy"), "equivalent");
  expect(fs::last_write_time(folder / "copy").time_since_epoch().count() != 0, "last_write_time");
  struct stat status = {};
  expect(stat((folder / "copy").c_str(), &status) == 0 && status.st_size == 7, "stat");
  expect(lstat((folder / "none").c_str(), &status) == -1 && errno == ENOENT, "lstat");
  try {
    static_cast<void>(fs::file_size(folder / "none"));
    expect(false, "filesystem_error");
  } catch (const fs::filesystem_error &error) {
    expect(error.path1() == folder / "none", "filesystem_error");
  }
  expect(fs::relative(folder / "a", folder).string() == "a", "relative");
  fs::remove_all(folder);
}

void threads() {
  std::mutex mutex;
  std::condition_variable changed;
  bool ready = false;
  std::unique_lock<std::mutex> lock(mutex);
  const auto before = std::chrono::steady_clock::now();
  expect(!changed.wait_for(lock, 20ms, [&] { return ready; }), "wait_for");
  expect(std::chrono::steady_clock::now() - before >= 20ms, "wait_for waits");
  std::thread other([&] {
    const std::lock_guard<std::mutex> guard(mutex);
    ready = true;
    changed.notify_all();
  });
  changed.wait(lock, [&] { return ready; });
  lock.unlock();
  other.join();
  expect(std::async(std::launch::async, [] { return 6 * 7; }).get() == 42, "async");
  auto failing = std::async(std::launch::async, [] { throw std::out_of_range("far"); });
  expect(failing.wait_for(10s) == std::future_status::ready, "future.wait_for");
  try {
    failing.get();
    expect(false, "exception across threads");
  } catch (const std::out_of_range &error) {
    expect(std::string(error.what()) == "far", "exception across threads");
  }
  std::timed_mutex timed;
  expect(timed.try_lock_for(1ms), "timed_mutex");
  std::thread([&] { expect(!timed.try_lock_for(5ms), "timed_mutex held"); }).join();
  std::shared_timed_mutex shared;
  expect(shared.try_lock_shared_for(1ms), "shared_timed_mutex");
  std::once_flag once;
  int calls = 0;
  for (int i = 0; i < 3; ++i) std::call_once(once, [&] { ++calls; });
  expect(calls == 1, "call_once");
#if defined(__cpp_lib_semaphore)
  std::counting_semaphore<4> tokens(1);
  expect(tokens.try_acquire_for(1ms) && !tokens.try_acquire_for(1ms), "semaphore");
  std::latch latch(1);
  std::jthread counter([&](std::stop_token) { latch.count_down(); });
  latch.wait();
#endif
  thread_local std::vector<std::string> own{"thread", "local"};
  expect(own.size() == 2, "thread_local");
}

void memory() {
  std::array<std::byte, 512> room;
  std::pmr::monotonic_buffer_resource arena(room.data(), room.size());
  std::pmr::unsynchronized_pool_resource pool(&arena);
  std::pmr::map<int, std::pmr::string> table(&pool);
  for (int i = 0; i < 100; ++i) table.emplace(i, "a string that is longer than the small buffer");
  expect(table.at(99).size() == 45, "pmr");
  std::pmr::synchronized_pool_resource shared;
  expect(shared.allocate(1000) != nullptr, "synchronized_pool_resource");
  auto first = std::make_shared<std::string>("shared");
  std::weak_ptr<std::string> weak = first;
  std::vector<std::thread> users;
  for (int i = 0; i < 4; ++i) users.emplace_back([copy = first] { expect(*copy == "shared", "copy"); });
  for (auto &user : users) user.join();
  first.reset();
  expect(weak.expired(), "shared_ptr");
  std::string grown;
  grown.reserve(100);
  grown.shrink_to_fit();
  grown.replace(0, 0, "text");
  expect(grown == "text", "string");
  std::unordered_map<std::string, std::variant<int, std::string>> mixed{{"a", 1}, {"b", "two"}};
  expect(std::get<std::string>(mixed.at("b")) == "two", "unordered_map");
}

void exceptions() {
  std::exception_ptr kept;
  try {
    try {
      throw std::system_error(std::make_error_code(std::errc::timed_out), "outer");
    } catch (...) {
      std::throw_with_nested(std::logic_error("nested"));
    }
  } catch (...) {
    kept = std::current_exception();
  }
  auto copy = kept;
  try {
    std::rethrow_exception(copy);
  } catch (const std::logic_error &error) {
    try {
      std::rethrow_if_nested(error);
      expect(false, "nested");
    } catch (const std::system_error &inner) {
      expect(inner.code() == std::errc::timed_out, "system_error");
    }
  }
  expect(std::uncaught_exceptions() == 0, "uncaught_exceptions");
  try {
    static_cast<void>(std::stoi("none"));
    expect(false, "invalid_argument");
  } catch (const std::exception &error) {
    expect(typeid(error) == typeid(std::invalid_argument), "typeid of a library's exception");
  }
  auto made = std::make_exception_ptr(std::runtime_error("made"));
  expect(static_cast<bool>(made), "make_exception_ptr");
}

void rest() {
  const std::regex word("([a-z]+)_([0-9]{2})", std::regex::icase);
  std::smatch match;
  const std::string text = "x Kernel_42 y";
  expect(std::regex_search(text, match, word) && match[2] == "42", "regex");
  std::random_device device;
  std::mt19937 engine(device());
  expect(std::uniform_int_distribution<>(1, 6)(engine) > 0 && device.entropy() >= 0, "random");
  std::function<int(int)> twice = [](int x) { return 2 * x; };
  expect(twice(4) == 8, "function");
#if defined(__cpp_lib_format)
  expect(std::format("{:>6.2f}|{:#x}|{}", 3.14159, 255, "s") == "  3.14|0xff|s", "format");
#endif
  static bool left = false;
  atexit([] { left = true; });
  pthread_atfork(nullptr, nullptr, nullptr);
  int shared = 0;
#pragma omp parallel for reduction(+ : shared)
  for (int i = 0; i < 100; ++i) shared += i;
  expect(shared == 4950 && !left, "openmp");
}

}  // namespace

/// An empty text when everything is right; otherwise the names of what is not.
extern "C" __attribute__((visibility("default"))) const char *stress() {
  failures.clear();
  try {
    streams();
    locales();
    numbers();
    files();
    threads();
    memory();
    exceptions();
    rest();
  } catch (const std::exception &error) {
    expect(false, error.what());
  }
  return failures.c_str();
}
