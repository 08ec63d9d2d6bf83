// The text form of methods, `name:key=value,key=value`.
#include <algorithm>

#include "engine/base/braces.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "methods/registration.h"

namespace evalrun::methods {
namespace {

// "key=value" without a colon before the equals sign: parameters, not a method.
bool is_parameter(std::string_view piece) {
  const size_t equals = piece.find('=');
  return equals != std::string_view::npos && piece.substr(0, equals).find(':') == piece.npos;
}

}  // namespace

std::string MethodSpec::canonical() const {
  const std::string parameters = params.canonical();
  return parameters.empty() ? info->name : fmt::format("{}:{}", info->name, parameters);
}

std::string MethodSpec::label() const {
  const std::string parameters = params.changed(info->params);
  return parameters.empty() ? info->name : fmt::format("{}:{}", info->name, parameters);
}

StepReproducibility MethodSpec::steps() const {
  StepReproducibility steps = StepReproducibility::kFixed;
  for (const ParamInfo& parameter : info->params)
    if (const std::string& value = params.text(parameter.name);
        value == parameter.steps_at.value || value == parameter.steps_at.other)
      steps = std::max(steps, parameter.steps_at.steps);
  return info->steps_with ? std::max(steps, info->steps_with(params)) : steps;
}

Lossless MethodSpec::lossless() const {
  return info->lossless_with ? info->lossless_with(params) : info->lossless;
}

bool MethodSpec::takes_draft_model() const {
  return info->takes_draft_with ? info->takes_draft_with(params) : info->takes_draft_model;
}

SampledAnswers MethodSpec::sampled(const engine::SamplingParams& sampling) const {
  return info->sampled ? info->sampled(params, sampling) : SampledAnswers::kSameTokens;
}

MethodSpec parse_method(std::string_view text) {
  text = base::trim(text);
  const size_t colon = text.find(':');
  const std::string name(base::trim(text.substr(0, colon)));
  if (name == kChosenMethod)
    throw base::usage_error(
        "'auto' stands for the method that `evalrun tune method` chose for a model, a machine and "
        "data sets; only `evalrun run` and `evalrun verify` know all three",
        "name the method, which `evalrun tune method` has printed");
  MethodSpec spec;
  spec.info = &method_registry().get(name);
  spec.params = MethodParams(spec.info->params, {}, {name});
  if (colon != std::string_view::npos) {
    const auto given = base::split_options(
        text.substr(colon + 1), {name},
        fmt::format("a method is written name:key=value,key=value, for example {}",
                    spec.canonical()));
    spec.params = MethodParams(spec.info->params, given, {name});
  }
  if (spec.info->spelled) spec.params = spec.info->spelled(spec.params);
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
