// Spec-Bench (Xia et al. 2024): 80 questions of each of six tasks. The task is chosen as a part and
// is the category; the eight categories of MT-Bench are one task here. Made from other sets:
// mt_bench is MT-Bench, math_reasoning is from the GSM8K test split.
#include <algorithm>

#include "datasets/json_lines.h"
#include "datasets/sets.h"
#include "datasets/sources/gsm8k_group.h"

namespace evalrun::datasets {

namespace {

constexpr int kPerTask = 80;
const std::vector<std::string> kTasks = {"mt_bench", "translation",    "summarization",
                                         "qa",       "math_reasoning", "rag"};

RowReader spec_bench_rows(const DatasetSpec& spec) {
  return [spec](const JsonLine&, base::ObjectReader& reader) -> std::optional<Prompt> {
    const auto category = reader.required<std::string>("category");
    const bool own = std::find(kTasks.begin(), kTasks.end(), category) != kTasks.end();
    const std::string task = own ? category : "mt_bench";
    if (!spec.wants(task)) return std::nullopt;
    Prompt prompt;
    const int number = reader.required<int>("question_id");
    prompt.id = fmt::format("spec_bench/{}", number);
    prompt.category = task;
    prompt.turns = reader.required<std::vector<std::string>>("turns");
    // As those sets name them.
    if (task == "mt_bench") prompt.group = fmt::format("/mt_bench/{}", number);
    if (task == "math_reasoning" && !prompt.turns.empty())
      prompt.group = gsm8k_group(prompt.turns.front());
    // Two answers of MT-Bench and lists of short answers (rag) are no single reference.
    const nlohmann::json* reference = reader.raw("reference");
    if (own && reference != nullptr && reference->is_array() && reference->size() == 1 &&
        reference->front().is_string())
      prompt.reference = reference->front().get<std::string>();
    return prompt;
  };
}

}  // namespace

DatasetEntry spec_bench() {
  DatasetInfo info;
  info.name = info.family = "spec_bench";
  info.summary = "six tasks: conversation, translation, summaries, questions, maths, retrieval";
  info.source = "https://github.com/hemingkx/Spec-Bench (data/spec_bench)";
  info.licence = "Apache-2.0; its parts have their own (MT-Bench, WMT14, CNN/DailyMail, NQ, GSM8K)";
  info.official_count = kPerTask * static_cast<int>(kTasks.size());
  info.default_max_new = 1024;  // as its scripts generate
  info.parts = kTasks;
  info.files = {"spec_bench/question.jsonl"};
  return {info, [info](const std::string& root, const DatasetSpec& spec) {
            DatasetInfo part = info;
            if (!spec.parts.empty())
              part.official_count = kPerTask * static_cast<int>(spec.parts.size());
            return load_one_file(part, spec, find_data_file(info, root, info.files),
                                 spec_bench_rows(spec));
          }};
}

}  // namespace evalrun::datasets
