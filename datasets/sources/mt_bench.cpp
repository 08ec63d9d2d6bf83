// MT-Bench (Zheng et al. 2023): 80 questions of two turns in 8 categories. The second turn is asked
// after the model's own first answer. Only the questions are read; judging is another matter.
#include "datasets/json_lines.h"
#include "datasets/sets.h"

namespace evalrun::datasets {

DatasetEntry mt_bench() {
  DatasetInfo info;
  info.name = info.family = "mt_bench";
  info.summary = "two-turn chat questions in 8 categories";
  info.source = "https://github.com/lm-sys/FastChat (fastchat/llm_judge/data/mt_bench)";
  info.licence = "Apache-2.0";
  info.official_count = 80;
  info.default_max_new = 1024;  // per turn, as FastChat generates
  info.files = {"mt_bench/question.jsonl"};
  const auto row = [](const JsonLine&, base::ObjectReader& reader) {
    Prompt prompt;
    prompt.id = fmt::format("mt_bench/{}", reader.required<int>("question_id"));
    prompt.group = "/" + prompt.id;  // Spec-Bench has it, too
    prompt.category = reader.required<std::string>("category");
    prompt.turns = reader.required<std::vector<std::string>>("turns");
    return prompt;
  };
  return {info, file_loader(info, [row](const DatasetSpec&) { return row; })};
}

}  // namespace evalrun::datasets
