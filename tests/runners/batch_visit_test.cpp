// Conversations in batches against a fake session and a clock that moves when it is told to: they
// give what they give alone, who fails fails alone, fillers and stop requests, what is in which
// time.
#include "runners/measure/batch_visit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <numeric>
#include <stdexcept>

#include "engine/base/error.h"
#include "engine/device_time.h"
#include "runners/measure/batch_calls.h"
#include "runners/plan/waves.h"
#include "tests/methods/support/drafters.h"
#include "tests/methods/support/fake_session.h"
#include "tests/runners/fakes.h"
#include "tests/temp_folder.h"

namespace evalrun::runners {
namespace {

using methods::BatchMode;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::UnorderedElementsAre;

constexpr int kContext = 96;
constexpr BatchMode kBothModes[] = {BatchMode::kStatic, BatchMode::kContinuous};

// Letters upwards, from one that depends on all before them; a stop token after 'y'.
void letters_from_sum(std::span<const int32_t> context, std::span<float> logits) {
  std::fill(logits.begin(), logits.end(), 0.0f);
  const int32_t last = context.back();
  const int32_t sum = std::accumulate(context.begin(), context.end(), 0);
  const int32_t next = last == 'y' ? 0 : last >= 'a' && last < 'y' ? last + 1 : 'a' + sum % 20;
  logits[static_cast<size_t>(next)] = 1.0f;
}

class BatchVisitTest : public ::testing::Test {
 protected:
  using Ended = std::pair<int, results::GenerationRecord>;

  BatchVisitTest() : conversation_(tokenizer_, &template_, "") {
    add_prompt({"one"}, 6);
    add_prompt({"second!", "and more"}, 9);
    add_prompt({"a third question"}, 4);
    add_prompt({"four", "five"}, 12);
    add_prompt({"the last of them"}, 20);
    plan_.prompts[4].prompt.stop.strings = {"gh", "qr", "kl"};
    PlannedArm arm;
    arm.record.label = "scripted";
    arm.build = [this] { return scripted(); };
    plan_.arms.push_back(std::move(arm));
  }
  void add_prompt(const std::vector<std::string>& turns, int max_new) {
    PlannedPrompt prompt;
    prompt.prompt.id = prompt.record.id = fmt::format("p{}", plan_.prompts.size());
    prompt.record.task = "set";
    prompt.prompt.turns = turns;
    prompt.max_new = max_new;
    plan_.prompts.push_back(std::move(prompt));
  }
  // Drafts one letter; told to, it throws in the middle of an answer to a prompt with '!'.
  std::unique_ptr<methods::DecodingMethod> scripted() {
    return methods::make_speculative_method(std::make_unique<tests::ScriptedDrafter>(
        [this](std::span<const int32_t> sequence, int max_depth, methods::TokenTree& tree) {
          if (on_draft_) on_draft_();
          if (std::count(sequence.begin(), sequence.end(), '!') > 0 && marked_++ == throw_at_)
            throw_();
          if (max_depth > 0 && sequence.back() >= 'a' && sequence.back() < 'y')
            tree.add(sequence.back() + 1, 0);
        }));
  }
  // Batches of `n` from now on.
  void use_slots(int n) {
    plan_.arms[0].record.batch = n;
    session_ = std::make_unique<tests::FakeSession>(256, kContext, letters_from_sum, n);
    arm_ = {&plan_.arms[0], session_.get(), {}};
    arm_.build();
    ended_.clear();
    calls_ = marked_ = 0;
  }
  // These prompts, the first `wanted` of them no fillers; in a continuous batch any number more.
  BatchCall call_of(BatchMode mode, const std::vector<int>& prompts, size_t wanted = 99) const {
    BatchCall call;
    call.mode = mode;
    for (size_t i = 0; i < prompts.size(); ++i)
      call.members.push_back({Visit{.prompt = prompts[i]}, i < wanted});
    if (mode == BatchMode::kContinuous)
      call.filler = [k = 0]() mutable { return Visit{.prompt = k++ % 5}; };
    return call;
  }
  bool decode(const BatchCall& call) {
    return decode_call(plan_, conversation_, clock_, arm_, call, [this] {
      BatchVisit::Hooks hooks;
      hooks.record = [number = ++calls_](const Visit& v) {
        results::GenerationRecord g;
        g.seed = static_cast<uint64_t>(v.prompt);
        g.batch_call = number;
        return g;
      };
      hooks.ended = [this](const Visit& v, results::GenerationRecord g) {
        ended_.emplace_back(v.prompt, std::move(g));
        if (on_ended_) on_ended_();
      };
      hooks.stop = stop_;
      return hooks;
    });
  }
  results::GenerationRecord alone(int prompt) {
    tests::FakeSession session(256, kContext, letters_from_sum);
    GenerationDecoder decoder(plan_, conversation_, clock_, nullptr);
    const auto method = scripted();
    results::GenerationRecord g;
    g.seed = static_cast<uint64_t>(prompt);
    decoder.converse(plan_.prompts[static_cast<size_t>(prompt)], session, *method, nullptr, g);
    return g;
  }
  void expect_as_alone(const Ended& ended) {
    const auto& [prompt, g] = ended;
    const results::GenerationRecord own = alone(prompt);
    EXPECT_EQ(g.status, "ok");
    EXPECT_EQ(g.texts, own.texts);
    ASSERT_EQ(g.turns.size(), own.turns.size());
    for (size_t t = 0; t < g.turns.size(); ++t) {
      EXPECT_EQ(g.turns[t].tokens, own.turns[t].tokens) << "prompt " << prompt;
      EXPECT_EQ(g.turns[t].stop, own.turns[t].stop);
      EXPECT_EQ(g.turns[t].steps.size(), own.turns[t].steps.size());
      EXPECT_EQ(g.turns[t].n_prompt_tokens, own.turns[t].n_prompt_tokens);
      EXPECT_FALSE(own.turns[t].batch);
      ASSERT_TRUE(g.turns[t].batch);
      EXPECT_EQ(g.turns[t].batch->steps.size(), g.turns[t].steps.size());
      EXPECT_EQ(g.turns[t].batch->slot, g.turns[0].batch->slot) << "a conversation stays";
    }
  }
  std::vector<int> ended_prompts() const {
    std::vector<int> prompts;
    for (const Ended& e : ended_) prompts.push_back(e.first);
    return prompts;
  }
  const results::GenerationRecord& generation_of(int prompt) const {
    for (const Ended& e : ended_)
      if (e.first == prompt) return e.second;
    throw std::runtime_error(fmt::format("prompt {} has not ended", prompt));
  }

