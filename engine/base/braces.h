// Lists of values in the text form of methods: "pld:k={2,4},ngram={1..3}" is six methods.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace evalrun::base {

inline constexpr size_t kMostExpanded = 1000;  // methods of one list: more is a slip

// Splits at commas outside braces. Throws usage_error: unbalanced or nested braces.
std::vector<std::string> split_outside_braces(std::string_view text);

// The Cartesian product of all {a,b,c}, {1..9} and {1..9..2} in the text, the last one fastest; the
// text itself when it has none. Throws usage_error that names the text: unbalanced, nested, an
// empty list or entry, no range of whole numbers, more than kMostExpanded.
std::vector<std::string> expand_braces(std::string_view text);

}  // namespace evalrun::base
