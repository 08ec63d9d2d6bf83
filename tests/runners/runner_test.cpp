// The runner against a fake session, a clock that stands still and scripted methods: order,
// warm-up, resume, conversations, failures, interruption. Nothing here depends on how fast the
// machine is. One file: all of it needs the same scripted runner.
#include "runners/measure/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <stdexcept>

#include "engine/base/error.h"
#include "engine/device_time.h"
#include "runners/measure/turns.h"
#include "tests/methods/support/fake_session.h"
#include "tests/runners/fakes.h"
#include "tests/runners/stored_rows.h"
#include "tests/temp_folder.h"

namespace evalrun::runners {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int64_t kStepNs = 1000;

// What the scripted methods were asked to do, in order.
struct Journal {
  std::vector<std::string> entries;
  std::vector<std::vector<int32_t>> prompts;
};

// Decodes one token a step in `step_ns` of the fake clock, writes down every start, and throws at
// the starts it is told to.
class ScriptedMethod final : public methods::DecodingMethod {
 public:
  struct Script {
    std::string name;
    Journal* journal;
    tests::FakeClock* clock;
    std::set<int>* fail_at_starts;  // counted over all objects of the arm
    int* starts;
    const int*
        device_fails_at;     // entry of the journal whose first step breaks the device, -1 = none
    const int* cold_starts;  // this many starts of the arm lack a CUDA graph
  };
  explicit ScriptedMethod(Script script) : s_(std::move(script)) {}
  void start(const methods::GenerationContext& context) override {
    s_.journal->entries.push_back(s_.name);
    s_.journal->prompts.emplace_back(context.prompt.begin(), context.prompt.end());
    root_ = context.first_token;
    if (*s_.starts < *s_.cold_starts) ++engine::device_time().graph_misses;
    if (s_.fail_at_starts->contains((*s_.starts)++))
      throw std::runtime_error("scripted failure\nwith details");
  }
  void begin_step() override {}
  engine::ForwardRequest rows() override {
    if (static_cast<int>(s_.journal->entries.size()) - 1 == *s_.device_fails_at)
      throw base::DeviceFault("cuda:0", "an illegal memory access was encountered", "the forward");
    row_.token = root_;
    return {.rows = {&row_, 1}};
  }
  std::span<const int> accept(const engine::ForwardResult& result) override {
    root_ = engine::argmax(result.logits_row(0));
    s_.clock->now += kStepNs;
    static const int kRoot = 0;
    return {&kRoot, 1};
  }
  methods::StepOutcome finish_step() override {
    methods::StepOutcome outcome;
    outcome.tokens = {&root_, 1};
    return outcome;
  }
  size_t extra_parameter_bytes() const override { return 11; }
  size_t extra_kv_bytes() const override { return 22; }

 private:
  Script s_;
  engine::Row row_;
  int32_t root_ = -1;
};

// The next token is the last one plus one, within 'a'..'z'.
void alphabet(std::span<const int32_t> context, std::span<float> logits) {
  std::fill(logits.begin(), logits.end(), 0.0f);
  const int32_t last = context.back();
  const int32_t next = last >= 'a' && last < 'z' ? last + 1 : 'a';
  logits[static_cast<size_t>(next)] = 1.0f;
}

class RunnerTest : public ::testing::Test {
 protected:
  RunnerTest() : session_(256, 512, alphabet), conversation_(tokenizer_, &template_, "") {}
  void remove_database() {
    for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(db_ + suffix);
  }

