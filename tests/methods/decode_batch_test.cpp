// The loop over a batch: who is decoded when, what is handed over, what is asked of the session,
// and how times are told.
#include "methods/decode_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <stdexcept>

#include "engine/base/error.h"
#include "methods/faults.h"
#include "tests/methods/support/drafters.h"
#include "tests/methods/support/fake_session.h"
#include "tests/methods/support/harness.h"
#include "tests/methods/support/text_tokens.h"

namespace evalrun::tests::decode_batch_test {
namespace {

using methods::BatchMode;
using methods::BatchPart;
using methods::BatchStep;
using methods::TokenTree;
using results::StopReason;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr int kVocab = 50;

// Greedy text counts upwards: after t comes (t + 1) % 50.
LogitTable counting_up() {
  return [](std::span<const int32_t> context, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    logits[static_cast<size_t>((context.back() + 1) % kVocab)] = 1;
  };
}

// Slots of a method that drafts the next k numbers, which are right.
std::vector<std::unique_ptr<methods::DecodingMethod>> counting_slots(int k, int n) {
  return methods::make_slots(
      methods::make_speculative_method(std::make_unique<ScriptedDrafter>(
          [k](std::span<const int32_t> sequence, int max_depth, TokenTree& tree) {
            int node = 0;
            for (int i = 0; i < std::min(k, max_depth); ++i)
              node = tree.add((sequence.back() + 1 + i) % kVocab, node);
          })),
      n);
}

// A list of turns, and a diary of what became of them.
class Diary : public methods::BatchSource {
 public:
  explicit Diary(std::vector<Turn> turns) : turns_(std::move(turns)), records(turns_.size()) {
    for (const Turn& turn : turns_) requests_.push_back(request_of(turn));
    list_.emplace(requests_, [this](size_t request, results::TurnRecord record) {
      records[request] = std::move(record);
      done_requests.push_back(static_cast<int>(request));
    });
  }
  const methods::TurnRequest* next(int slot) override { return list_->next(slot); }
  void done(int slot, results::TurnRecord turn) override { list_->done(slot, std::move(turn)); }
  void before_step() override {
    if (static_cast<int>(members.size()) == throw_at) throw std::runtime_error("interrupted");
  }
  void stepped(const BatchStep& step) override {
    std::vector<int> who;
    int sum = 0, rows = 0;
    for (const BatchPart& part : step.parts) {
      who.push_back(static_cast<int>(list_->request_of(part.slot)));
      slots_seen.push_back(part.slot);
      sum += part.emitted;
      rows += part.rows;
    }
    EXPECT_EQ(step.emitted, sum);
    EXPECT_EQ(step.rows, rows);
    members.push_back(who);
    steps.push_back(step);
    steps.back().parts = {};
  }
  int throw_at = -1;
  std::vector<int> done_requests;
  std::vector<std::vector<int>> members;  // requests of each step
  std::vector<int> slots_seen;
  std::vector<BatchStep> steps;

 private:
  std::vector<Turn> turns_;
  std::vector<methods::TurnRequest> requests_;
  std::optional<methods::RequestList> list_;

