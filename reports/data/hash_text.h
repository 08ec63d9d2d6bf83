// A hash as the store writes it, without memory of its own: a report of 10^6 samples holds two of
// each.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace evalrun::reports {

class HashText {
 public:
  static constexpr size_t kMost = 32;  // characters of the store's

  HashText() = default;
  // A longer text, which somebody else wrote, is hashed.
  explicit HashText(std::string_view text);
  operator std::string_view() const { return {text_.data(), size_}; }

  bool operator==(const HashText&) const = default;
  friend bool operator==(const HashText& a, std::string_view b) { return std::string_view(a) == b; }
  friend bool operator<(const HashText& a, const HashText& b) {
    return std::string_view(a) < std::string_view(b);
  }

 private:
  std::array<char, kMost> text_ = {};
  uint8_t size_ = 0;
};

}  // namespace evalrun::reports
