#include "evaluators/text/rouge.h"

#include <fmt/format.h>

#include "evaluators/reference_score.h"

namespace evalrun::evaluators {

namespace {

EvaluatorEntry entry(
    std::string name, std::string version, std::string summary,
    std::function<RougeScore(std::string_view answer, std::string_view reference)> rouge) {
  EvaluatorInfo info;
  info.name = std::move(name);
  info.version = std::move(version);
  info.summary = std::move(summary);
  info.unit = "F, 0 to 1";
  info.similarity = true;
  return compared_with_reference(
      info, [rouge = std::move(rouge)](std::string_view answer, std::string_view reference,
                                       results::ScoreRecord& record) {
        const RougeScore result = rouge(answer, reference);
        record.status = result.status;
        if (result.status != "ok") return;
        record.value = result.f;
        record.facts =
            fmt::format(R"({{"precision":{},"recall":{}}})", result.precision, result.recall);
      });
}

EvaluatorEntry pltrdy(const char* name, const char* what, RougeKind kind) {
  return entry(name, "pltrdy-1.0.1", fmt::format("{}, by PyPI rouge (words as sets)", what),
               [kind](std::string_view answer, std::string_view reference) {
                 return rouge_pltrdy(kind, answer, reference);
               });
}

EvaluatorEntry google(const char* name, const char* what, RougeKind kind) {
  return entry(name, "rouge_score-0.1.2",
               fmt::format("{}, by Google's rouge-score (a-z and 0-9, no stemming)", what),
               [kind](std::string_view answer, std::string_view reference) {
                 return rouge_google(kind, answer, reference);
               });
}

}  // namespace

std::vector<EvaluatorEntry> rouge() {
  return {pltrdy("rouge1", "words in common", RougeKind::kRouge1),
          pltrdy("rouge2", "pairs of words in common", RougeKind::kRouge2),
          pltrdy("rougeL", "common subsequences of sentences, united", RougeKind::kRougeL),
          google("rouge1", "words in common", RougeKind::kRouge1),
          google("rouge2", "pairs of words in common", RougeKind::kRouge2),
          google("rougeL", "one common subsequence of the texts", RougeKind::kRougeL),
          google("rougeLsum", "common subsequences of lines, united", RougeKind::kRougeLsum)};
}

}  // namespace evalrun::evaluators
