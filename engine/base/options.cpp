#include "engine/base/options.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "engine/base/text.h"

namespace evalrun::base {
namespace {

[[noreturn]] void refuse_value(const OptionOwner& owner, const OptionInfo& info,
                               const std::string& value, const std::string& expected,
                               const std::string& hint = {}) {
  throw usage_error(fmt::format("{}: {} '{}' must be {}, found '{}'", owner.name, owner.noun,
                                info.name, expected, value),
                    fmt::format("{}{} (default {})", hint, info.description, info.default_value));
}

std::string to_text(const Bounds& bounds) {
  if (!bounds.most) return fmt::format("at least {}", bounds.least.value_or(0));
  if (!bounds.least) return fmt::format("at most {}", *bounds.most);
  return fmt::format("in {}..{}", *bounds.least, *bounds.most);
}

template <typename T>
std::string checked_number(const OptionOwner& owner, const OptionInfo& info,
                           const std::string& text, const char* expected) {
  const auto value = parse_number<T>(text);
  if (!value) refuse_value(owner, info, text, expected);
  if (!info.bounds.hold(*value)) refuse_value(owner, info, text, to_text(info.bounds));
  return fmt::format("{}", *value);
}

// "did you mean 'first'? ", or nothing: the message has named the choices already.
std::string neighbour(const std::string& text, const std::vector<std::string>& choices) {
  const std::string hint = suggest(text, choices);
  return hint.substr(0, hint.find("known: "));
}

// The one spelling of a value: 04 -> 4, 0.50 -> 0.5, 1 -> true.
std::string checked_value(const OptionOwner& owner, const OptionInfo& info,
                          const std::string& text) {
  switch (info.type) {
    case OptionInfo::Type::kInt:
      return checked_number<int>(owner, info, text, "an integer");
    case OptionInfo::Type::kNumber:
      return checked_number<double>(owner, info, text, "a number");
    case OptionInfo::Type::kBool:
      if (text == "true" || text == "1") return "true";
      if (text == "false" || text == "0") return "false";
      refuse_value(owner, info, text, "true or false");
    case OptionInfo::Type::kText:
      if (text.empty()) refuse_value(owner, info, text, "a text");
      if (!info.choices.empty() && std::ranges::find(info.choices, text) == info.choices.end())
        refuse_value(owner, info, text, fmt::format("one of {}", fmt::join(info.choices, ", ")),
                     neighbour(text, info.choices));
      return text;
  }
  EVALRUN_CHECK(false, "type of option '{}'", info.name);
}

}  // namespace

std::map<std::string, std::string> split_options(std::string_view text, const OptionOwner& owner,
                                                 const std::string& form) {
  std::map<std::string, std::string> given;
  for (const std::string& piece : split(text, ',')) {
    const size_t equals = piece.find('=');
    const std::string key(trim(std::string_view(piece).substr(0, equals)));
    if (equals == std::string::npos || key.empty())
      throw usage_error(fmt::format("{}: expected key=value, found '{}'", owner.name, trim(piece)),
                        form);
    const std::string value(trim(std::string_view(piece).substr(equals + 1)));
    if (!given.emplace(key, value).second)
      throw usage_error(fmt::format("{}: {} '{}' is given twice", owner.name, owner.noun, key));
  }
  return given;
}

OptionValues::OptionValues(const std::vector<const OptionInfo*>& infos,
                           const std::map<std::string, std::string>& given,
                           const OptionOwner& owner) {
  std::vector<std::string> names;
  for (const OptionInfo* info : infos) names.push_back(info->name);
  for (const auto& [key, value] : given)
    if (std::ranges::find(names, key) == names.end())
      throw usage_error(fmt::format("{}: unknown {} '{}'", owner.name, owner.noun, key),
                        names.empty() ? fmt::format("{} has no {}s", owner.name, owner.noun)
                                      : suggest(key, names));
  for (const OptionInfo* info : infos) {
    const auto it = given.find(info->name);
    values_[info->name] =
        checked_value(owner, *info, it == given.end() ? info->default_value : it->second);
  }
}

const std::string& OptionValues::text(const std::string& name) const {
  const auto it = values_.find(name);
  EVALRUN_CHECK(it != values_.end(), "option '{}' is not declared", name);
  return it->second;
}

std::string OptionValues::canonical() const {
  std::string out;
  for (const auto& [key, value] : values_)
    out += fmt::format("{}{}={}", out.empty() ? "" : ",", key, value);
  return out;
}

}  // namespace evalrun::base