  RunPlan plan_;
  tests::FakeClock clock_;
  std::unique_ptr<tests::FakeSession> session_;
  tests::ByteTokenizer tokenizer_;
  tests::LetterTemplate template_;
  Conversation conversation_;
  RunningArm arm_;
  int throw_at_ = -1, marked_ = 0;  // drafts for a prompt with '!'
  std::function<void()> throw_ = [] { throw std::runtime_error("scripted failure\nwith details"); };
  std::function<void()> on_draft_, on_ended_;
  std::function<bool()> stop_;
  int calls_ = 0;
  std::vector<Ended> ended_;
};

TEST_F(BatchVisitTest, EveryConversationGivesWhatItGivesAlone) {
  for (const int slots : {2, 3, 4}) {
    use_slots(slots);
    EXPECT_TRUE(decode(call_of(BatchMode::kContinuous, {0, 1, 2, 3, 4})));
    EXPECT_THAT(ended_prompts(), UnorderedElementsAre(0, 1, 2, 3, 4)) << "fillers are not";
    for (const Ended& e : ended_) expect_as_alone(e);
  }
  use_slots(3);
  EXPECT_TRUE(decode(call_of(BatchMode::kStatic, {0, 1, 2})));
  EXPECT_TRUE(decode(call_of(BatchMode::kStatic, {3, 4, 0}, 2)));
  EXPECT_THAT(ended_prompts(), UnorderedElementsAre(0, 1, 2, 3, 4)) << "fillers are not";
  for (const Ended& e : ended_) expect_as_alone(e);
  EXPECT_EQ(generation_of(3).batch_call, 2);
  EXPECT_EQ(generation_of(4).turns[0].stop, results::StopReason::kStopString);
}

TEST_F(BatchVisitTest, TheSecondTurnKeepsThePromptOfTheFirst) {
  use_slots(2);
  plan_.prompts[0].prompt.turns = {"one", "two"};
  decode(call_of(BatchMode::kStatic, {0, 3}));
  // "U:one A:" is 8 tokens, the last one goes through the decode path. Then "U:one A:" stays, and
  // "...... U:two A:" is prefilled, of which the last again does not count.
  const auto second = static_cast<size_t>(generation_of(0).turns[1].n_prompt_tokens);
  EXPECT_EQ(second, 8 + generation_of(0).texts[0].size() + 1 + 8);
  EXPECT_THAT(session_->prefills, ElementsAre(7, 8, static_cast<int>(second) - 8 - 1,
                                              generation_of(3).turns[1].n_prompt_tokens - 9 - 1));
}

TEST_F(BatchVisitTest, ABatchThatIsFullOfFillersEndsWithTheLastThatIsWanted) {
  for (const BatchMode mode : kBothModes) {
    use_slots(2);
    plan_.prompts[0].max_new = 2;
    int drafts = 0;
    on_draft_ = [&] { ++drafts; };
    decode(call_of(mode, {0, 3}, 1));
    EXPECT_THAT(ended_prompts(), ElementsAre(0));
    EXPECT_EQ(drafts, 1) << "one step, in which only the filler had room for a draft";
    on_draft_ = {};
  }
}

TEST_F(BatchVisitTest, AContinuousBatchIsFullUntilTheEnd) {
  use_slots(3);
  decode(call_of(BatchMode::kContinuous, {0, 1, 2, 3, 4}));
  int steps = 0;
  for (const Ended& e : ended_)
    for (const results::TurnRecord& turn : e.second.turns)
      for (const results::BatchStepRecord& step : turn.batch->steps) {
        ++steps;
        EXPECT_GE(step.members, 2) << "at most one slot is between two turns";
      }
  EXPECT_GT(steps, 20);
}

// A prompt that does not fit is refused by itself, in the first turn and in a later one.
TEST_F(BatchVisitTest, WhoIsRefusedFailsAlone) {
  plan_.prompts[0].prompt.turns = {std::string(kContext, 'x')};
  plan_.prompts[3].prompt.turns[1] = std::string(kContext - 8, 'x');
  for (const BatchMode mode : kBothModes) {
    use_slots(2);
    for (const std::vector<int>& prompts : {std::vector<int>{0, 1}, {3, 2}}) {
      EXPECT_TRUE(decode(call_of(mode, prompts)));
      const int refused = prompts[0], other = prompts[1];
      EXPECT_THAT(generation_of(refused).status, HasSubstr("failed: the prompt has "));
      EXPECT_TRUE(generation_of(refused).turns.empty());
      EXPECT_TRUE(generation_of(refused).texts.empty());
      expect_as_alone({other, generation_of(other)});
    }
  }
}

TEST_F(BatchVisitTest, AnAnswerThatFillsItsContextEnds) {
  plan_.prompts[0].prompt.turns = {std::string(kContext - 10, 'x')};
  plan_.prompts[0].max_new = 30;
  for (const BatchMode mode : kBothModes) {
    use_slots(2);
    EXPECT_TRUE(decode(call_of(mode, {0, 1})));
    EXPECT_EQ(generation_of(0).turns[0].stop, results::StopReason::kContextFull);
    for (const Ended& e : ended_) expect_as_alone(e);
  }
}

TEST_F(BatchVisitTest, AStepThatThrowsFailsThoseUnderWayAndTheRestGoesOn) {
  use_slots(2);
  throw_at_ = 1;
  EXPECT_TRUE(decode(call_of(BatchMode::kContinuous, {0, 1, 2, 3, 4})));
  EXPECT_EQ(calls_, 2);
  std::map<int, std::string> statuses;
  for (const Ended& e : ended_) statuses[e.first] = e.second.status;
  EXPECT_EQ(statuses, (std::map<int, std::string>{{0, "failed: scripted failure"},
                                                  {1, "failed: scripted failure"},
                                                  {2, "ok"},
                                                  {3, "ok"},
                                                  {4, "ok"}}));
  EXPECT_EQ(ended_.size(), 5u);
  EXPECT_TRUE(generation_of(0).turns.empty()) << "no half-measured numbers";
  throw_at_ = -1;
  for (const int prompt : {2, 3, 4}) {
    expect_as_alone({prompt, generation_of(prompt)});
    EXPECT_EQ(generation_of(prompt).batch_call, 2);
  }
}

TEST_F(BatchVisitTest, WhatHasEndedBeforeAStepThrowsIsKept) {
  use_slots(2);
  throw_at_ = 3;
  plan_.prompts[2].max_new = 2;
  EXPECT_TRUE(decode(call_of(BatchMode::kStatic, {1, 2})));
  EXPECT_EQ(calls_, 1) << "nothing is left for another";
  EXPECT_EQ(generation_of(2).status, "ok");
  EXPECT_EQ(generation_of(1).status, "failed: scripted failure");
}

TEST_F(BatchVisitTest, ADeviceFaultIsNobodysFailure) {
  use_slots(2);
  throw_at_ = 1;
  throw_ = [] { throw base::DeviceFault("cuda:0", "an illegal memory access", "the forward"); };
  EXPECT_THROW(decode(call_of(BatchMode::kContinuous, {0, 1, 2})), base::DeviceFault);
  EXPECT_TRUE(ended_.empty());
}

TEST_F(BatchVisitTest, WhatTakingAGenerationThrowsEndsTheCall) {
  for (const BatchMode mode : kBothModes) {
    use_slots(4);
    on_ended_ = [this] {
      if (ended_.size() == 2) throw std::runtime_error("disk full");
    };
    EXPECT_THROW(decode(call_of(mode, {0, 1, 2, 3})), std::runtime_error);
    EXPECT_EQ(ended_.size(), 2u) << "those under way are not failures";
    for (const Ended& e : ended_) EXPECT_EQ(e.second.status, "ok");
  }
}

TEST_F(BatchVisitTest, AStopRequestAbandonsWhatHasNotEnded) {
  for (const BatchMode mode : kBothModes) {
    use_slots(2);
    stop_ = [this] { return !ended_.empty(); };
    EXPECT_FALSE(decode(call_of(mode, {2, 3})));
    EXPECT_THAT(ended_prompts(), ElementsAre(2));
    expect_as_alone(ended_[0]);
    stop_ = [] { return true; };
    EXPECT_FALSE(decode(call_of(mode, {2, 3})));
    EXPECT_EQ(ended_.size(), 1u);
  }
}

// Storing and scoring wait outside of all times.
TEST_F(BatchVisitTest, TakingAGenerationIsInNoTime) {
  constexpr int64_t kDraft = 1000, kTaking = 1'000'000'000;
  for (const BatchMode mode : kBothModes) {
    use_slots(3);
    on_draft_ = [this] { clock_.now += kDraft; };
    on_ended_ = [this] { clock_.now += kTaking; };
    decode(call_of(mode, {0, 1, 2, 3, 4}, mode == BatchMode::kStatic ? 3 : 5));
    for (const auto& [prompt, g] : ended_) {
      EXPECT_THAT(g.total_ns, Lt(kTaking));
      EXPECT_THAT(g.total_ns, Gt(0));
      for (const results::TurnRecord& turn : g.turns) {
        EXPECT_THAT(turn.decode_ns, Lt(kTaking));
        EXPECT_THAT(turn.batch->wall_ns, Lt(kTaking));
        EXPECT_THAT(turn.batch->first_token_ns, Lt(kTaking));
      }
    }
  }
}

TEST_F(BatchVisitTest, SharesOfAllAddUpToTheStepsOfTheCall) {
  use_slots(3);
  on_draft_ = [this] { clock_.now += 1001; };  // not divisible
  decode(call_of(BatchMode::kStatic, {0, 2, 4}));
  std::map<int, int64_t> steps;
  int64_t shares = 0;
  for (const auto& [prompt, g] : ended_)
    for (const results::TurnRecord& turn : g.turns) {
      shares += turn.decode_ns;
      for (const results::BatchStepRecord& step : turn.batch->steps) steps[step.number] = step.ns;
    }
  int64_t whole = 0;
  for (const auto& [number, ns] : steps) whole += ns;
  EXPECT_GT(whole, 0);
  EXPECT_EQ(shares, whole);
}

// A counter that follows the clock: one joule a microsecond. So a generation has a millijoule for
// each nanosecond of its share.
TEST_F(BatchVisitTest, EnergyIsSharedLikeTime) {
  const tests::TempFolder folder;
  std::filesystem::create_directories(folder.file("intel-rapl:0"));
  folder.write("intel-rapl:0/name", "package-0\n");
  folder.write("intel-rapl:0/max_energy_range_uj", "1000000000000\n");
  const int64_t begin = clock_.now;
  const auto count = [&] {
    folder.write("intel-rapl:0/energy_uj", std::to_string(1000 * (clock_.now - begin)) + "\n");
  };
  count();
  ::setenv("EVALRUN_POWERCAP", folder.path().c_str(), 1);
  use_slots(2);
  on_draft_ = [&] {
    clock_.now += 1000;
    count();
  };
  decode(call_of(BatchMode::kStatic, {0, 4}));
  ::unsetenv("EVALRUN_POWERCAP");
  double energy = 0;
  for (const auto& [prompt, g] : ended_) {
    if (!g.clock) GTEST_SKIP() << "the kernel has no counters here";
    ASSERT_TRUE(g.clock->energy_mj);
    EXPECT_NEAR(static_cast<double>(*g.clock->energy_mj), static_cast<double>(g.turns[0].decode_ns),
                1);
    energy += static_cast<double>(*g.clock->energy_mj);
  }
  EXPECT_NEAR(energy, static_cast<double>(clock_.now - begin), 2) << "nothing twice";
}

// A forward without its graph is of all that are under way.
TEST_F(BatchVisitTest, AGraphThatWasMissedCountsOnce) {
  for (const BatchMode mode : kBothModes) {
    use_slots(3);
    session_->set_time_device();
    int64_t misses = 0;
    on_draft_ = [&misses] { ++misses, ++engine::device_time().graph_misses; };
    const std::vector<int> prompts =
        mode == BatchMode::kStatic ? std::vector{0, 2, 4} : std::vector{0, 1, 2, 3, 4};
    decode(call_of(mode, prompts));
    int64_t stored = 0;
    for (const auto& [prompt, g] : ended_) {
      ASSERT_TRUE(g.gpu && g.gpu->busy) << prompt;
      stored += g.gpu->busy->graph_misses;
    }
    EXPECT_EQ(ended_.size(), prompts.size());
    EXPECT_GT(misses, 3);
    EXPECT_EQ(stored, misses);
    on_draft_ = {};
  }
}

class PendingCalls : public ::testing::Test {
 protected:
  explicit PendingCalls() {
    for (int i = 0; i < 6; ++i) {
      PlannedPrompt prompt;
      prompt.record.task = "set";
      plan_.prompts.push_back(std::move(prompt));
    }
    plan_.arms.resize(1);
    plan_.arms[0].record.batch = 4;
    plan_.waves = {{0, 1, 2, 3}, {4, 5}};
  }
  // Of the second repeat: blocks 2 and 3.
  std::vector<BatchCall> calls(int block, const std::vector<int>& pending) {
    visits_.clear();
    for (const int prompt : pending)
      visits_.push_back({.repeat = 1, .prompt = prompt, .block = block, .slot = 7});
    std::vector<const Visit*> pointers;
    for (const Visit& v : visits_) pointers.push_back(&v);
    return pending_calls(plan_, pointers);
  }
  // "0 1w 2 3w": prompts, those wanted marked.
  static std::string members(const BatchCall& call) {
    std::string text;
    for (const BatchMember& m : call.members)
      text += fmt::format("{}{}{}", text.empty() ? "" : " ", m.visit.prompt, m.wanted ? "w" : "");
    return text;
  }
  RunPlan plan_;
  std::vector<Visit> visits_;
};

TEST_F(PendingCalls, OfWhichSomethingIsMissingAreWhole) {
  const auto first = calls(2, {1, 3});
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(members(first[0]), "0 1w 2 3w") << "what is stored plays a filler";
  EXPECT_EQ(first[0].members[0].visit.repeat, 1);
  EXPECT_EQ(first[0].members[0].visit.slot, 7);
  EXPECT_FALSE(first[0].filler);
  const auto last = calls(3, {4, 5});
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(members(last[0]), "4w 5w 0 1");
  plan_.arms[0].record.batch = 2;
  const auto halves = calls(2, {2});
  ASSERT_EQ(halves.size(), 1u) << "nothing is missing of the other";
  EXPECT_EQ(members(halves[0]), "2w 3");
}

TEST_F(PendingCalls, OfAContinuousBatchAreWavesWithFillersForEver) {
  plan_.suite.batches.mode = methods::BatchMode::kContinuous;
  plan_.arms[0].record.batch = 2;
  const auto whole = calls(2, {0, 1, 2, 3});
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(members(whole[0]), "0w 1w 2w 3w");
  plan_.arms[0].record.batch = 4;
  const auto rest = calls(3, {5});
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(members(rest[0]), "4 5w 0 1");
  ASSERT_TRUE(rest[0].filler);
  for (const int next : {2, 3, 4, 5, 0}) EXPECT_EQ(rest[0].filler().prompt, next);
}

}  // namespace
}  // namespace evalrun::runners