 public:
  std::vector<results::TurnRecord> records;
};

void decode(const std::vector<std::unique_ptr<methods::DecodingMethod>>& slots,
            engine::Session& session, methods::BatchSource& source, BatchMode mode,
            base::Clock* clock = nullptr) {
  std::vector<methods::DecodingMethod*> objects;
  for (const auto& slot : slots) objects.push_back(slot.get());
  base::SteadyClock steady;
  methods::decode_batch(objects, session, source, mode, clock == nullptr ? steady : *clock);
}

// Tokens 2, 5, 3 and 4: without drafts as many steps less one.
std::vector<Turn> four_turns() {
  return {{{1}, 0, 2}, {{10, 11}, 0, 5}, {{20}, 0, 3}, {{30, 31, 32}, 0, 4}};
}

TEST(StaticBatch, ShrinksAsItsSequencesEndThenTheNextStarts) {
  FakeSession session(kVocab, 64, counting_up(), 3);
  Diary diary(four_turns());
  decode(counting_slots(0, 3), session, diary, BatchMode::kStatic);
  EXPECT_THAT(diary.members,
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(1, 2), ElementsAre(1), ElementsAre(1),
                          ElementsAre(3), ElementsAre(3), ElementsAre(3)));
  EXPECT_THAT(diary.done_requests, ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(diary.records[0].tokens, ElementsAre(2, 3));
  EXPECT_THAT(diary.records[1].tokens, ElementsAre(12, 13, 14, 15, 16));
  EXPECT_THAT(diary.records[2].tokens, ElementsAre(21, 22, 23));
  EXPECT_THAT(diary.records[3].tokens, ElementsAre(33, 34, 35, 36));
  // A forward for the last tokens of the prompts of each batch, one a step.
  EXPECT_EQ(session.forwards, 2 + 7);
}

TEST(ContinuousBatch, AFreeSlotTakesTheNextRequestAtTheNextStep) {
  FakeSession session(kVocab, 64, counting_up(), 3);
  Diary diary(four_turns());
  decode(counting_slots(0, 3), session, diary, BatchMode::kContinuous);
  // Request 3 has the slot of request 0.
  EXPECT_THAT(diary.members, ElementsAre(ElementsAre(0, 1, 2), ElementsAre(1, 2, 3),
                                         ElementsAre(1, 3), ElementsAre(1, 3)));
  EXPECT_THAT(diary.slots_seen, ElementsAre(0, 1, 2, 1, 2, 0, 1, 0, 1, 0));
  EXPECT_THAT(diary.done_requests, ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(diary.records[3].tokens, ElementsAre(33, 34, 35, 36));
}

TEST(Batches, MayHaveMoreSlotsThanRequests) {
  for (const BatchMode mode : {BatchMode::kStatic, BatchMode::kContinuous}) {
    FakeSession session(kVocab, 64, counting_up(), 8);
    Diary diary(four_turns());
    decode(counting_slots(2, 8), session, diary, mode);
    EXPECT_EQ(diary.members[0].size(), 4u);
    EXPECT_THAT(diary.records[1].tokens, ElementsAre(12, 13, 14, 15, 16));
    Diary nothing(std::vector<Turn>{});
    decode(counting_slots(2, 8), session, nothing, mode);
    EXPECT_THAT(nothing.members, IsEmpty());
  }
}

// A turn may end with its first token, a stop text, a stop token in a draft, a full context.
TEST(Batches, EndEachSequenceByItsOwnRules) {
  const TextTokens tokenizer([] {
    std::vector<std::string> texts;
    for (int i = 0; i < kVocab; ++i) texts.push_back(std::string(1, static_cast<char>('A' + i)));
    return texts;
  }());
  for (const BatchMode mode : {BatchMode::kStatic, BatchMode::kContinuous}) {
    methods::StopText stop(tokenizer, {{"MN"}, false}), other(tokenizer, {{"MN"}, false});
    FakeSession session(kVocab, 16, counting_up(), 3);
    std::vector<Turn> turns = {{{1}, 0, 20, {2}},       {{10}, 0, 20},  // "L", "M", "N"
                               {{20}, 0, 20, {24}},     {Tokens(13, 30), 0, 20},
                               {Tokens(16, 30), 0, 20}, {{9, 10}, 0, 20}};
    turns[1].stop_text = &stop;
    turns[5].stop_text = &other;
    Diary diary(turns);
    decode(counting_slots(5, 3), session, diary, mode);
    EXPECT_THAT(diary.records[0].tokens, ElementsAre(2));
    EXPECT_EQ(diary.records[0].stop, StopReason::kStopToken);
    EXPECT_THAT(diary.records[0].steps, IsEmpty());
    EXPECT_THAT(diary.records[1].tokens, ElementsAre(11, 12, 13));
    EXPECT_EQ(diary.records[1].stop, StopReason::kStopString);
    EXPECT_THAT(diary.records[2].tokens, ElementsAre(21, 22, 23, 24));
    EXPECT_EQ(diary.records[2].steps[0].emitted, 3);
    EXPECT_EQ(diary.records[2].steps[0].accepted, 3) << "the bonus is cut";
    EXPECT_EQ(diary.records[3].stop, StopReason::kContextFull);
    EXPECT_EQ(diary.records[3].tokens.size(), 4u);
    EXPECT_EQ(diary.records[4].stop, StopReason::kContextFull);
    EXPECT_EQ(diary.records[4].tokens.size(), 1u);
    EXPECT_THAT(diary.records[5].tokens, ElementsAre(11, 12, 13));
  }
}

// The first prompts are read whole; a later one in pieces of 256, one between two steps.
TEST(ContinuousBatch, PrefillsInPiecesBetweenSteps) {
  FakeSession session(kVocab, 900, counting_up(), 2);
  std::vector<Turn> turns = {{Tokens(601, 1), 0, 3}, {{10, 11}, 0, 9}, {Tokens(601, 2), 0, 2}};
  Diary diary(turns);
  decode(counting_slots(0, 2), session, diary, BatchMode::kContinuous);
  EXPECT_THAT(session.prefills, ElementsAre(600, 1, 256, 256, 88));
  EXPECT_THAT(diary.members,
              ElementsAre(ElementsAre(0, 1), ElementsAre(0, 1), ElementsAre(1), ElementsAre(1),
                          ElementsAre(1, 2), ElementsAre(1), ElementsAre(1), ElementsAre(1)));
  EXPECT_THAT(diary.records[2].tokens, ElementsAre(3, 4));
}

// Two turns a conversation: the second is known when the first has ended, keeps the first's prompt,
// and goes to the slot that holds it.
class Conversations final : public methods::BatchSource {
 public:
  explicit Conversations(int n) : slot_of_(static_cast<size_t>(n), -1) {
    for (int c = 0; c < n; ++c) {
      first_.push_back({Tokens(static_cast<size_t>(3 + c), 5 * c), 0, 2 + c});
      second_.push_back({});
    }
  }
  const methods::TurnRequest* next(int slot) override {
    for (size_t c = 0; c < second_.size(); ++c)
      if (slot_of_[c] == slot && !second_[c].prompt.empty() && !asked_[c + first_.size()])
        return ask(c + first_.size(), second_[c], slot);
    for (size_t c = 0; c < first_.size(); ++c)
      if (!asked_[c]) {
        slot_of_[c] = slot;
        return ask(c, first_[c], slot);
      }
    return nullptr;
  }
  void done(int slot, results::TurnRecord turn) override {
    const size_t which = in_slot_[slot];
    answers[which] = turn.tokens;
    if (which >= first_.size()) return;
    Turn& second = second_[which];
    second = first_[which];
    second.keep = static_cast<int>(first_[which].prompt.size());
    second.prompt.insert(second.prompt.end(), turn.tokens.begin(), turn.tokens.end());
    second.prompt.push_back(40);
    second.max_new = 4;
  }
  std::map<size_t, Tokens> answers;  // first turns, then second ones

 private:
  const methods::TurnRequest* ask(size_t which, const Turn& turn, int slot) {
    asked_[which] = true;
    in_slot_[slot] = which;
    return &(requests_[which] = request_of(turn));
  }
  std::vector<Turn> first_, second_;
  std::vector<int> slot_of_;
  std::map<size_t, bool> asked_;
  std::map<int, size_t> in_slot_;
  std::map<size_t, methods::TurnRequest> requests_;
};

TEST(Batches, ContinueConversationsInTheirSlots) {
  for (const BatchMode mode : {BatchMode::kStatic, BatchMode::kContinuous}) {
    FakeSession session(kVocab, 64, counting_up(), 2);
    Conversations source(3);
    decode(counting_slots(1, 2), session, source, mode);
    ASSERT_EQ(source.answers.size(), 6u);
    EXPECT_THAT(source.answers[1], ElementsAre(6, 7, 8));
    for (const size_t second : {3, 4, 5})
      EXPECT_THAT(source.answers[second], ElementsAre(41, 42, 43, 44));
    // Bodies of the prompts; second turns prefill answer and question behind the prompt they keep.
    EXPECT_THAT(session.prefills, testing::UnorderedElementsAre(2, 3, 4, 2, 3, 4));
  }
}

// Ctrl-C comes as an exception before a step: what has ended was handed over.
TEST(Batches, KeepWhatHasEndedWhenTheyAreInterrupted) {
  FakeSession session(kVocab, 64, counting_up(), 3);
  Diary diary(four_turns());
  diary.throw_at = 2;
  EXPECT_THROW(decode(counting_slots(0, 3), session, diary, BatchMode::kContinuous),
               std::runtime_error);
  EXPECT_THAT(diary.done_requests, ElementsAre(0, 2));
  EXPECT_THAT(diary.records[2].tokens, ElementsAre(21, 22, 23));
  EXPECT_THAT(diary.records[1].tokens, IsEmpty());
  // The session serves the next batch as if nothing had been.
  Diary again(four_turns());
  decode(counting_slots(0, 3), session, again, BatchMode::kContinuous);
  EXPECT_THAT(again.records[1].tokens, ElementsAre(12, 13, 14, 15, 16));
}

TEST(Batches, RefuseWhatCannotWork) {
  FakeSession session(kVocab, 16, counting_up(), 2);
  Diary diary(four_turns());
  EXPECT_THROW(decode(counting_slots(0, 3), session, diary, BatchMode::kStatic),
               base::InternalError)
      << "more slots than sequences";
  Diary longer({{{1}, 0, 2}, {Tokens(17, 1), 0, 2}});
  EXPECT_THROW(decode(counting_slots(0, 2), session, longer, BatchMode::kStatic), base::Error);
  std::vector<Turn> two_ways = {{{1}, 0, 5}, {{2}, 0, 5}};
  two_ways[1].sampling.temperature = 1;
  Diary mixed(two_ways);
  EXPECT_THROW(decode(counting_slots(0, 2), session, mixed, BatchMode::kStatic),
               base::InternalError);
}

// Advances by one microsecond at each look.
class Ticks final : public base::Clock {
 public:
  int64_t now_ns() override { return now_ += 1000; }

 private:
  int64_t now_ = 0;
};

int64_t sum_of_gaps(const results::TurnRecord& turn) {
  int64_t sum = 0;
  for (const results::BatchStepRecord& step : turn.batch->steps) sum += step.gap_ns;
  return sum;
}

TEST(Batches, ShareOutTheirTimeAndTellWhatEachSequenceWaited) {
  FakeSession session(kVocab, 64, counting_up(), 2);
  Diary diary({{{1, 2, 3}, 0, 3}, {{3}, 0, 5}});
  Ticks clock;
  decode(counting_slots(0, 2), session, diary, BatchMode::kStatic, &clock);
  ASSERT_EQ(diary.steps.size(), 4u);
  int64_t steps_ns = 0;
  for (const BatchStep& s : diary.steps) {
    EXPECT_EQ(s.draft_ns, 2000);
    EXPECT_EQ(s.verify_ns, 1000);
    EXPECT_EQ(s.commit_ns, 1000);
    EXPECT_EQ(s.other_ns, 2000);
    // The loop's own work before it, one look at the clock or two.
    EXPECT_GE(s.ns, 1000 + s.draft_ns + s.verify_ns + s.commit_ns + s.other_ns);
    EXPECT_LE(s.ns, 2000 + s.draft_ns + s.verify_ns + s.commit_ns + s.other_ns);
    steps_ns += s.ns;
  }
  const results::TurnRecord &brief = diary.records[0], &longer = diary.records[1];
  EXPECT_EQ(brief.decode_ns + longer.decode_ns, steps_ns);
  EXPECT_EQ(brief.decode_ns, (diary.steps[0].ns + diary.steps[1].ns) / 2);
  EXPECT_EQ(brief.steps[1].draft_ns, 1000) << "half of a step of two";
  EXPECT_EQ(longer.steps[1].draft_ns, 1000);
  EXPECT_EQ(longer.steps[2].draft_ns, 2000) << "alone";
  EXPECT_EQ(brief.prefill_ns, 3 * longer.prefill_ns) << "three tokens and one";
  for (const results::TurnRecord& turn : diary.records) {
    EXPECT_EQ(turn.draft_prefill_ns, 1000) << "each its own";
    ASSERT_TRUE(turn.batch);
    EXPECT_EQ(turn.batch->first_token_ns, brief.prefill_ns + longer.prefill_ns);
    EXPECT_EQ(turn.batch->steps.size(), turn.steps.size());
    EXPECT_EQ(sum_of_gaps(turn), turn.batch->wall_ns);
  }
  // Both wait for the start of both methods.
  EXPECT_EQ(brief.batch->wall_ns, 2000 + diary.steps[0].ns + diary.steps[1].ns);
  EXPECT_EQ(longer.batch->wall_ns, 2000 + steps_ns);
  EXPECT_EQ(longer.batch->slot, 1);
  EXPECT_EQ(longer.batch->steps[2].number, 2);
  EXPECT_EQ(longer.batch->steps[2].members, 1);
  EXPECT_EQ(longer.batch->steps[1].members, 2);
  EXPECT_EQ(longer.batch->steps[1].emitted, 2);
  EXPECT_EQ(longer.batch->steps[1].ns, diary.steps[1].ns);
}

TEST(Batches, OfOneSlotSayNothingOfABatch) {
  FakeSession session(kVocab, 64, counting_up(), 1);
  Diary diary({{{1, 2}, 0, 3}});
  decode(counting_slots(0, 1), session, diary, BatchMode::kContinuous);
  EXPECT_FALSE(diary.records[0].batch);
}

// Moves by 100 ns per look, and by what a forward "works".
class WorkingClock final : public base::Clock {
 public:
  int64_t now_ns() override { return now_ += 100; }
  void work(int64_t ns) { now_ += ns; }

 private:
  int64_t now_ = 0;
};

// A source that takes its time.
class SlowDiary final : public Diary {
 public:
  SlowDiary(std::vector<Turn> turns, WorkingClock& clock)
      : Diary(std::move(turns)), clock_(clock) {}
  const methods::TurnRequest* next(int slot) override {
    clock_.work(1'000'000'000);
    return Diary::next(slot);
  }
  void done(int slot, results::TurnRecord turn) override {
    clock_.work(1'000'000'000);
    Diary::done(slot, std::move(turn));
  }

 private:
  WorkingClock& clock_;
};

TEST(Batches, DoNotCountWhatIsDoneWithTurnsOutsideOfThem) {
  for (const BatchMode mode : {BatchMode::kStatic, BatchMode::kContinuous}) {
    WorkingClock clock;
    FakeSession session(kVocab, 64, counting_up(), 2);
    SlowDiary diary(four_turns(), clock);
    decode(counting_slots(1, 2), session, diary, mode, &clock);
    for (const results::TurnRecord& turn : diary.records) {
      EXPECT_LT(turn.prefill_ns + turn.draft_prefill_ns + turn.decode_ns, 1'000'000);
      EXPECT_LT(turn.batch->first_token_ns + turn.batch->wall_ns, 1'000'000);
    }
  }
}

// In a continuous batch a prompt is read between two steps: the other waits, and pays nothing.
TEST(ContinuousBatch, APromptBetweenStepsIsItsOwnTimeAndAGapOfOthers) {
  WorkingClock clock;
  FakeSession session(kVocab, 64, counting_up(), 2);
  session.watch = [&](const engine::ForwardRequest& request) {
    // The forward of a prompt's last token has no parent, and one row.
    clock.work(request.rows.size() == 1 && request.rows[0].token >= 30 ? 1'000'000 : 1000);
  };
  Diary diary({{{1}, 0, 2}, {{10}, 0, 12}, {{30}, 0, 1}});
  decode(counting_slots(0, 2), session, diary, BatchMode::kContinuous, &clock);
  EXPECT_GT(diary.records[2].prefill_ns, 1'000'000);
  EXPECT_LT(diary.records[1].decode_ns, 100'000);
  EXPECT_GT(diary.records[1].batch->wall_ns, 1'000'000);
  EXPECT_EQ(sum_of_gaps(diary.records[1]), diary.records[1].batch->wall_ns);
}

// Ends when enough is done.
class EnoughDiary final : public Diary {
 public:
  using Diary::Diary;
  bool over() const override { return !done_requests.empty(); }
};

TEST(Batches, EndWhenTheSourceHasEnough) {
  FakeSession session(kVocab, 64, counting_up(), 3);
  EnoughDiary diary(four_turns());
  decode(counting_slots(0, 3), session, diary, BatchMode::kContinuous);
  EXPECT_THAT(diary.done_requests, ElementsAre(0));
  EXPECT_EQ(diary.members.size(), 1u);
  Diary again(four_turns());  // nothing is left behind
  for (int s = 0; s < 3; ++s) session.rewind(0, s);
  decode(counting_slots(0, 3), session, again, BatchMode::kContinuous);
  EXPECT_THAT(again.done_requests, ElementsAre(0, 2, 1, 3));
}

// A step of a batch is made longer once, not once for every slot.
TEST(Batches, ASlowMethodTakesItsShareOnceAStep) {
  WorkingClock clock;
  FakeSession session(kVocab, 64, counting_up(), 3);
  session.watch = [&](const engine::ForwardRequest&) { clock.work(1'000'000); };
  auto slots = counting_slots(0, 1);
  const auto slow = methods::make_slots(methods::plant_fault(std::move(slots[0]), "slow:50%"), 3);
  Diary diary({{{1}, 0, 4}, {{2}, 0, 4}, {{3}, 0, 4}});
  decode(slow, session, diary, BatchMode::kStatic, &clock);
  for (const BatchStep& s : diary.steps) {
    const int64_t all = s.draft_ns + s.verify_ns + s.commit_ns + s.other_ns;
    EXPECT_NEAR(static_cast<double>(all), 1'500'000, 5000);
  }
}

}  // namespace
}  // namespace evalrun::tests::decode_batch_test
