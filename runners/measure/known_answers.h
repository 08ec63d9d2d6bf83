// Plain decoding's answers, for methods that are to know them (MethodInfo::needs_answer).
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "results/store.h"
#include "runners/plan/plan.h"

namespace evalrun::runners {

// Token ids of an answer, turn by turn.
using Answers = std::vector<std::vector<int32_t>>;

class KnownAnswers {
 public:
  // Rows of `store` in the order of the plan's arms and prompts. All must outlive the object.
  KnownAnswers(const RunPlan& plan, const results::ResultStore& store,
               const std::vector<int64_t>& arm_ids, const std::vector<int64_t>& prompt_ids)
      : plan_(plan), store_(store), arm_ids_(arm_ids), prompt_ids_(prompt_ids) {}

  // To a prompt, in one sample, by the model of an arm. From the store where plain decoding of the
  // arm's batch has been measured there, else from `decode`, once. Stays as long as the object.
  const Answers& of(int arm, int prompt, int sample, const std::function<Answers()>& decode);
  // What of() gave; null before it was asked.
  const Answers* find(int arm, int prompt, int sample) const;

 private:
  using Place = std::tuple<const engine::Model*, int, int>;  // prompt, sample

  Place place(int arm, int prompt, int sample) const {
    return {plan_.arms[static_cast<size_t>(arm)].model.get(), prompt, sample};
  }
  std::optional<Answers> stored(int arm, int prompt, int sample) const;

  const RunPlan& plan_;
  const results::ResultStore& store_;
  const std::vector<int64_t>&arm_ids_, &prompt_ids_;
  std::map<Place, Answers> answers_;
};

}  // namespace evalrun::runners
