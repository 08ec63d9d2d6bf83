// Batches of every registered method: each sequence gives the tokens, and takes the steps, that it
// gives and takes alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "methods/faults.h"
#include "methods/replay.h"
#include "methods/step.h"
#include "methods/wrapped_method.h"
#include "tests/methods/support/cheap_draws.h"
#include "tests/methods/support/harness.h"
#include "tests/sample.h"

namespace evalrun::tests {
namespace {

using methods::BatchMode;
using results::TurnRecord;

constexpr int kSmallVocab = 12;  // so small that n-grams recur and stop tokens are drafted
constexpr int kCapacity = 300;   // a prompt of several pieces fits, some answers do not

// Prompts of one token to more than a piece; some end early, some at a stop token, one where its
// sequence is full.
std::vector<Turn> requests(const engine::SamplingParams& sampling, uint64_t seed) {
  base::Rng rng(seed);
  std::vector<Turn> turns;
  for (const int length : {5, 1, 17, kCapacity - 10, 2, 9, 40, 270, 3, 12, 30}) {
    Turn turn{random_tokens(rng, length, kSmallVocab)};
    const int period = 2 + static_cast<int>(rng.below(5));  // text that repeats is drafted from
    for (int i = period; i < length; ++i)
      turn.prompt[static_cast<size_t>(i)] = turn.prompt[static_cast<size_t>(i - period)];
    turn.max_new = length == kCapacity - 10 ? 40 : 1 + static_cast<int>(rng.below(24));
    if (turns.size() % 3 == 2) turn.stop_ids = {7};
    turn.sampling = sampling;
    turn.seed = rng.next();
    turns.push_back(turn);
  }
  return turns;
}

std::string text(const Tokens& tokens) {
  std::string out;
  for (const int32_t t : tokens) out += std::to_string(t) + " ";
  return out;
}

// What differs first; empty = nothing does.
std::string difference(const TurnRecord& got, const TurnRecord& want, bool steps) {
  if (got.tokens != want.tokens) return text(got.tokens) + "instead of " + text(want.tokens);
  if (got.stop != want.stop) return "another stop";
  if (got.n_prompt_tokens != want.n_prompt_tokens) return "another prompt";
  if (!steps) return "";
  if (got.steps.size() != want.steps.size())
    return fmt::format("{} steps instead of {}", got.steps.size(), want.steps.size());
  for (size_t i = 0; i < got.steps.size(); ++i) {
    const auto counts = [](const results::StepRecord& s) {
      return std::vector<int>{s.rows,    s.drafted,  s.drafted_depth,
                              s.emitted, s.accepted, s.target_forwards};
    };
    if (counts(got.steps[i]) != counts(want.steps[i])) return fmt::format("step {}", i);
  }
  return got.nodes == want.nodes ? "" : "other nodes were tested";
}

std::unique_ptr<engine::Session> session_for(const std::shared_ptr<const engine::Model>& model,
                                             int sequences, bool cheap_draws) {
  auto session = make_session(model, kCapacity, sequences);
  if (cheap_draws) return std::make_unique<CheapDraws>(std::move(session));
  return session;
}

class EveryBatch : public testing::TestWithParam<Arm> {
 protected:
  std::vector<std::unique_ptr<methods::DecodingMethod>> slots(int n) const {
    return methods::make_slots(build_arm(GetParam(), model_, kCapacity, n), n);
  }
  std::vector<TurnRecord> alone(const std::vector<Turn>& turns, bool cheap_draws) const {
    const auto method = build_arm(GetParam(), model_, kCapacity);
    const auto session = session_for(model_, 1, cheap_draws);
    std::vector<TurnRecord> records;
    for (const Turn& turn : turns) {
      session->reset();
      records.push_back(run(*method, *session, turn));
    }
    return records;
  }
  void expect_as_alone(const engine::SamplingParams& sampling, bool cheap_draws) const {
    const auto turns = requests(sampling, 5);
    const auto want = alone(turns, cheap_draws);
    for (const int n : tests::sample({1, 3, 8}, 1)) {
      const auto batch = slots(n);
      const auto session = session_for(model_, n, cheap_draws);
      for (const BatchMode mode : {BatchMode::kStatic, BatchMode::kContinuous}) {
        const auto got = run_batch(batch, *session, turns, mode);
        for (size_t i = 0; i < turns.size(); ++i)
          EXPECT_EQ(difference(got[i], want[i], !GetParam().carries_state), "")
              << "request " << i << " of a batch of " << n
              << (mode == BatchMode::kStatic ? ", static" : ", continuous");
      }
    }
  }
  const std::shared_ptr<const engine::Model> model_ = small_model(5, kSmallVocab);
};

TEST_P(EveryBatch, GivesGreedyTokensOfSingleDecoding) { expect_as_alone({}, false); }

TEST_P(EveryBatch, GivesSampledTokensOfSingleDecodingSeedForSeed) {
  // Steps that depend on earlier answers take other random numbers, and so tokens where drafts are
  // rejected by them.
  for (const engine::SamplingParams& way :
       tests::sample({engine::SamplingParams{0.9, 8, 0.95},
                      engine::SamplingParams{1.0, 0, 1, engine::Sampler::kGumbel}},
                     1)) {
    const engine::SamplingParams sampling = sampling_for(GetParam(), way);
    if (!GetParam().carries_state || gives_the_same_tokens(GetParam(), sampling))
      expect_as_alone(sampling, false);
  }
}

// As on a device: distributions stay in one store, and drafts are tried in the target's forward.
TEST_P(EveryBatch, KeepsDistributionsOfSlotsApart) {
  const engine::SamplingParams sampling = sampling_for(GetParam(), {0.9, 8, 0.95});
  if (!GetParam().carries_state || gives_the_same_tokens(GetParam(), sampling))
    expect_as_alone(sampling, true);
}

// Keys and values in each sequence are those of plain decoding of its text.
TEST_P(EveryBatch, LeavesTheCacheOfSingleDecoding) {
  constexpr int kSlots = 3;
  const auto batch = slots(kSlots);
  const auto session = make_session(model_, kCapacity, kSlots);
  std::vector<Turn> turns = requests({}, 6);
  turns.resize(kSlots);
  const auto got = run_batch(batch, *session, turns, BatchMode::kStatic);
  const auto width = static_cast<size_t>(model_->config().kv_dim());
  std::vector<float> k(width), v(width), want_k(width), want_v(width);
  for (int s = 0; s < kSlots; ++s) {
    const auto at = static_cast<size_t>(s);
    Tokens all = turns[at].prompt;
    all.insert(all.end(), got[at].tokens.begin(), got[at].tokens.end());
    const int n = std::min(session->length(s), static_cast<int>(all.size()));
    ASSERT_GE(n, static_cast<int>(turns[at].prompt.size()));
    const auto plain = make_session(model_, kCapacity);
    plain->prefill(std::span<const int32_t>(all).first(static_cast<size_t>(n)));
    for (int layer = 0; layer < model_->config().n_layers; ++layer)
      for (int position = 0; position < n; ++position) {
        session->read_kv(layer, position, s, k, v);
        plain->read_kv(layer, position, 0, want_k, want_v);
        ASSERT_TRUE(k == want_k && v == want_v) << "sequence " << s << ", position " << position;
      }
  }
}

// Counts how often a group runs; one for all slots.
class CountedGroup final : public methods::DraftGroup {
 public:
  methods::DraftGroup* of(methods::DraftGroup* group) {
    group_ = group;
    return group == nullptr ? nullptr : this;
  }
  int room() const override { return group_->room(); }
  void begin() override { group_->begin(); }
  void run() override {
    ++runs;
    group_->run();
  }
  int runs = 0;