  RunPlan plan(int n_prompts, const std::vector<std::string>& arms, Suite suite = fixed_suite()) {
    RunPlan p;
    p.suite = std::move(suite);
    p.run.key = "run";
    p.run.label = p.run.suite = "test";
    p.run.suite_json = to_json(p.suite).dump();
    p.run.started = "2026-01-01T00:00:00Z";
    for (const std::string& name : arms) {
      PlannedArm arm;
      arm.record.key = arm.record.label = arm.record.method = name;
      arm.record.role = p.arms.empty() ? "baseline" : "method";
      arm.record.lossless = "both";
      arm.build = [this, name] {
        return std::make_unique<ScriptedMethod>(
            ScriptedMethod::Script{name, &journal_, &clock_, &fail_at_[name], &starts_[name],
                                   &device_fails_at_, &cold_starts_[name]});
      };
      p.arms.push_back(std::move(arm));
    }
    for (int i = 0; i < n_prompts; ++i) {
      PlannedPrompt prompt;
      prompt.prompt.id = prompt.record.id = prompt.record.key = "p" + std::to_string(i);
      prompt.record.task = "set";
      prompt.prompt.turns = prompt.record.turns = {"question " + std::to_string(i)};
      prompt.max_new = 4;
      p.prompts.push_back(std::move(prompt));
    }
    p.capacity = 512;
    p.waves = waves_of_one(n_prompts);
    p.schedule =
        make_schedule({p.waves, static_cast<int>(arms.size()), p.suite.repeats, p.suite.samples},
                      p.suite.order, p.suite.seed);
    return p;
  }
  static Suite fixed_suite() {
    Suite suite;
    suite.warmup = 0;
    return suite;
  }
  std::map<std::string, std::string> environment() {
    std::map<std::string, std::string> found;
    const results::ResultStore store(db_, results::ResultStore::Mode::kReadOnly);
    store.query("SELECT name, value FROM environment", {}, [&](const results::Row& row) {
      found[row.text(0)] = row.text(1);
      return true;
    });
    return found;
  }
  // The journal a complete, undisturbed run of the plan must leave (without warm-up).
  static std::vector<std::string> expected_order(const RunPlan& p) {
    std::vector<std::string> names;
    for (const Visit& v : p.schedule)
      names.push_back(p.arms[static_cast<size_t>(v.arm)].record.label);
    return names;
  }
  RunOutcome execute(const RunPlan& p, RunnerOptions options = {}) {
    results::ResultStore store(db_);
    Runner runner(p, conversation_, store, clock_, std::move(options));
    return runner.run(session_);
  }
  // One line per stored generation, in the order of storing.
  std::vector<std::string> rows(const std::string& columns) {
    const results::ResultStore store(db_, results::ResultStore::Mode::kReadOnly);
    return stored_rows(store, "SELECT " + columns +
                                  " FROM generation g JOIN arm a ON a.id = g.arm_id "
                                  "JOIN prompt p ON p.id = g.prompt_id ORDER BY g.id");
  }
  std::vector<std::string> schedule_rows(const RunPlan& p) const {
    std::vector<std::string> lines;
    for (const Visit& v : p.schedule)
      lines.push_back(fmt::format(
          "{} {} {} {} {} {}", p.arms[static_cast<size_t>(v.arm)].record.label,
          p.prompts[static_cast<size_t>(v.prompt)].record.id, v.repeat, v.sample, v.block, v.slot));
    return lines;
  }
  static constexpr const char* kCell = "a.label, p.name, g.repeat, g.sample, g.block, g.slot";

