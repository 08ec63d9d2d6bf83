// What a method without training drafts in its first step, for texts that are checked by hand.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "methods/step.h"
#include "tests/methods/support/fake_session.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests {

// A chain of tokens below 10. The first root is 9, and the target takes 9 after everything. The
// rows that the session sees tell the draft.
class FirstDraft {
 public:
  Tokens of(const std::string& spec, const Tokens& prompt, const Tokens& stop_ids = {},
            int max_new = 40) {
    seen_.clear();
    FakeSession session(10, 100, [this](std::span<const int32_t> context, std::span<float> logits) {
      std::fill(logits.begin(), logits.end(), 0.0f);
      logits[9] = 1;
      seen_.emplace_back(context.begin(), context.end());
    });
    const methods::MethodSpec method = methods::parse_method(spec);
    methods::MethodBuildContext build;
    build.target = small_model(1, 10);
    const auto drafts = method.info->build(method.params, build);
    base::SteadyClock clock;
    session.prefill(prompt, 0);
    methods::GenerationContext context;
    context.target = &session;
    context.prompt = prompt;
    context.first_token = 9;
    context.max_new = max_new;
    context.stop_ids = stop_ids;
    drafts->start(context);
    methods::PhaseTimer timer(clock);
    methods::run_alone(*drafts, session, timer);
    // The last row of a chain sees the whole draft after the root.
    return {seen_.back().begin() + static_cast<std::ptrdiff_t>(prompt.size()) + 1,
            seen_.back().end()};
  }

 private:
  std::vector<Tokens> seen_;
};

}  // namespace evalrun::tests