 private:
  methods::DraftGroup* group_ = nullptr;
};

// Notes how many runs each step took.
class Counted final : public methods::WrappedMethod {
 public:
  Counted(std::unique_ptr<methods::DecodingMethod> method, std::shared_ptr<CountedGroup> group,
          std::vector<int>& steps)
      : WrappedMethod(std::move(method)), group_(std::move(group)), steps_(steps) {}
  std::unique_ptr<methods::DecodingMethod> another(int slot) const override {
    return std::make_unique<Counted>(another_wrapped(slot), group_, steps_);
  }
  methods::DraftGroup* group() override { return group_->of(WrappedMethod::group()); }
  void after_step(methods::PhaseTimer& timer) override {
    steps_.push_back(std::exchange(group_->runs, 0));
    WrappedMethod::after_step(timer);
  }

 private:
  std::shared_ptr<CountedGroup> group_;
  std::vector<int>& steps_;
};

// Forwards of drafters in a step of a batch are those of the longest draft, not of all drafts.
TEST_P(EveryBatch, DraftsTogether) {
  if (GetParam().carries_state) return;
  std::vector<Turn> turns = requests({}, 7);
  turns.resize(3);
  for (Turn& turn : turns) {
    turn.max_new = 12 + static_cast<int>(turn.prompt.size());
    turn.stop_ids = {};
  }
  std::vector<int> longest;
  const auto counted = [&](int n, std::vector<int>& steps) {
    return methods::make_slots(
        std::make_unique<Counted>(build_arm(GetParam(), model_, kCapacity, n),
                                  std::make_shared<CountedGroup>(), steps),
        n);
  };
  int64_t all = 0;
  for (const Turn& turn : turns) {
    std::vector<int> steps;
    const auto method = counted(1, steps);
    run(*method[0], *make_session(model_, kCapacity), turn);
    longest.resize(std::max(longest.size(), steps.size()));
    for (size_t i = 0; i < steps.size(); ++i) {
      longest[i] = std::max(longest[i], steps[i]);
      all += steps[i];
    }
  }
  std::vector<int> steps;
  const auto batch = counted(3, steps);
  run_batch(batch, *make_session(model_, kCapacity, 3), turns, BatchMode::kStatic);
  EXPECT_EQ(steps, longest);
  int64_t together = 0;
  for (const int n : steps) together += n;
  if (all > 30) {
    EXPECT_LT(together, all) << "there is nothing to share";
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryBatch, testing::ValuesIn(all_arms()),
                         [](const auto& arm) { return test_name(arm.param.name); });

// Those that all_arms() leaves out.
TEST(OtherBatches, GiveTheTokensOfSingleDecoding) {
  const auto model = small_model(5, kSmallVocab);
  for (const char* spec : {"pad", "pad:init=vocabulary,n=7", "ar_tuned:adapter=@space_tuned"}) {
    const Arm arm = arm_of(spec);
    const auto turns = requests({}, 5);
    const auto slots = methods::make_slots(build_arm(arm, model, kCapacity, 3), 3);
    const auto session = make_session(model, kCapacity, 3), single = make_session(model, kCapacity);
    const auto got = run_batch(slots, *session, turns, BatchMode::kContinuous);
    const auto method = build_arm(arm, model, kCapacity);
    for (size_t i = 0; i < turns.size(); ++i)
      EXPECT_EQ(difference(got[i], run(*method, *single, turns[i]), true), "") << spec << i;
  }
}

// More rows than one forward takes: 8 drafts of 255 nodes.
TEST(LargeBatches, AreVerifiedInSeveralForwards) {
  const auto model = small_model(5, kSmallVocab);
  const std::string spec = "pld:k=64,ngram=1,match=recent,candidates=4";
  const Arm arm = arm_of(spec);
  std::vector<Turn> turns;
  base::Rng rng(3);
  for (int i = 0; i < 8; ++i) {
    // Whatever comes first but the last of the vocabulary has been there, and is followed by 64.
    std::vector<int32_t> prompt = random_tokens(rng, 120, kSmallVocab - 1);
    prompt.resize(prompt.size() + 64, kSmallVocab - 1);
    turns.push_back({prompt});
    turns.back().max_new = 100;
  }
  const auto slots = methods::make_slots(build_arm(arm, model, 600, 8), 8);
  const auto session = make_session(model, 600, 8), single = make_session(model, 600);
  const auto got = run_batch(slots, *session, turns, BatchMode::kStatic);
  const auto method = build_arm(arm, model, 600);
  int rows = 0;  // of the first step
  for (size_t i = 0; i < turns.size(); ++i) {
    EXPECT_EQ(difference(got[i], run(*method, *single, turns[i]), true), "") << i;
    rows += got[i].steps.front().rows;
  }
  EXPECT_GT(rows, engine::kMaxRows) << "one forward would have done";
}

// Drafts of more slots than a forward of the drafter takes come in turns: EAGLE-2 with 330 rows of
// each.
TEST(LargeBatches, DraftInTurnsWhereTheyDoNotFit) {
  const auto model = small_model(5, kSmallVocab);
  const Arm arm = arm_of("eagle2:adapter=@eagle,k=11,levels=31,total=20");
  std::vector<Turn> turns = requests({}, 8);
  turns.resize(7);
  const auto slots = methods::make_slots(build_arm(arm, model, kCapacity, 7), 7);
  ASSERT_EQ(slots[0]->group()->room(), 3);
  const auto session = make_session(model, kCapacity, 7), single = make_session(model, kCapacity);
  const auto got = run_batch(slots, *session, turns, BatchMode::kStatic);
  const auto method = build_arm(arm, model, kCapacity);
  for (size_t i = 0; i < turns.size(); ++i)
    EXPECT_EQ(difference(got[i], run(*method, *single, turns[i]), true), "") << i;
}

// Weights once, caches for all slots.
TEST(Slots, CountSharedWeightsOnceAndAllCaches) {
  const auto model = small_model(1);
  for (const char* spec :
       {"medusa:adapter=@medusa", "eagle:adapter=@eagle", "bita:adapter=@bita",
        "pass:adapter=@pass", "sps:draft=trained,adapter=@draft", "falcon:adapter=@falcon"}) {
    const auto one = build_arm(arm_of(spec), model), four = build_arm(arm_of(spec), model, 256, 4);
    EXPECT_GT(one->extra_parameter_bytes(), 0u) << spec;
    EXPECT_EQ(four->extra_parameter_bytes(), one->extra_parameter_bytes()) << spec;
    EXPECT_EQ(four->another(3)->extra_parameter_bytes(), one->extra_parameter_bytes()) << spec;
    EXPECT_EQ(four->extra_kv_bytes() > one->extra_kv_bytes(), one->extra_kv_bytes() > 0) << spec;
    EXPECT_LE(four->extra_kv_bytes(), 4 * one->extra_kv_bytes()) << spec;
    EXPECT_EQ(four->another(1)->extra_kv_bytes(), four->extra_kv_bytes()) << spec;
  }
  const auto sps = build_arm(arm_of("sps:draft=layers:1"), model, 256, 2);
  EXPECT_THROW(sps->another(2), base::InternalError) << "built for two";
}

// Each slot's method follows a text of its own.
TEST(Slots, CanBeReplayedOneByOne) {
  const auto model = small_model(5, kSmallVocab);
  std::vector<Turn> turns = requests({}, 9);
  turns.resize(3);
  for (Turn& turn : turns) {
    turn.max_new = 12;
    turn.stop_ids = {};
  }
  base::Rng rng(4);
  const std::vector<Tokens> texts = {random_tokens(rng, 12, kSmallVocab),
                                     random_tokens(rng, 12, kSmallVocab),
                                     random_tokens(rng, 12, kSmallVocab)};
  const auto single = make_session(model, kCapacity);
  const auto ar = build_method("ar", model, kCapacity);
  std::vector<Tokens> references;
  for (size_t i = 0; i < 3; ++i) {  // the prefill's token is the target's own
    references.push_back(texts[i]);
    references.back()[0] = run(*ar, *single, turns[i]).tokens[0];
  }
  const auto slots =
      methods::make_slots(build_arm(arm_of("sps:draft=layers:1,k=3"), model, kCapacity, 3), 3);
  const methods::Replay first(*slots[0], references[0]), second(*slots[1], references[1]),
      third(*slots[2], references[2]);
  const auto session = make_session(model, kCapacity, 3);
  const auto got = run_batch(slots, *session, turns, BatchMode::kStatic);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(got[i].tokens, references[i]) << i;
  EXPECT_GT(first.trace().disagreements.size(), 3u) << "random texts are not the target's";
}

TEST(Slots, HaveThePlantedFaultsOfTheFirst) {
  const auto model = small_model(5, kSmallVocab);
  std::vector<Turn> turns = requests({}, 10);
  turns.resize(3);
  for (Turn& turn : turns) turn.max_new = 40, turn.stop_ids = {};
  const auto single = make_session(model, kCapacity);
  const auto ar = build_method("ar", model, kCapacity);
  for (const char* fault : {"wrong-accept", "miscount"}) {
    auto faulty = methods::plant_fault(build_arm(arm_of("pld"), model, kCapacity, 3), fault);
    const auto slots = methods::make_slots(std::move(faulty), 3);
    const auto session = make_session(model, kCapacity, 3);
    const auto got = run_batch(slots, *session, turns, BatchMode::kStatic);
    for (size_t i = 0; i < 3; ++i) {
      const bool same = got[i].tokens == run(*ar, *single, turns[i]).tokens;
      int64_t accepted = 0, emitted = 0;
      for (const auto& step : got[i].steps) accepted += step.accepted + 1, emitted += step.emitted;
      EXPECT_EQ(same, std::string(fault) == "miscount") << fault << i;
      EXPECT_EQ(accepted > emitted, std::string(fault) == "miscount") << fault << i;
    }
  }
}

// What a wrong slice or a wrong merge would do. Planted between the step and the session, so that
// the test above is known to see them.
class Disturbed final : public engine::WrappedSession {
 public:
  enum class Fault { kNone, kSliceOneOff, kParentsNotMoved };
  Disturbed(std::unique_ptr<engine::Session> session, Fault fault)
      : WrappedSession(std::move(session)), fault_(fault) {}

  engine::ForwardResult forward(const engine::ForwardRequest& given) override {
    engine::ForwardRequest request = given;
    rows_.assign(given.rows.begin(), given.rows.end());
    std::map<int32_t, int32_t> first;  // of each sequence
    for (size_t i = 0; i < rows_.size(); ++i)
      first.emplace(rows_[i].sequence, static_cast<int32_t>(i));
    if (fault_ == Fault::kParentsNotMoved)
      for (engine::Row& row : rows_)
        if (row.parent >= 0) row.parent -= first.at(row.sequence);
    request.rows = rows_;
    engine::ForwardResult result = WrappedSession::forward(request);
    if (fault_ != Fault::kSliceOneOff) return result;
    // Every part but the first begins a row too early.
    top_.assign(result.top.begin(), result.top.end());
    for (size_t i = 0; i < rows_.size(); ++i)
      if (rows_[i].sequence != rows_[0].sequence) top_[i] = result.top[i - 1];
    result.top = top_;
    return result;
  }

 private:
  const Fault fault_;
  std::vector<engine::Row> rows_;
  std::vector<int32_t> top_;
};

TEST(BatchControl, AWrongSliceAndAWrongMergeAreSeen) {
  const auto model = small_model(5, kSmallVocab);
  const auto turns = requests({}, 5);
  const auto single = make_session(model, kCapacity);
  using Fault = Disturbed::Fault;
  for (const char* spec : {"ar", "pld:k=4", "medusa:adapter=@medusa,tree=0+00+1"}) {
    const auto method = build_method(spec, model, kCapacity);
    std::vector<TurnRecord> want;
    for (const Turn& turn : turns) want.push_back(run(*method, *single, turn));
    const auto found = [&](Fault fault) {
      Disturbed session(make_session(model, kCapacity, 3), fault);
      const auto slots = methods::make_slots(build_arm(arm_of(spec), model, kCapacity, 3), 3);
      try {
        const auto got = run_batch(slots, session, turns, BatchMode::kContinuous);
        for (size_t i = 0; i < turns.size(); ++i)
          if (!difference(got[i], want[i], true).empty()) return true;
      } catch (const base::InternalError&) {
        return true;
      }
      return false;
    };
    EXPECT_FALSE(found(Fault::kNone)) << spec;
    EXPECT_TRUE(found(Fault::kSliceOneOff)) << spec;
    // Plain decoding has no rows with parents.
    EXPECT_EQ(found(Fault::kParentsNotMoved), std::string(spec) != "ar") << spec;
  }
}

}  // namespace
}  // namespace evalrun::tests