  tests::FakeClock clock_;
  tests::FakeSession session_;
  tests::ByteTokenizer tokenizer_;
  tests::LetterTemplate template_;
  Conversation conversation_;
  Journal journal_;
  std::map<std::string, std::set<int>> fail_at_;
  std::map<std::string, int> starts_, cold_starts_;
  int device_fails_at_ = -1;
  const tests::TempFolder folder_;
  const std::string db_ = folder_.file("runner_test.db");
};

TEST_F(RunnerTest, MeasuresTheScheduleInItsOrder) {
  Suite suite = fixed_suite();
  suite.repeats = 2;
  suite.samples = 2;
  const RunPlan p = plan(4, {"ar", "x", "y"}, suite);
  const RunOutcome outcome = execute(p);
  EXPECT_EQ(outcome.status, RunStatus::kComplete);
  EXPECT_EQ(outcome.measured, 48);
  EXPECT_EQ(outcome.failed, 0);
  EXPECT_THAT(journal_.entries, ElementsAreArray(expected_order(p)));
  EXPECT_THAT(rows(kCell), ElementsAreArray(schedule_rows(p)));
}

// A driver that has a turn for everybody.
class FreeTurns final : public Turns {
 public:
  void announce(int, int) override {}
  bool next() override { return true; }
  void before_step() override {}
  int64_t other_ns() const override { return 0; }
};

TEST_F(RunnerTest, InTurnsAPromptIsReadOnce) {
  const RunPlan p = plan(3, {"ar", "x", "y"});
  execute(p);
  const auto alone = rows("a.label, p.name, g.tokens_hash");
  const std::vector<int> all(9, 14);  // "U:question 0 A:" less the token that decoding reads
  EXPECT_THAT(session_.prefills, ElementsAreArray(all));
  for (const bool failing : {false, true}) {
    remove_database();
    session_.prefills.clear();
    starts_.clear();
    if (failing) fail_at_["x"] = {1};
    FreeTurns turns;
    RunnerOptions options;
    options.turns = &turns;
    execute(p, options);
    std::vector<int> expected;
    int held = -1, x_starts = 0;
    for (const Visit& v : p.schedule) {
      if (held != v.prompt) expected.push_back(held < 0 ? 14 : 3);  // after "U:question "
      const bool fails = failing && v.arm == 1 && x_starts++ == 1;
      held = fails ? -1 : v.prompt;  // what a failure left is not trusted
    }
    EXPECT_THAT(session_.prefills, ElementsAreArray(expected));
    if (!failing) {
      EXPECT_EQ(rows("a.label, p.name, g.tokens_hash"), alone);
    }
  }
}

TEST_F(RunnerTest, EveryArmIsMeasuredInTheSessionOfItsModel) {
  RunPlan p = plan(2, {"ar", "plain", "space"});
  const auto own = tests::tiny_model(64), tuned = tests::tiny_model(64, "tuned");
  p.arms[0].model = own;
  p.arms[1].model = p.arms[2].model = tuned;
  EXPECT_THROW(execute(p), base::InternalError);  // one session cannot serve both
  EXPECT_TRUE(journal_.entries.empty());

  tests::FakeSession other(256, 512, [](std::span<const int32_t>, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    logits['z'] = 1.0f;
  });
  results::ResultStore store(db_);
  size_t measured_before = 0;
  const auto session_of = [&](const auto& model) -> engine::Session& {
    measured_before = std::max(measured_before, journal_.entries.size());
    return model == own ? session_ : other;
  };
  EXPECT_EQ(Runner(p, conversation_, store, clock_, {}).run(session_of).measured, 6);
  EXPECT_EQ(measured_before, 0u) << "sessions exist before measuring starts";
  std::map<std::string, std::set<std::string>> texts;
  store.query(
      "SELECT a.label, t.text FROM turn t JOIN generation g ON g.id = t.generation_id "
      "JOIN arm a ON a.id = g.arm_id",
      {}, [&](const results::Row& row) {
        texts[row.text(0)].insert(row.text(1));
        return true;
      });
  EXPECT_THAT(texts["ar"], ElementsAre("abcd"));
  EXPECT_THAT(texts["plain"], ElementsAre("zzzz"));
  EXPECT_THAT(texts["space"], ElementsAre("zzzz"));
}

TEST_F(RunnerTest, StoresWhatWasMeasured) {
  const RunPlan p = plan(1, {"ar"});
  execute(p);
  EXPECT_THAT(rows("g.status, g.fault"), ElementsAre("ok "));
  const results::ResultStore store(db_, results::ResultStore::Mode::kReadOnly);
  store.query(
      "SELECT n_tokens, n_steps, emitted, decode_ns, verify_ns, text, n_prompt_tokens, stop "
      "FROM turn",
      {}, [](const results::Row& row) {
        EXPECT_EQ(row.integer(0), 4);
        EXPECT_EQ(row.integer(1), 3);  // the first token comes from the prefill
        EXPECT_EQ(row.integer(2), 3);
        EXPECT_EQ(row.integer(3), 3 * kStepNs);
        EXPECT_EQ(row.integer(4), 3 * kStepNs);
        EXPECT_EQ(row.text(5), "abcd");
        EXPECT_EQ(row.integer(6), 15);  // "U:question 0 A:"
        return true;
      });
  store.query("SELECT count(*), min(available_ns > 0) FROM clock", {}, [](const results::Row& row) {
    EXPECT_EQ(row.integer(0), 1);
    EXPECT_EQ(row.integer(1), 1);
    return true;
  });
  store.query("SELECT finished IS NOT NULL FROM run", {}, [](const results::Row& row) {
    EXPECT_EQ(row.integer(0), 1);
    return true;
  });
  store.query("SELECT extra_parameter_bytes, kv_bytes, peak_bytes FROM arm", {},
              [](const results::Row& row) {
                EXPECT_EQ(row.integer(0), 11);
                EXPECT_EQ(row.integer(1), 22);
                EXPECT_GT(row.integer(2), 1 << 20);
                return true;
              });
}

TEST_F(RunnerTest, TheRowCostTableIsStoredOnceWithTheRun) {
  RunPlan p = plan(1, {"ar"});
  p.row_cost->table.context = 256;
  p.row_cost->table.rows = {{1, 2, 2, 2, {}}, {4, 3, 3, 3, {}}};
  p.row_cost->batches[8] = p.row_cost->table;
  p.row_cost->batches[8].sequences = 8;
  p.row_cost->round_trip_ns = 104.4;
  execute(p);
  const auto first = environment();
  const auto table = row_cost_from_json(nlohmann::json::parse(first.at("row_cost")));
  ASSERT_TRUE(table);
  EXPECT_EQ(table->ratio(4), 1.5);
  EXPECT_EQ(table->sequences, 1);
  EXPECT_EQ(row_cost_from_json(nlohmann::json::parse(first.at("row_cost_batch_8")))->sequences, 8);
  EXPECT_EQ(first.at("cache_line_round_trip_ns"), "104");
  // A resumed run keeps what it was begun with.
  RunPlan more = plan(2, {"ar"});
  more.row_cost->table.rows = {{1, 7, 7, 7, {}}};
  execute(more);
  EXPECT_EQ(environment(), first);
}

TEST_F(RunnerTest, WhereWeightsLieOnSeveralNodesIsStored) {
  session_.placement.nodes = 2;
  session_.placement.how = "interleave";
  session_.placement.refusal = "Operation not permitted";
  execute(plan(1, {"ar"}));
  EXPECT_EQ(environment(), (std::map<std::string, std::string>{
                               {"weight_placement", "interleave"},
                               {"weight_placement_refusal", "Operation not permitted"}}));
}

TEST_F(RunnerTest, ARunWithoutATableStoresNone) {
  execute(plan(1, {"ar"}));
  const results::ResultStore store(db_, results::ResultStore::Mode::kReadOnly);
  store.query("SELECT count(*) FROM environment", {}, [](const results::Row& row) {
    EXPECT_EQ(row.integer(0), 0);
    return true;
  });
}

TEST_F(RunnerTest, AutomaticWarmUpRunsTheBaselineUntilStepsSettleAndTheOthersOnce) {
  Suite suite;
  suite.warmup = -1;
  RunPlan p = plan(2, {"ar", "x", "y"}, suite);
  execute(p);
  // Answers of four tokens hold three steps; two windows of five need ten: four generations.
  std::vector<std::string> expected = {"ar", "ar", "ar", "ar", "x", "y"};
  const auto measured = expected_order(p);
  expected.insert(expected.end(), measured.begin(), measured.end());
  EXPECT_THAT(journal_.entries, ElementsAreArray(expected));
  EXPECT_EQ(rows("g.id").size(), 6u);  // warm-up is not stored
}

// Over whole answers of other prompts, because these have other graphs.
TEST_F(RunnerTest, OnAGpuEveryArmIsWarmedUpUntilItHasItsGraphs) {
  Suite suite;
  suite.warmup = -1;
  session_.set_device("cuda");
  cold_starts_ = {{"ar", 1}, {"x", 3}, {"y", 0}};
  const RunPlan p = plan(2, {"ar", "x", "y"}, suite);
  execute(p);
  std::vector<std::string> expected(4, "ar");  // until its steps settle, too
  expected.insert(expected.end(), 4, "x");     // three, and one that lacks nothing
  expected.push_back("y");
  ASSERT_GE(journal_.entries.size(), expected.size());
  journal_.entries.resize(expected.size());
  EXPECT_EQ(journal_.entries, expected);
  EXPECT_NE(journal_.prompts[4], journal_.prompts[5]);
  EXPECT_EQ(journal_.prompts[4], journal_.prompts[6]);
}

TEST_F(RunnerTest, OnAGpuAFixedWarmUpTakesPromptAfterPrompt) {
  Suite suite;
  suite.warmup = 3;
  session_.set_device("cuda");
  execute(plan(2, {"ar"}, suite));
  ASSERT_GE(journal_.prompts.size(), 3u);
  EXPECT_NE(journal_.prompts[0], journal_.prompts[1]);
  EXPECT_EQ(journal_.prompts[0], journal_.prompts[2]);
}

TEST_F(RunnerTest, AutomaticWarmUpEndsAtItsTimeLimit) {
  Suite suite;
  suite.warmup = -1;
  suite.warmup_limit_s = 0;
  RunPlan p = plan(1, {"ar", "x"}, suite);
  execute(p);
  EXPECT_EQ(journal_.entries.size(), 2u + 2u);
}

TEST_F(RunnerTest, FixedWarmUpRunsEveryArmThatOften) {
  Suite suite;
  suite.warmup = 2;
  const RunPlan p = plan(1, {"ar", "x"}, suite);
  execute(p);
  std::vector<std::string> expected = {"ar", "ar", "x", "x"};
  const auto measured = expected_order(p);
  expected.insert(expected.end(), measured.begin(), measured.end());
  EXPECT_THAT(journal_.entries, ElementsAreArray(expected));
}

TEST_F(RunnerTest, AnInterruptedRunEndsBehindItsPromptAndResumesInOrder) {
  Suite suite = fixed_suite();
  suite.repeats = 2;
  const RunPlan p = plan(4, {"ar", "x", "y"}, suite);
  RunnerOptions options;
  // Asked for in the middle of the third prompt: that prompt is finished.
  options.stop = [this] { return journal_.entries.size() >= 7; };
  const RunOutcome first = execute(p, options);
  EXPECT_EQ(first.status, RunStatus::kInterrupted);
  EXPECT_EQ(first.measured, 9);

  const RunOutcome second = execute(p);
  EXPECT_EQ(second.status, RunStatus::kComplete);
  EXPECT_EQ(second.run_id, first.run_id);
  EXPECT_EQ(second.stored_before, 9);
  EXPECT_EQ(second.measured, 15);
  EXPECT_THAT(journal_.entries, ElementsAreArray(expected_order(p)));
  EXPECT_THAT(rows(kCell), ElementsAreArray(schedule_rows(p)));

  const RunOutcome third = execute(p);  // nothing is measured twice
  EXPECT_EQ(third.measured, 0);
  EXPECT_EQ(third.stored_before, 24);
  EXPECT_EQ(journal_.entries.size(), 24u);
}

TEST_F(RunnerTest, ARunKilledInTheMiddleOfAPromptGoesOnWithItsNextArm) {
  const RunPlan p = plan(3, {"ar", "x", "y"});
  {
    results::ResultStore store(db_);
    class Kill final : public ProgressSink {
      void generation_done(const std::string&, const std::string&, bool) override {
        if (++n_ == 4) throw std::runtime_error("killed");
      }
      int n_ = 0;
    } kill;
    RunnerOptions options;
    options.progress = &kill;
    Runner runner(p, conversation_, store, clock_, options);
    EXPECT_THROW(runner.run(session_), std::runtime_error);
  }
  EXPECT_EQ(rows("g.id").size(), 4u);
  execute(p);
  EXPECT_THAT(rows(kCell), ElementsAreArray(schedule_rows(p)));
}

TEST_F(RunnerTest, MaxTimeEndsTheRunBehindAPrompt) {
  const RunPlan p = plan(5, {"ar", "x"});
  RunnerOptions options;
  // A generation takes 3 steps: 6 us per prompt; 10 us are over after the second.
  options.max_time_s = 10e-6;
  const RunOutcome outcome = execute(p, options);
  EXPECT_EQ(outcome.status, RunStatus::kOutOfTime);
  EXPECT_EQ(outcome.measured, 4);
}

TEST_F(RunnerTest, AFailedGenerationIsARowAndTheRunGoesOn) {
  const RunPlan p = plan(3, {"ar", "x"});
  fail_at_["x"] = {1};
  const RunOutcome outcome = execute(p);
  EXPECT_EQ(outcome.status, RunStatus::kComplete);
  EXPECT_EQ(outcome.failed, 1);
  EXPECT_EQ(outcome.measured, 6);
  std::vector<std::string> failed;
  for (const std::string& row : rows("g.status, a.label, p.name"))
    if (row.starts_with("failed")) failed.push_back(row);
  EXPECT_THAT(failed, ElementsAre("failed: scripted failure x p1"));
  // No half-measured numbers: five sound generations have turns, the failed one has none.
  const results::ResultStore store(db_, results::ResultStore::Mode::kReadOnly);
  store.query("SELECT count(*) FROM turn", {}, [](const results::Row& row) {
    EXPECT_EQ(row.integer(0), 5);
    return true;
  });
}

TEST_F(RunnerTest, ADeviceFaultEndsTheRunWhichResumesWithThatGeneration) {
  const RunPlan p = plan(3, {"ar", "x"});
  device_fails_at_ = 3;  // in the middle of the second prompt
  try {
    execute(p);
    FAIL() << "the run went on";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kDevice);
    const Visit& v = p.schedule[3];
    EXPECT_THAT(e.message(),
                HasSubstr(fmt::format("arm {}, prompt {} (3 of 6 generations are stored): device "
                                      "cuda:0: an illegal memory access was encountered, in the "
                                      "forward",
                                      p.arms[static_cast<size_t>(v.arm)].record.label,
                                      p.prompts[static_cast<size_t>(v.prompt)].record.id)));
    EXPECT_THAT(e.hint(), HasSubstr("run the same command again"));
  }
  EXPECT_EQ(journal_.entries.size(), 4u) << "nothing is tried on a broken device";
  EXPECT_THAT(rows("g.status"), ElementsAre("ok", "ok", "ok"));
  device_fails_at_ = -1;
  const RunOutcome outcome = execute(p);
  EXPECT_EQ(outcome.status, RunStatus::kComplete);
  EXPECT_EQ(outcome.stored_before, 3);
  EXPECT_EQ(outcome.measured, 3);
  EXPECT_THAT(rows(kCell), ElementsAreArray(schedule_rows(p)));
}

