// What evaluators share that compare the last answer with the prompt's reference.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "evaluators/evaluator.h"

namespace evalrun::evaluators {

// `compare` fills in value, extracted, facts, or a status of its own; it is called only when there
// are an answer and a reference ("no answer", "no reference" otherwise). Name and version of the
// score are those of `info`.
inline EvaluatorEntry compared_with_reference(
    EvaluatorInfo info,
    std::function<void(std::string_view answer, std::string_view reference, results::ScoreRecord&)>
        compare) {
  const auto score = [info, compare = std::move(compare)](const datasets::Prompt& prompt,
                                                          const std::vector<std::string>& texts,
                                                          const ScoringContext&) {
    results::ScoreRecord record;
    record.evaluator = info.name;
    record.version = info.version;
    if (!prompt.reference)
      record.status = "no reference";
    else if (texts.empty())
      record.status = "no answer";
    else
      compare(texts.back(), *prompt.reference, record);
    return record;
  };
  return {std::move(info), score};
}

}  // namespace evalrun::evaluators
