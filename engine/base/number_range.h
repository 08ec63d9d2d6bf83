// Ranges of whole numbers as they are written on a command line.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace evalrun::base {

struct NumberRange {
  int first = 0, last = 0, step = 1;
  bool empty() const { return first > last || step < 1; }
  int64_t count() const;
  std::vector<int> values() const;  // count() of them: check the bounds of a user's range first
};

// "4", "2..8" or "2..8..2"; "2-8" says the same as "2..8". No value for any other text. A
// range that holds no number ("8..2", "2..8..0") is a range that is empty().
std::optional<NumberRange> parse_number_range(std::string_view text);

}  // namespace evalrun::base