TEST_F(RunnerTest, ADeviceFaultWhileWarmingUpEndsTheRun) {
  Suite suite;
  suite.warmup = 1;
  const RunPlan p = plan(1, {"ar", "x"}, suite);
  device_fails_at_ = 1;
  try {
    execute(p);
    FAIL() << "the run went on";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kDevice);
    EXPECT_THAT(e.message(), HasSubstr("warm-up of x: device cuda:0"));
  }
  EXPECT_EQ(journal_.entries.size(), 2u);
}

TEST_F(RunnerTest, TheSecondTurnHoldsTheFirstAnswerAndKeepsOnlyThePrompt) {
  RunPlan p = plan(1, {"ar"});
  p.prompts[0].prompt.turns = p.prompts[0].record.turns = {"one", "two"};
  execute(p);
  const auto text = [](const std::vector<int32_t>& ids) {
    return std::string(ids.begin(), ids.end());
  };
  ASSERT_EQ(journal_.prompts.size(), 2u);
  EXPECT_EQ(text(journal_.prompts[0]), "U:one A:");
  EXPECT_EQ(text(journal_.prompts[1]), "U:one A:abcd U:two A:");
  // First turn: 8 tokens, the last through the decode path. Second turn: 21 tokens, of which the 8
  // of the first prompt stay; the answer is prefilled again although its keys were in the cache.
  EXPECT_THAT(session_.prefills, ElementsAre(7, 21 - 8 - 1));
}

