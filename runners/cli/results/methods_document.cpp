#include "runners/cli/results/methods_document.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>

#include "methods/registration.h"

namespace evalrun::cli {
namespace {

using methods::MethodInfo;
using methods::ParamInfo;

constexpr const char* kIntroduction = R"(# Methods

<!-- Written by `evalrun list methods --markdown > docs/methods.md`; a test compares the two. -->

A method proposes tokens; one forward of the target checks them; what the target would have said
itself is kept, and one token of its own is added. The decode loop, the model, the clock and the stop
rule are the same for all methods, so that a difference between two rows of a table is a difference
between two methods.

A method is written `name` or `name:parameter=value,parameter=value`, on the command line
(`--methods`) as in a [suite](suites.md); parameters that are not named have their defaults. A
parameter may take several values, `name:parameter={2,4,8}` or `{2..8..2}`, which makes an arm of
each. Plain decoding is always measured, as the baseline.

Lossless modes: *greedy* means the same tokens as plain decoding at temperature 0. *sampling* means
the same tokens for the same seed at other temperatures, or the same distribution where drawn drafts
are put to a rejection test ([four rules](measurement.md#four-rules)). What a method needs and where
it departs from its source stands below; the reasons stand at the top of its file in `methods/`.
)";

// Text of a method in a paragraph or a cell. Its own `code` stays, and nothing else becomes markup.
std::string prose(const std::string& text) {
  std::string out;
  bool code = false;
  for (const char c : text) {
    if (c == '`') code = !code;
    if (c == '|' || (!code && (c == '<' || c == '*'))) out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

// "drafts a chain" -> "Drafts a chain."
std::string sentence(std::string text) {
  if (text.empty()) return text;
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text.back() == '.' ? text : text + '.';
}

const char* modes(methods::Lossless lossless) {
  switch (lossless) {
    case methods::Lossless::kNone:
      return "none";
    case methods::Lossless::kGreedy:
      return "greedy";
    case methods::Lossless::kBoth:
      return "greedy, sampling";
  }
  return "";
}

// GitHub's name of a heading made of the method's name alone.
std::string anchor(const std::string& name) {
  std::string out;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_')
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string values_of(const ParamInfo& p) {
  std::string range;
  if (p.bounds.least) range += fmt::format(" from {}", *p.bounds.least);
  if (p.bounds.most) range += fmt::format(" to {}", *p.bounds.most);
  switch (p.type) {
    case ParamInfo::Type::kInt:
      return "whole number" + range;
    case ParamInfo::Type::kNumber:
      return "number" + range;
    case ParamInfo::Type::kBool:
      return "`true`, `false`";
    case ParamInfo::Type::kText:
      return p.choices.empty() ? "text" : fmt::format("`{}`", fmt::join(p.choices, "`, `"));
  }
  return "";
}

std::string parameters_of(const MethodInfo& info) {
  if (info.params.empty()) return "No parameters.\n";
  std::string out = "| parameter | default | values | meaning |\n|---|---|---|---|\n";
  for (const ParamInfo& p : info.params)
    out += fmt::format("| `{}` | {} | {} | {} |\n", p.name,
                       p.default_value.empty() ? "" : fmt::format("`{}`", prose(p.default_value)),
                       prose(values_of(p)), prose(p.description));
  return out;
}

std::string section_of(const MethodInfo& info) {
  std::string out = fmt::format("\n## {}\n\n{}\n\n", info.name, sentence(prose(info.summary)));
  out += fmt::format("Source: {}. Lossless: {}. Needs: {}. Version {}.\n\n", prose(info.source),
                     modes(info.lossless), prose(info.needs), info.version);
  out += parameters_of(info);
  if (!info.notes.empty()) out += fmt::format("\n{}\n", prose(info.notes));
  return out;
}

}  // namespace

std::string methods_document() {
  std::string out = kIntroduction;
  out += "\n| method | idea | needs | lossless | source |\n|---|---|---|---|---|\n";
  const auto& all = methods::method_registry().entries();
  for (const auto& [name, info] : all)
    out += fmt::format("| [`{}`](#{}) | {} | {} | {} | {} |\n", name, anchor(name),
                       prose(info.summary), prose(info.needs), modes(info.lossless),
                       prose(info.source));
  for (const auto& [name, info] : all) out += section_of(info);
  return out;
}

}  // namespace evalrun::cli
