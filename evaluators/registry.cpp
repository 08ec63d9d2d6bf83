// The list of evaluators.
#include <fmt/ranges.h>

#include "engine/base/error.h"
#include "evaluators/by_model.h"
#include "evaluators/evaluator.h"
#include "evaluators/gsm8k.h"
#include "evaluators/programs/pass.h"
#include "evaluators/text/bleu.h"
#include "evaluators/text/rouge.h"
#include "evaluators/text/style.h"

namespace evalrun::evaluators {

const base::Registry<EvaluatorEntry>& evaluator_registry() {
  static const base::Registry<EvaluatorEntry> kRegistry = [] {
    base::Registry<EvaluatorEntry> registry("evaluator");
    const auto add = [&](EvaluatorEntry entry) {
      const std::string id = entry.info.id();
      registry.add(id, std::move(entry));
    };
    add(gsm8k_strict());
    add(gsm8k_flexible());
    add(gsm8k_decimal());
    for (EvaluatorEntry& entry : rouge()) add(std::move(entry));
    add(bleu());
    for (EvaluatorEntry& entry : style()) add(std::move(entry));
    for (EvaluatorEntry& entry : by_model()) add(std::move(entry));
    add(pass_evalrun());
    add(pass_codegeex());
    add(pass_bigcode());
    return registry;
  }();
  return kRegistry;
}

const EvaluatorEntry& find_evaluator(const std::string& text) {
  const base::Registry<EvaluatorEntry>& registry = evaluator_registry();
  std::vector<std::string> conventions;
  for (const auto& [id, entry] : registry.entries())
    if (entry.info.name == text) conventions.push_back(id);
  if (conventions.size() == 1) return registry.get(conventions[0]);
  if (conventions.size() > 1)
    throw base::usage_error(fmt::format("evaluator {} has several conventions", text),
                            fmt::format("choose one of {}", fmt::join(conventions, ", ")));
  return registry.get(text);
}

}  // namespace evalrun::evaluators