TEST_F(RunnerTest, SeedsBelongToPromptAndSampleNotToArmOrRepeat) {
  Suite suite = fixed_suite();
  suite.repeats = 2;
  suite.samples = 2;
  execute(plan(2, {"ar", "x"}, suite));
  std::map<std::string, std::set<std::string>> seeds;
  for (const std::string& row : rows("p.name || '/' || g.sample, g.seed")) {
    const size_t space = row.find(' ');
    seeds[row.substr(0, space)].insert(row.substr(space + 1));
  }
  std::set<std::string> all;
  EXPECT_EQ(seeds.size(), 4u);
  for (const auto& [cell, values] : seeds) {
    EXPECT_EQ(values.size(), 1u) << cell;
    all.insert(values.begin(), values.end());
  }
  EXPECT_EQ(all.size(), 4u);
}

TEST_F(RunnerTest, StopTokensEndAnswersUnlessIgnored) {
  const auto tokens_of_run = [&](bool ignore) {
    remove_database();
    Suite suite = fixed_suite();
    suite.ignore_eos = ignore;
    tests::FakeSession session(256, 512, [](std::span<const int32_t> context, std::span<float> l) {
      std::fill(l.begin(), l.end(), 0.0f);
      l[context.back() == 'b' ? 0 : context.back() == 'a' ? 'b' : 'a'] = 1.0f;  // a, b, stop, ...
    });
    results::ResultStore store(db_);
    const RunPlan p = plan(1, {"ar"}, suite);
    Runner(p, conversation_, store, clock_, {}).run(session);
    int64_t n = 0;
    store.query("SELECT n_tokens FROM turn", {}, [&](const results::Row& row) {
      n = row.integer(0);
      return true;
    });
    return n;
  };
  EXPECT_EQ(tokens_of_run(false), 3);
  EXPECT_EQ(tokens_of_run(true), 4);
}

