#include "runners/score/score_export.h"

#include <charconv>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::runners {

namespace {

using Json = nlohmann::ordered_json;

std::string line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Their ids are numbers: those at the end of ours.
Json exported_id(const std::string& id) {
  const size_t at = id.find_last_not_of("0123456789") + 1;  // 0 when all are digits
  int64_t number = 0;
  const auto [end, error] = std::from_chars(id.data() + at, id.data() + id.size(), number);
  return at < id.size() && error == std::errc() ? Json(number) : Json(id);
}

std::string human_eval(const ExportRequest& request) {
  std::string out;
  for (size_t i = 0; i < request.generations.size(); ++i) {
    const evaluators::OutsideGeneration& generation = request.generations[i];
    if (generation.texts.size() != 1)
      throw base::usage_error(fmt::format("human-eval has no place for the {} answers of '{}'",
                                          generation.texts.size(), generation.id),
                              "--export spec-bench keeps all turns");
    Json row{{"task_id", evaluators::official_id(request.set->prompts[generation.prompt])},
             {"completion", generation.texts.front()}};
    if (!request.scores[i].empty()) {
      const results::ScoreRecord& score = request.scores[i].front();
      row["result"] = score.detail.empty() ? score.status : score.status + ": " + score.detail;
      if (score.value) row["passed"] = *score.value == 1;
    }
    out += line(row);
  }
  return out;
}

std::string spec_bench(const ExportRequest& request) {
  std::map<size_t, std::vector<const evaluators::OutsideGeneration*>> by_prompt;
  for (const evaluators::OutsideGeneration& generation : request.generations)
    by_prompt[generation.prompt].push_back(&generation);
  std::string out;
  for (const auto& [index, samples] : by_prompt) {
    const datasets::Prompt& prompt = request.set->prompts[index];
    Json choices = Json::array();
    std::string all = request.model_id + prompt.id;
    for (const evaluators::OutsideGeneration* generation : samples) {
      choices.push_back({{"index", generation->sample}, {"turns", generation->texts}});
      for (const std::string& text : generation->texts) all += '\0' + text;
    }
    // Theirs is random; ours is the same for the same answers.
    out += line({{"question_id", exported_id(prompt.id)},
                 {"category", prompt.category},
                 {"answer_id", base::sha256_hex(all).substr(0, 22)},
                 {"model_id", request.model_id},
                 {"choices", choices},
                 {"tstamp", request.unix_time}});
  }
  return out;
}

std::string filter_of(const evaluators::EvaluatorInfo& info) {
  if (info.name == "gsm8k_strict") return "strict-match";
  if (info.name == "gsm8k_flexible") return "flexible-extract";
  return info.id();
}

std::string lm_eval(const ExportRequest& request) {
  std::string out;
  for (size_t i = 0; i < request.generations.size(); ++i) {
    const evaluators::OutsideGeneration& generation = request.generations[i];
    const datasets::Prompt& prompt = request.set->prompts[generation.prompt];
    const std::string target = prompt.reference.value_or("");
    const Json doc{
        {"id", evaluators::official_id(prompt)}, {"turns", prompt.turns}, {"reference", target}};
    for (size_t e = 0; e < request.evaluators.size(); ++e) {
      const evaluators::EvaluatorInfo& info = request.evaluators[e]->info;
      const results::ScoreRecord& score = request.scores[i][e];
      const std::string metric = info.unit == "accuracy" ? "exact_match" : info.name;
      const std::string& filtered =
          score.extracted.empty() ? generation.texts.back() : score.extracted;
      Json row{{"doc_id", generation.prompt},
               {"doc", doc},
               {"target", target},
               {"arguments", Json::array({Json::array({prompt.turns.back(), Json::object()})})},
               {"resps", Json::array({Json::array({generation.texts.back()})})},
               {"filtered_resps", Json::array({filtered})},
               {"filter", filter_of(info)},
               {"metrics", score.value ? Json::array({metric}) : Json::array()},
               {"doc_hash", base::sha256_hex(line(doc))},
               {"prompt_hash", base::sha256_hex(prompt.turns.back())},
               {"target_hash", base::sha256_hex(target)}};
      if (score.value) row[metric] = *score.value;
      out += line(row);
    }
  }
  return out;
}

}  // namespace

std::string export_generations(const ExportRequest& request) {
  EVALRUN_CHECK(request.scores.size() == request.generations.size());
  if (request.format == ExportFormat::kHumanEval) return human_eval(request);
  if (request.format == ExportFormat::kSpecBench) return spec_bench(request);
  return lm_eval(request);
}

}  // namespace evalrun::runners
