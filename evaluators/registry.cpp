// The list of evaluators.
#include "evaluators/evaluator.h"
#include "evaluators/gsm8k.h"

namespace evalrun::evaluators {

const base::Registry<EvaluatorEntry>& evaluator_registry() {
  static const base::Registry<EvaluatorEntry> kRegistry = [] {
    base::Registry<EvaluatorEntry> registry("evaluator");
    for (EvaluatorEntry& entry : std::vector<EvaluatorEntry>{gsm8k_strict(), gsm8k_flexible()}) {
      const std::string name = entry.info.name;
      registry.add(name, std::move(entry));
    }
    return registry;
  }();
  return kRegistry;
}

}  // namespace evalrun::evaluators