TEST_F(RunnerTest, PlantedFaultsStampEveryRowTheyTouch) {
  RunPlan p = plan(2, {"ar", "x"});
  p.arms[1].fault = "miscount";
  execute(p);
  for (const std::string& row : rows("a.label || ':' || g.fault"))
    EXPECT_TRUE(row == "ar:" || row == "x:miscount") << row;
}

TEST_F(RunnerTest, EvaluatorsScoreAnswersThatHaveAReference) {
  RunPlan p = plan(2, {"ar"});
  for (PlannedPrompt& prompt : p.prompts)
    prompt.evaluators = {"gsm8k_strict@lm-eval-3", "gsm8k_flexible@lm-eval-3"};
  p.prompts[0].prompt.reference = p.prompts[0].record.reference = "#### 3";
  execute(p);
  const results::ResultStore store(db_, results::ResultStore::Mode::kReadOnly);
  std::vector<std::string> scored;
  store.query(
      "SELECT p.name || ' ' || s.evaluator FROM score s "
      "JOIN generation g ON g.id = s.generation_id JOIN prompt p ON p.id = g.prompt_id "
      "ORDER BY 1",
      {}, [&](const results::Row& row) {
        scored.push_back(row.text(0));
        return true;
      });
  EXPECT_THAT(scored, ElementsAre("p0 gsm8k_flexible", "p0 gsm8k_strict"));
}

