// What `replay` needs in a run: the text every arm is made to follow, and how near to a tie plain
// decoding was where an arm would have left it.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/session.h"
#include "results/store.h"
#include "runners/measure/known_answers.h"
#include "runners/plan/conversation.h"
#include "runners/plan/plan.h"

namespace evalrun::runners {

class ReplayPaths {
 public:
  // Rows of `store` in the order of the plan's arms and prompts. All must outlive the object.
  ReplayPaths(const RunPlan& plan, const results::ResultStore& store,
              const std::vector<int64_t>& arm_ids, const std::vector<int64_t>& prompt_ids)
      : plan_(plan), store_(store), arm_ids_(arm_ids), prompt_ids_(prompt_ids) {}

  // Plain decoding's answers to a prompt by the model of an arm. They come from the store when an
  // arm of that model has been measured there (it was made to follow them, plain decoding as well),
  // so that a resumed run follows the same text; else from `decode`, once.
  const Answers& of(int arm, int prompt, const std::function<Answers()>& decode);

  // Fills in the gaps of a finished generation's divergences. Computes in `session`, the arm's.
  void add_gaps(int arm, int prompt, const Conversation& conversation, engine::Session& session,
                results::GenerationRecord& g);

 private:
  using Place = std::tuple<const engine::Model*, int, size_t, int, int32_t>;

  std::optional<Answers> stored(int arm, int prompt) const;

  const RunPlan& plan_;
  const results::ResultStore& store_;
  const std::vector<int64_t>&arm_ids_, &prompt_ids_;
  std::map<std::pair<const engine::Model*, int>, Answers> answers_;  // by model and prompt
  // Gap and spacing by model, prompt, turn, index and token: repeats ask again.
  std::map<Place, std::pair<double, double>> gaps_;
};

}  // namespace evalrun::runners
