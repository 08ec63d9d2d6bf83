#include "evaluators/by_model.h"

#include <string>
#include <utility>

namespace evalrun::evaluators {
namespace {

EvaluatorEntry model_entry(std::string name, std::string summary, std::string unit) {
  EvaluatorEntry entry;
  entry.info.name = std::move(name);
  entry.info.version = "evalrun";
  entry.info.summary = std::move(summary);
  entry.info.unit = std::move(unit);
  entry.info.higher_is_better = false;
  entry.info.needs_reference = entry.info.name == "reference_nll";
  entry.info.by_model = true;
  return entry;
}

}  // namespace

std::vector<EvaluatorEntry> by_model() {
  return {model_entry("answer_nll",
                      "-ln p of the answer's tokens by the run's own target; perplexity is its exp",
                      "nats a token"),
          model_entry("reference_nll",
                      "the same of the data set's reference, by the model that the arm decodes",
                      "nats a token"),
          model_entry("surprise",
                      "-ln p less entropy by the distribution that the arm is to draw from: 0 on "
                      "average where it does",
                      "nats an answer"),
          model_entry("rare_tokens",
                      "tokens of p < 0.001 there, less the number to be expected: 0 on average",
                      "tokens an answer")};
}

}  // namespace evalrun::evaluators