// Answers are "abcd"; a stop text that spans tokens ends them early unless told to ignore it.
TEST_F(RunnerTest, StopTextsEndAnswersAndAreStoredAsTheReason) {
  RunPlan p = plan(2, {"ar", "x"});
  p.prompts[1].prompt.stop.strings = {"zz", "bc"};
  execute(p);
  EXPECT_THAT(rows("p.name, (SELECT t.text || ' ' || t.stop FROM turn t "
                   "WHERE t.generation_id = g.id)"),
              ::testing::UnorderedElementsAre("p0 abcd limit", "p0 abcd limit",
                                              "p1 abc stop_string", "p1 abc stop_string"));
  remove_database();
  p.suite.ignore_eos = true;
  execute(p);
  EXPECT_THAT(rows("(SELECT t.stop FROM turn t WHERE t.generation_id = g.id)"),
              ::testing::Each("limit"));
}

// Answers that are programs: judged after the generations, once per answer however often it was
// timed; what is missing, or what the machine was at fault for, is judged by the next run.
TEST_F(RunnerTest, ProgramsAreJudgedBehindTheTimedPart) {
  Suite suite = fixed_suite();
  suite.repeats = 2;
  RunPlan p = plan(2, {"ar", "x"}, suite);
  auto problem = std::make_shared<datasets::CodeProblem>();
  problem->language = "python";
  problem->task = "Python/0";
  problem->prompt = "def f(x):\n";
  problem->test = "assert f(1) == 1\n";
  problem->entry_point = "f";
  for (PlannedPrompt& prompt : p.prompts) {
    prompt.prompt.code = problem;
    prompt.prompt.chat = false;
    prompt.evaluators = {"pass@evalrun"};
  }
  RunnerOptions options;
  options.scoring.cache_folder = folder_.path();
  options.scoring.reuse_results = false;
  const RunOutcome first = execute(p, options);
  if (!first.scoring_problems.empty()) GTEST_SKIP() << first.scoring_problems.front();
  EXPECT_EQ(first.measured, 8);
  EXPECT_EQ(first.scored, 4) << "two prompts, two arms, the first repeat";
  EXPECT_EQ(first.unscored, 0);
  const auto judged = [&] {
    std::vector<std::string> lines;
    const results::ResultStore store(db_, results::ResultStore::Mode::kReadOnly);
    store.query(
        "SELECT a.label, p.name, g.repeat, s.value, s.status FROM score s JOIN generation g ON "
        "g.id = s.generation_id JOIN arm a ON a.id = g.arm_id JOIN prompt p ON p.id = "
        "g.prompt_id ORDER BY 1, 2",
        {}, [&](const results::Row& row) {
          lines.push_back(fmt::format("{} {} {} {} {}", row.text(0), row.text(1), row.integer(2),
                                      row.number(3), row.text(4)));
          return true;
        });
    return lines;
  };
  // "abcd" is no body of a function.
  const std::vector<std::string> all = judged();
  EXPECT_THAT(all, ElementsAre("ar p0 0 0 compile_error", "ar p1 0 0 compile_error",
                               "x p0 0 0 compile_error", "x p1 0 0 compile_error"));
  {
    results::ResultStore store(db_);
    store.execute("DELETE FROM score WHERE generation_id = 1");
    store.execute(
        "UPDATE score SET value = NULL, status = 'sandbox_error' WHERE generation_id = 2");
  }
  results::ResultStore store(db_);
  Runner again(p, conversation_, store, clock_, options);
  ASSERT_EQ(again.pending(), 0);
  EXPECT_EQ(again.finish_without_measuring().scored, 2);
  EXPECT_EQ(judged(), all);
  // Under other time limits a verdict may be another.
  options.scoring.time_scale = 2;
  Runner slower(p, conversation_, store, clock_, options);
  EXPECT_EQ(slower.finish_without_measuring().scored, 4);
  EXPECT_EQ(slower.finish_without_measuring().scored, 0);
}

}  // namespace
}  // namespace evalrun::runners
