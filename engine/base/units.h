// Sizes and times in words: one spelling for tables, messages and the log.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace evalrun::base {

// "999 B", "8.26 MB", "138 MB", "3.4 GB": powers of 1000, at most three digits.
std::string format_bytes(double bytes);
// "412 ns", "3.14 ms", "12.5 s", "3m05s", "1h02m"; below a minute at most three digits.
std::string format_duration(double seconds);
// "90s", "10m", "2h" or "90": seconds, 0 and more. nullopt for anything else.
std::optional<double> parse_duration(std::string_view text);

}  // namespace evalrun::base
