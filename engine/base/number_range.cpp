#include "engine/base/number_range.h"

#include "engine/base/parse_number.h"
#include "engine/base/text.h"

namespace evalrun::base {

int64_t NumberRange::count() const { return empty() ? 0 : (int64_t{last} - first) / step + 1; }

std::vector<int> NumberRange::values() const {
  std::vector<int> values;
  for (int64_t i = 0; i < count(); ++i) values.push_back(static_cast<int>(first + i * step));
  return values;
}

std::optional<NumberRange> parse_number_range(std::string_view text) {
  if (const auto one = parse_number<int>(trim(text))) return NumberRange{*one, *one};
  const bool dots = text.find("..") != text.npos;
  const std::string_view separator = dots ? ".." : "-";
  std::vector<int> numbers;
  for (size_t at = 0; at != text.npos;) {
    const size_t end = text.find(separator, at);
    const auto number = parse_number<int>(trim(text.substr(at, end - at)));
    if (!number) return std::nullopt;
    numbers.push_back(*number);
    at = end == text.npos ? end : end + separator.size();
  }
  if (numbers.size() > (dots ? 3 : 2)) return std::nullopt;
  return NumberRange{numbers[0], numbers[1], numbers.size() == 3 ? numbers[2] : 1};
}

}  // namespace evalrun::base
