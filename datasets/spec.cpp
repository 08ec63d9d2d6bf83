#include "datasets/spec.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::datasets {

namespace {

using base::usage_error;

constexpr const char* kForm = "a data set is written name[part,part]:key=value,key=value";

std::vector<std::string> trimmed_pieces(std::string_view text) {
  std::vector<std::string> pieces;
  for (const std::string& piece : base::split(text, ',')) pieces.emplace_back(base::trim(piece));
  return pieces;
}

// Chosen parts in the set's order; all of them are none, so that both spellings mean the same.
std::vector<std::string> read_parts(std::string_view text, const DatasetInfo& info) {
  const std::vector<std::string> given = trimmed_pieces(text);
  for (const std::string& part : given)
    if (std::find(info.parts.begin(), info.parts.end(), part) == info.parts.end())
      throw usage_error(fmt::format("{}: unknown part '{}'", info.name, part),
                        info.parts.empty() ? fmt::format("{} has no parts", info.name)
                                           : base::suggest(part, info.parts));
  std::vector<std::string> parts;
  for (const std::string& part : info.parts)
    if (const auto n = std::count(given.begin(), given.end(), part); n > 1)
      throw usage_error(fmt::format("{}: part '{}' is named twice", info.name, part));
    else if (n == 1)
      parts.push_back(part);
  return parts.size() == info.parts.size() ? std::vector<std::string>{} : parts;
}

std::string spell(const DatasetSpec& spec, const DatasetInfo& info) {
  std::string text = spec.name;
  if (!spec.parts.empty()) text += fmt::format("[{}]", fmt::join(spec.parts, ","));
  const std::string options = spec.options.changed(info.options);
  return options.empty() ? text : fmt::format("{}:{}", text, options);
}

// Continues the entry before it: "shots=5" after "gsm8k:prompt=lm-eval".
bool is_option(std::string_view piece) {
  const size_t equals = piece.find('=');
  return equals != std::string_view::npos &&
         piece.substr(0, equals).find_first_of(":[") == piece.npos;
}

// "prompts.jsonl": nothing else ends so, and people leave "jsonl:" out.
bool is_bare_file(std::string_view text) {
  return !text.starts_with(kJsonlPrefix) && text.ends_with(".jsonl");
}

}  // namespace

DatasetSpec parse_dataset_spec(std::string_view text, const DatasetEntry** entry) {
  text = base::trim(text);
  DatasetSpec spec;
  const size_t name_end = std::min(text.find_first_of("[:"), text.size());
  spec.name = base::trim(text.substr(0, name_end));
  const DatasetEntry& found = dataset_registry().get(spec.name);
  if (entry != nullptr) *entry = &found;
  const base::OptionOwner owner{spec.name, "option"};
  std::map<std::string, std::string> given;
  std::string_view rest = text.substr(name_end);
  if (rest.starts_with('[')) {
    const size_t close = rest.find(']');
    if (close == std::string_view::npos)
      throw usage_error(fmt::format("{}: '[' without ']' in '{}'", spec.name, text), kForm);
    spec.parts = read_parts(rest.substr(1, close - 1), found.info);
    rest = base::trim(rest.substr(close + 1));
  }
  if (!rest.empty()) {
    if (rest.front() != ':')
      throw usage_error(fmt::format("{}: expected ':' before '{}'", spec.name, rest), kForm);
    given = base::split_options(rest.substr(1), owner, kForm);
  }
  spec.options = base::OptionValues(found.info.options, given, owner);
  spec.text = spell(spec, found.info);
  return spec;
}

std::string checked_dataset_spec(std::string_view text) {
  if (is_bare_file(text)) return std::string(kJsonlPrefix) + std::string(text);
  if (!text.starts_with(kJsonlPrefix)) return parse_dataset_spec(text).text;
  if (text.size() == kJsonlPrefix.size())
    throw usage_error("'jsonl:' needs a file", "write jsonl:FILE, e.g. jsonl:prompts.jsonl");
  return std::string(text);
}

std::vector<std::string> split_dataset_list(std::string_view text) {
  const std::vector<std::string> pieces = base::split(text, ',');
  std::vector<std::string> items;
  for (size_t i = 0; i < pieces.size(); ++i) {
    std::string piece(base::trim(pieces[i]));
    if (is_bare_file(piece)) piece.insert(0, kJsonlPrefix);
    if (piece.starts_with(kJsonlPrefix)) {
      std::string longest = piece, joined = piece;
      size_t end = i;
      for (size_t j = i + 1; j < pieces.size(); ++j) {
        joined += ',' + pieces[j];
        std::error_code ignored;
        if (std::filesystem::exists(joined.substr(kJsonlPrefix.size()), ignored)) {
          longest = joined;
          end = j;
        }
      }
      items.push_back(longest);
      i = end;
      continue;
    }
    const bool open = !items.empty() && !items.back().starts_with(kJsonlPrefix) &&
                      items.back().find('[') != std::string::npos &&
                      items.back().find(']') == std::string::npos;
    const bool more = !items.empty() && items.back().find(':') != std::string::npos &&
                      !items.back().starts_with(kJsonlPrefix) && is_option(piece);
    if (open || more)
      items.back() += ',' + piece;
    else
      items.push_back(piece);
  }
  return items;
}

}  // namespace evalrun::datasets
