// A whole text as a number: "12", not "12 " or "12x".
#pragma once
#include <charconv>
#include <cmath>
#include <concepts>
#include <optional>
#include <string_view>
#include <type_traits>

namespace evalrun::base {

// Empty when `text` is not exactly one number: no sign '+', no white space, nothing after it. An
// integer must fit into T; a floating-point number must be finite ("inf" and "nan" are refused).
template <typename T>
requires(std::is_arithmetic_v<T> &&
         !std::same_as<T, bool>) std::optional<T> parse_number(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  if constexpr (std::is_floating_point_v<T>)
    if (!std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace evalrun::base
