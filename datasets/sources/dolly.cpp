// Dolly-15K (Conover et al. 2023): instructions in 8 categories, written by people, some about a
// given text. Self-Draft (Gao et al. 2025) reports what a cache of other text does to PIA on it.
// The reference answer is one of many good ones and no measure of quality, so it is not read.
#include "datasets/json_lines.h"
#include "datasets/sets.h"

namespace evalrun::datasets {

DatasetEntry dolly() {
  DatasetInfo info;
  info.name = info.family = "dolly";
  info.summary = "Dolly-15K: instructions in 8 categories, speed only";
  info.source = "https://huggingface.co/datasets/databricks/databricks-dolly-15k";
  info.licence = "CC BY-SA 3.0";
  info.official_count = 15011;
  info.default_max_new = 512;
  info.files = {"dolly/databricks-dolly-15k.jsonl"};
  const auto row = [](const JsonLine& at, base::ObjectReader& reader) {
    Prompt prompt;
    prompt.id = fmt::format("dolly/{}", at.row);
    prompt.category = reader.required<std::string>("category");
    // The text comes behind, as a user would paste it.
    const auto instruction = reader.required<std::string>("instruction");
    const auto context = reader.required<std::string>("context");
    prompt.turns = {context.empty() ? instruction : instruction + "\n\n" + context};
    return prompt;
  };
  return {info, file_loader(info, [row](const DatasetSpec&) { return row; })};
}

}  // namespace evalrun::datasets
