#include "evaluators/generations_file.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "datasets/json_lines.h"

namespace evalrun::evaluators {

namespace {

std::string read_id(base::ObjectReader& reader) {
  const nlohmann::json* id = reader.raw("id");
  if (id == nullptr) reader.fail("id", "is missing", "it names the prompt that the text answers");
  if (id->is_number_integer()) return id->dump();
  return reader.required<std::string>("id");
}

std::vector<std::string> read_texts(base::ObjectReader& reader, const datasets::Prompt& prompt) {
  const nlohmann::json* text = reader.raw("text");
  if (text == nullptr) reader.fail("text", "is missing", "an empty answer is \"\"");
  std::vector<std::string> texts;
  if (text->is_array())
    texts = reader.required<std::vector<std::string>>("text");
  else
    texts.push_back(reader.required<std::string>("text"));
  if (texts.size() != prompt.turns.size())
    reader.fail(
        "text",
        fmt::format("has {} answers, the prompt has {} turns", texts.size(), prompt.turns.size()),
        "give a list with one answer per turn");
  return texts;
}

}  // namespace

std::string official_id(const datasets::Prompt& prompt) {
  return prompt.code != nullptr && !prompt.code->task.empty() ? prompt.code->task : prompt.id;
}

PromptNames::PromptNames(const datasets::LoadedDataset& set) {
  // A name that two prompts could mean is nobody's; our own ids are unique and go first.
  std::set<std::string> ambiguous;
  for (size_t i = 0; i < set.prompts.size(); ++i) index_.emplace(set.prompts[i].id, i);
  const auto add = [&](const std::string& name, size_t prompt) {
    const auto [it, is_new] = index_.emplace(name, prompt);
    if (!is_new && it->second != prompt && set.prompts[it->second].id != name)
      ambiguous.insert(name);
  };
  const std::string prefix = set.info.family + "/";
  for (size_t i = 0; i < set.prompts.size(); ++i) {
    const datasets::Prompt& prompt = set.prompts[i];
    add(official_id(prompt), i);
    if (prompt.id.starts_with(prefix)) add(prompt.id.substr(prefix.size()), i);
  }
  for (const std::string& name : ambiguous) index_.erase(name);
}

size_t PromptNames::find(const std::string& name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? npos : it->second;
}

GenerationsFile read_generations(std::string_view text, const std::string& file,
                                 const datasets::LoadedDataset& set) {
  const PromptNames names(set);
  GenerationsFile read;
  std::set<std::pair<size_t, int64_t>> seen;
  datasets::for_each_json_record(
      text, file,
      [&](const datasets::JsonLine&, base::ObjectReader& reader) {
        OutsideGeneration generation;
        generation.id = read_id(reader);
        generation.prompt = names.find(generation.id);
        if (generation.prompt == PromptNames::npos)
          reader.fail("id", fmt::format("'{}' is no prompt of {}", generation.id, set.info.name),
                      set.prompts.empty()
                          ? ""
                          : fmt::format("its first is '{}'", official_id(set.prompts.front())));
        generation.sample = reader.optional<int64_t>("sample", 0);
        if (generation.sample < 0) reader.fail("sample", "is below 0");
        generation.texts = read_texts(reader, set.prompts[generation.prompt]);
        if (!seen.emplace(generation.prompt, generation.sample).second)
          reader.fail(
              "id",
              fmt::format("'{}' was there before with sample {}", generation.id, generation.sample),
              "number the answers to one prompt with sample 0, 1, ...");
        read.generations.push_back(std::move(generation));
      },
      [&](const base::Error& error) { read.problems.push_back(error.what()); });
  return read;
}

}  // namespace evalrun::evaluators
