// A run in batches, small enough to be worked out by hand, for the tests of what reports say of it.
#pragma once
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tests/reports/report_fixture.h"

namespace evalrun::reports {

inline constexpr int64_t kMs = 1'000'000;

// Four prompts of 5, 5, 5 and 3 tokens. Plain decoding takes 10 ms a step alone and 12 ms for two;
// "pld" emits two tokens a step of three rows, in 11 ms alone and 30 ms for two. Static batches of
// two: prompts 0 and 1, then 2 and 3. Prefill takes 50 ms a prompt.
class BatchRun : public ReportTest {
 protected:
  struct Step {
    int members = 2;
    int64_t ms = 0;
  };

  int64_t fill(bool with_batches = true) {
    results::RunRecord r;
    r.key = with_batches ? "batches" : "alone";
    r.suite_json = "{}";
    r.started = "2026-01-02T03:04:05Z";
    const int64_t run = store_.add_run(r);
    arms_.clear();
    for (const int batch : {1, 2}) {
      if (batch > 1 && !with_batches) break;
      for (const bool drafts : {false, true}) arms_[{drafts, batch}] = add_arm(run, drafts, batch);
    }
    for (int p = 0; p < 4; ++p) {
      const int64_t prompt = store_.add_prompt(run, tests::prompt_record("gsm8k", p));
      for (const auto& [arm, id] : arms_)
        store_.add_generation(run, id, prompt, generation(arm.first, arm.second, p), {});
    }
    store_.finish_run(run);
    return run;
  }

  int64_t add_arm(int64_t run, bool drafts, int batch) {
    tests::SyntheticArm arm = tests::usual_arms()[drafts ? 2 : 0];
    if (batch > 1) arm.label += ", batch 2", arm.settings["batch_mode"] = "static";
    results::ArmRecord record = tests::arm_record(run_, arm);
    record.batch = batch;
    record.kv_bytes = 1'000'000 * batch;
    return store_.add_arm(run, record);
  }

  // What the steps of prompt p were, at this batch.
  static std::vector<Step> steps_of(bool drafts, int batch, int p) {
    const Step alone{1, drafts ? 11 : 10}, together{2, drafts ? 30 : 12};
    const size_t n = (p == 3 ? 2u : 4u) / (drafts ? 2 : 1);
    std::vector<Step> steps(n, batch == 1 ? alone : together);
    // Prompt 3 ends first.
    if (batch == 2 && p == 2)
      for (size_t i = n / 2; i < n; ++i) steps[i] = alone;
    return steps;
  }

  static results::GenerationRecord generation(bool drafts, int batch, int p) {
    results::GenerationRecord g;
    g.started = "2026-01-02T03:04:05Z";
    g.texts = {"text"};
    results::TurnRecord t;
    t.prefill_ns = 50 * kMs;
    t.n_prompt_tokens = 10;
    const int emitted = drafts ? 2 : 1, rows = drafts ? 3 : 1;
    results::BatchTurnRecord in_batch{.slot = p % 2, .first_token_ns = 100 * kMs, .steps = {}};
    t.tokens = {7};
    for (const Step& step : steps_of(drafts, batch, p)) {
      results::StepRecord s;
      s.rows = rows, s.emitted = emitted, s.accepted = emitted - 1;
      s.drafted = s.drafted_depth = rows - 1;
      s.verify_ns = step.ms * kMs / step.members;
      t.decode_ns += s.verify_ns;
      in_batch.wall_ns += step.ms * kMs;
      in_batch.steps.push_back({.number = static_cast<int32_t>(t.steps.size()),
                                .members = step.members,
                                .rows = rows * step.members,
                                .emitted = emitted * step.members,
                                .ns = step.ms * kMs,
                                .gap_ns = step.ms * kMs});
      t.steps.push_back(s);
      for (int i = 0; i < emitted; ++i)
        t.tokens.push_back(100 * p + static_cast<int32_t>(t.tokens.size()));
    }
    if (batch > 1) t.batch = in_batch, g.batch_call = 1 + p / 2;
    g.total_ns = t.prefill_ns + t.decode_ns;
    g.turns = {t};
    return g;
  }

  std::map<std::pair<bool, int>, int64_t> arms_;
};

}  // namespace evalrun::reports
