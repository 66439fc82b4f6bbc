// 64-bit arithmetic with Python's rounding. A value beyond 64 bits and a division by zero are
// refused: KBUILD_REFUSE(text) throws unless it is defined otherwise, and must not return.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#ifndef KBUILD_REFUSE
#include <stdexcept>
#define KBUILD_REFUSE(text) throw std::runtime_error(text)
#endif

#include <string>

namespace kbuild {

struct Arithmetic {
  const char* what;  // what is computed, for the message: "rmsnorm: grid: cdiv(M, BLOCK)"

  int64_t add(int64_t a, int64_t b) const {
    int64_t sum = 0;
    if (__builtin_add_overflow(a, b, &sum)) overflow();
    return sum;
  }
  int64_t sub(int64_t a, int64_t b) const {
    int64_t difference = 0;
    if (__builtin_sub_overflow(a, b, &difference)) overflow();
    return difference;
  }
  int64_t mul(int64_t a, int64_t b) const {
    int64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product)) overflow();
    return product;
  }
  int64_t floor_div(int64_t a, int64_t b) const {
    check_division(a, b);
    const int64_t quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0));
  }
  int64_t floor_mod(int64_t a, int64_t b) const {
    if (b == 0) by_zero();
    if (b == -1) return 0;  // INT64_MIN % -1 traps
    const int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
  int64_t cdiv(int64_t a, int64_t b) const {
    check_division(a, b);
    const int64_t quotient = a / b;
    return quotient + (a % b != 0 && (a < 0) == (b < 0));
  }
  double divide(double a, double b) const {
    if (b == 0) by_zero();
    return a / b;
  }
  double power(double a, double b) const {
    if (a == 0 && b < 0) by_zero();
    const double value = std::pow(a, b);
    if (!std::isfinite(value) && std::isfinite(a) && std::isfinite(b)) not_real();
    return value;
  }
  double root(double a) const {
    if (a < 0) not_real();
    return std::sqrt(a);
  }
  int64_t next_pow2(int64_t a) const {
    if (a <= 1) return 1;
    if (a > INT64_C(1) << 62) overflow();
    return INT64_C(1) << (64 - __builtin_clzll(static_cast<unsigned long long>(a - 1)));
  }

 private:
  void check_division(int64_t a, int64_t b) const {
    if (b == 0) by_zero();
    if (a == INT64_MIN && b == -1) overflow();
  }
  [[noreturn]] void by_zero() const { refuse("division by zero"); }
  [[noreturn]] void not_real() const { refuse("a power or root without a real value"); }
  [[noreturn]] void overflow() const { refuse("a value beyond 64 bits"); }
  [[noreturn]] void refuse(const char* why) const {
    KBUILD_REFUSE((std::string(what) + ": " + why).c_str());
  }
};

}  // namespace kbuild
