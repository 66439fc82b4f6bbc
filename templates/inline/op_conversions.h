// Between what Torch's dispatcher hands over and what the functions of a source take.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#ifdef KBUILD_INLINE_ATEN
// A handle of a tensor is a pointer to an `at::Tensor` that its receiver owns.
template <>
struct torch::stable::detail::ToImpl<at::Tensor> {
  static at::Tensor call(StableIValue value, uint64_t, bool) {
    auto *tensor =
        reinterpret_cast<at::Tensor *>(torch::stable::detail::to<AtenTensorHandle>(value));
    at::Tensor taken = std::move(*tensor);
    delete tensor;
    return taken;
  }
};

template <>
struct torch::stable::detail::FromImpl<at::Tensor> {
  static StableIValue call(const at::Tensor &tensor, uint64_t, bool) {
    return torch::stable::detail::from(
        reinterpret_cast<AtenTensorHandle>(new at::Tensor(tensor)));
  }
};
#endif

namespace kbuild_inline {

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;
template <class T>
inline constexpr bool is_array = false;
template <class T, std::size_t N>
inline constexpr bool is_array<std::array<T, N>> = true;

// An argument as the function takes it.
template <class To, class From>
decltype(auto) argument(From &value) {
  if constexpr (std::is_same_v<To, From>) {
    return (value);
  } else if constexpr (is_optional<To>) {
    return value ? To(argument<typename To::value_type>(*value)) : To();
  } else if constexpr (is_vector<To>) {
    To list;
    list.reserve(value.size());
    for (auto element : value) {
      list.push_back(argument<typename To::value_type>(element));
    }
    return list;
  } else if constexpr (is_array<To>) {
    To list;
    if (value.size() != list.size()) {
      throw std::invalid_argument("a list of " + std::to_string(list.size()) +
                                  " is needed, not of " + std::to_string(value.size()));
    }
    for (std::size_t at = 0; at < list.size(); ++at) {
      list[at] = argument<typename To::value_type>(value[at]);
    }
    return list;
  } else if constexpr (std::is_integral_v<To> && std::is_integral_v<From>) {
    auto number = static_cast<To>(value);
    if (static_cast<From>(number) != value || (number < To(0)) != (value < From(0))) {
      throw std::out_of_range(std::to_string(value) + " does not fit the C++ type");
    }
    return number;
  } else {
    return To(value);
  }
}

// A result as the dispatcher takes it.
template <class To, class From>
To result(From &&value) {
  using Plain = std::decay_t<From>;
  if constexpr (std::is_same_v<To, Plain>) {
    return std::forward<From>(value);
  } else if constexpr (is_optional<To>) {
    return value ? To(result<typename To::value_type>(*value)) : To();
  } else if constexpr (is_vector<To>) {
    To list;
    for (auto &&element : value) {
      list.push_back(result<typename To::value_type>(element));
    }
    return list;
  } else {
    return static_cast<To>(value);
  }
}

template <class To, class From, std::size_t... At>
To results_at(From &&values, std::index_sequence<At...>) {
  return To(result<std::tuple_element_t<At, To>>(std::get<At>(values))...);
}

template <class To, class From>
To results(From &&values) {
  return results_at<To>(values, std::make_index_sequence<std::tuple_size_v<To>>());
}

}  // namespace kbuild_inline
