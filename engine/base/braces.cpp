#include "engine/base/braces.h"

#include "engine/base/error.h"
#include "engine/base/number_range.h"
#include "engine/base/text.h"

namespace evalrun::base {
namespace {

constexpr const char* kHint =
    "several values of a parameter are written k={2,4,8}, or k={2..8} or k={2..8..2} for whole "
    "numbers";

[[noreturn]] void refuse(std::string_view text, const std::string& what) {
  throw usage_error(fmt::format("'{}': {}", text, what), kHint);
}

[[noreturn]] void refuse_number(std::string_view text) {
  refuse(text, fmt::format("stands for more than {} methods", kMostExpanded));
}

// For each character: whether the text after it is inside a pair of braces. Checks that braces come
// in pairs.
std::vector<bool> inside_braces(std::string_view text) {
  std::vector<bool> inside;
  bool open = false;
  for (const char c : text) {
    if (c == '{' && open) refuse(text, "a brace inside braces");
    if (c == '}' && !open) refuse(text, "a closing brace without an opening one");
    if (c == '{' || c == '}') open = c == '{';
    inside.push_back(open);
  }
  if (open) refuse(text, "an opening brace without a closing one");
  return inside;
}

std::vector<std::string> range(std::string_view text, std::string_view body) {
  const auto numbers = parse_number_range(body);
  if (!numbers)
    refuse(text, fmt::format("'{{{}}}' is no range of whole numbers: first..last or "
                             "first..last..step",
                             body));
  if (numbers->empty())
    refuse(text, fmt::format("the range '{{{}}}' is empty: it goes up from first to last", body));
  if (numbers->count() > static_cast<int64_t>(kMostExpanded)) refuse_number(text);
  std::vector<std::string> values;
  for (const int value : numbers->values()) values.push_back(fmt::format("{}", value));
  return values;
}

// What stands between two braces.
std::vector<std::string> values_of(std::string_view text, std::string_view body) {
  if (body.find(',') == body.npos && body.find("..") != body.npos) return range(text, body);
  std::vector<std::string> values;
  for (const std::string& piece : split(body, ',')) {
    values.emplace_back(trim(piece));
    if (values.back().empty()) refuse(text, fmt::format("'{{{}}}' has an empty entry", body));
  }
  return values;
}

}  // namespace

std::vector<std::string> split_outside_braces(std::string_view text) {
  const std::vector<bool> inside = inside_braces(text);
  std::vector<std::string> pieces(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ',' && !inside[i])
      pieces.emplace_back();
    else
      pieces.back() += text[i];
  }
  return pieces;
}

std::vector<std::string> expand_braces(std::string_view text) {
  inside_braces(text);
  std::vector<std::string> expanded(1);
  for (size_t at = 0; at < text.size();) {
    const size_t open = text.find('{', at);
    const std::string_view plain = text.substr(at, open - at);
    for (std::string& e : expanded) e += plain;
    if (open == text.npos) break;
    const size_t close = text.find('}', open);
    const auto values = values_of(text, text.substr(open + 1, close - open - 1));
    if (expanded.size() * values.size() > kMostExpanded) refuse_number(text);
    std::vector<std::string> product;
    for (const std::string& e : expanded)
      for (const std::string& v : values) product.push_back(e + v);
    expanded = std::move(product);
    at = close + 1;
  }
  return expanded;
}

}  // namespace evalrun::base
