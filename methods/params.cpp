// Method parameters and the text form `name:key=value,key=value`.
#include <algorithm>
#include <cctype>
#include <limits>
#include <set>

#include "engine/base/braces.h"
#include "engine/base/error.h"
#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "methods/method.h"

namespace evalrun::methods {
namespace {

[[noreturn]] void bad_value(const std::string& method, const ParamInfo& info,
                            const std::string& value, const std::string& expected) {
  throw base::usage_error(
      fmt::format("{}: parameter '{}' must be {}, found '{}'", method, info.name, expected, value),
      fmt::format("{} (default {})", info.description, info.default_value));
}

void check_range(const std::string& method, const ParamInfo& info, const std::string& text,
                 double value) {
  if (info.min == 0 && info.max == 0) return;
  if (value < info.min || value > info.max)
    bad_value(method, info, text, fmt::format("in {}..{}", info.min, info.max));
}

// The one spelling of a value, so that equal settings give equal keys: 04 -> 4, 0.50 -> 0.5.
std::string normalise(const std::string& method, const ParamInfo& info, const std::string& text) {
  switch (info.type) {
    case ParamInfo::Type::kInt: {
      const auto value = base::parse_number<int>(text);
      if (!value) bad_value(method, info, text, "an integer");
      check_range(method, info, text, *value);
      return fmt::format("{}", *value);
    }
    case ParamInfo::Type::kNumber: {
      const auto value = base::parse_number<double>(text);
      if (!value) bad_value(method, info, text, "a number");
      check_range(method, info, text, *value);
      return fmt::format("{}", *value);
    }
    case ParamInfo::Type::kBool:
      if (text == "true" || text == "1") return "true";
      if (text == "false" || text == "0") return "false";
      bad_value(method, info, text, "true or false");
    case ParamInfo::Type::kText: {
      if (text.empty()) bad_value(method, info, text, "a text");
      bool known = info.choices.empty();
      for (const std::string& choice : info.choices) known |= choice == text;
      if (!known)
        bad_value(method, info, text, fmt::format("one of {}", fmt::join(info.choices, ", ")));
      return text;
    }
  }
  EVALRUN_CHECK(false, "parameter type of '{}'", info.name);
  return {};
}

// "key=value" without a colon before the equals sign: parameters, not a method.
bool is_parameter(std::string_view piece) {
  const size_t equals = piece.find('=');
  return equals != std::string_view::npos && piece.substr(0, equals).find(':') == piece.npos;
}

}  // namespace

MethodParams::MethodParams(const std::vector<ParamInfo>& infos,
                           const std::map<std::string, std::string>& given,
                           const std::string& method) {
  std::vector<std::string> names;
  for (const ParamInfo& info : infos) names.push_back(info.name);
  for (const auto& [key, value] : given) {
    bool known = false;
    for (const std::string& name : names) known |= name == key;
    if (!known)
      throw base::usage_error(
          fmt::format("{}: unknown parameter '{}'", method, key),
          names.empty() ? fmt::format("{} has no parameters", method) : base::suggest(key, names));
  }
  for (const ParamInfo& info : infos) {
    const auto it = given.find(info.name);
    values_[info.name] =
        normalise(method, info, it == given.end() ? info.default_value : it->second);
  }
}

const std::string& MethodParams::text(const std::string& key) const {
  const auto it = values_.find(key);
  EVALRUN_CHECK(it != values_.end(), "parameter '{}' is not declared", key);
  return it->second;
}

int MethodParams::integer(const std::string& key) const {
  const auto value = base::parse_number<int>(text(key));
  EVALRUN_CHECK(value, "parameter '{}' is no integer", key);
  return *value;
}

double MethodParams::number(const std::string& key) const {
  const auto value = base::parse_number<double>(text(key));
  EVALRUN_CHECK(value, "parameter '{}' is no number", key);
  return *value;
}

bool MethodParams::boolean(const std::string& key) const {
  const std::string& value = text(key);
  EVALRUN_CHECK(value == "true" || value == "false", "parameter '{}' is no boolean", key);
  return value == "true";
}

std::string MethodParams::canonical() const {
  std::string out;
  for (const auto& [key, value] : values_) {
    if (!out.empty()) out += ',';
    out += fmt::format("{}={}", key, value);
  }
  return out;
}

std::string MethodSpec::canonical() const {
  const std::string parameters = params.canonical();
  return parameters.empty() ? info->name : fmt::format("{}:{}", info->name, parameters);
}

std::string MethodSpec::label() const {
  std::string parameters;
  const MethodParams defaults(info->params, {}, info->name);
  for (const ParamInfo& parameter : info->params) {
    const std::string& value = params.text(parameter.name);
    if (value == defaults.text(parameter.name)) continue;
    parameters += fmt::format("{}{}={}", parameters.empty() ? "" : ",", parameter.name, value);
  }
  return parameters.empty() ? info->name : fmt::format("{}:{}", info->name, parameters);
}

Steps MethodSpec::steps() const {
  Steps steps = Steps::kFixed;
  for (const ParamInfo& parameter : info->params)
    if (!parameter.steps_at.empty() && params.text(parameter.name) == parameter.steps_at)
      steps = std::max(steps, parameter.steps);
  return steps;
}

Lossless MethodSpec::lossless() const {
  return info->lossless_with ? info->lossless_with(params) : info->lossless;
}

MethodSpec parse_method(std::string_view text) {
  text = base::trim(text);
  const size_t colon = text.find(':');
  const std::string name(base::trim(text.substr(0, colon)));
  MethodSpec spec;
  spec.info = &method_registry().get(name);
  std::map<std::string, std::string> given;
  if (colon != std::string_view::npos) {
    for (const std::string& piece : base::split(text.substr(colon + 1), ',')) {
      const size_t equals = piece.find('=');
      const std::string key(base::trim(std::string_view(piece).substr(0, equals)));
      if (equals == std::string::npos || key.empty())
        throw base::usage_error(
            fmt::format("{}: expected key=value, found '{}'", name, piece),
            fmt::format("a method is written name:key=value,key=value, for example {}",
                        MethodSpec{spec.info, {spec.info->params, {}, name}}.canonical()));
      const std::string value(base::trim(std::string_view(piece).substr(equals + 1)));
      if (!given.emplace(key, value).second)
        throw base::usage_error(fmt::format("{}: parameter '{}' is given twice", name, key));
    }
  }
  spec.params = MethodParams(spec.info->params, given, name);
  if (spec.info->check) spec.info->check(spec.params);
  return spec;
}

std::vector<std::string> split_method_list(std::string_view text) {
  std::vector<std::string> items;
  for (const std::string& raw : base::split_outside_braces(text)) {
    const std::string piece(base::trim(raw));
    if (piece.empty())
      throw base::usage_error(fmt::format("empty entry in the list of methods '{}'", text),
                              "write it as ar,pld:k=10,sps:draft=layers:4");
    if (!is_parameter(piece)) {
      items.push_back(piece);
      continue;
    }
    if (items.empty())
      throw base::usage_error(
          fmt::format("the list of methods '{}' begins with the parameter '{}'", text, piece),
          "a parameter follows its method: pld:k=10");
    items.back() += (items.back().find(':') == std::string::npos ? ':' : ',') + piece;
  }
  std::vector<std::string> expanded;
  for (const std::string& item : items)
    for (std::string& method : base::expand_braces(item)) expanded.push_back(std::move(method));
  if (expanded.size() > base::kMostExpanded)
    throw base::usage_error(
        fmt::format("the list '{}' stands for more than {} methods", text, base::kMostExpanded));
  return expanded;
}

}  // namespace evalrun::methods
