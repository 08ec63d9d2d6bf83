#include "engine/base/braces.h"

#include <charconv>
#include <optional>

#include "engine/base/error.h"
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

// Inside a pair of braces behind each character; checks that they come in pairs.
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

std::optional<int64_t> whole(std::string_view text) {
  int value = 0;  // of the command line: what does not fit is a slip
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string> range(std::string_view text, std::string_view body) {
  std::vector<int64_t> numbers;
  for (size_t at = 0; at != body.npos;) {
    const size_t dots = body.find("..", at);
    const auto number = whole(trim(body.substr(at, dots - at)));
    if (!number)
      refuse(text, fmt::format("'{{{}}}' is no range of whole numbers such as {{2..8}} or "
                               "{{2..8..2}}",
                               body));
    numbers.push_back(*number);
    at = dots == body.npos ? dots : dots + 2;
  }
  if (numbers.size() > 3)
    refuse(text, fmt::format("'{{{}}}' has more than first..last..step", body));
  const int64_t first = numbers[0], last = numbers[1], step = numbers.size() > 2 ? numbers[2] : 1;
  if (first > last || step < 1)
    refuse(text, fmt::format("the range '{{{}}}' is empty: it goes up from first to last", body));
  if (static_cast<size_t>((last - first) / step) >= kMostExpanded) refuse_number(text);
  std::vector<std::string> values;
  for (int64_t v = first; v <= last; v += step) values.push_back(fmt::format("{}", v));
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
