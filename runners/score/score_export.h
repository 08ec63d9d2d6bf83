// Generations and their scores as the files of other harnesses, one JSON object per line.
//
//   human-eval  samples.jsonl of openai/human-eval: {task_id, completion}, and {result, passed}
//               where an evaluator judged
//   spec-bench  model answers of Spec-Bench and FastChat, without their times: {question_id,
//               category, answer_id, model_id, choices: [{index, turns}], tstamp}; a choice is a
//               sample
//   lm-eval     samples_*.jsonl of lm-evaluation-harness 0.4.8, a line per generation and
//               evaluator: {doc_id, doc, target, arguments, resps, filtered_resps, filter, metrics,
//               hashes} and the metric; `filter` is its name there ("strict-match") or the
//               evaluator's id
#pragma once
#include <span>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "evaluators/evaluator.h"
#include "evaluators/generations_file.h"

namespace evalrun::runners {

enum class ExportFormat { kHumanEval, kSpecBench, kLmEval };

struct ExportRequest {
  ExportFormat format = ExportFormat::kHumanEval;
  const datasets::LoadedDataset* set = nullptr;
  std::span<const evaluators::OutsideGeneration> generations;
  std::vector<const evaluators::EvaluatorEntry*> evaluators;
  // [generations][evaluators]; the first evaluator's is human-eval's verdict.
  std::span<const std::vector<results::ScoreRecord>> scores;
  std::string model_id;
  double unix_time = 0;  // seconds, spec-bench's tstamp
};

// The whole file. Throws usage_error where the format cannot hold the generations.
std::string export_generations(const ExportRequest& request);

}  // namespace evalrun::runners
