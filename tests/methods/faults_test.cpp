// Planted faults must do what they claim: a fault nobody can see proves nothing about the gate.
#include "methods/faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "methods/step.h"
#include "methods/verifier_faults.h"
#include "tests/methods/support/fake_session.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests::faults_test {
namespace {

using testing::HasSubstr;

const Turn kTurn{{1, 2, 3, 1, 2, 3, 1, 2}, 0, 64};

TEST(Faults, WrongAcceptanceChangesTheTextOfEveryMethod) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const auto model = small_model(seed);
    const auto session = make_session(model);
    const Tokens expected = run(*build_method("ar", model), *session, kTurn).tokens;
    for (const Arm& arm : all_arms()) {
      const auto faulty = methods::plant_fault(build_arm(arm, model), "wrong-accept");
      const auto record = run(*faulty, *session, kTurn);
      EXPECT_NE(record.tokens, expected) << arm.name << ", model " << seed;
      EXPECT_EQ(record.tokens.size(), 64u) << "the generation goes on";
      // Deterministic, also in the generation after another one.
      if (!arm.carries_state) {
        EXPECT_EQ(run(*faulty, *session, kTurn).tokens, record.tokens) << arm.name;
      }
      for (const auto& s : record.steps)
        EXPECT_EQ(s.emitted, s.accepted + 1) << "counts stay honest";
    }
  }
}

TEST(Faults, WrongAcceptanceKeepsARejectedDraftAndGoesOnFromIt) {
  const auto model = small_model(2);
  const auto session = make_session(model);
  const auto honest = run(*build_method("pld", model), *session, kTurn);
  const auto faulty =
      run(*methods::plant_fault(build_method("pld", model), "wrong-accept"), *session, kTurn);
  // Up to the divergence the texts agree, and each token after it is the greedy one after the text
  // as emitted, except where the fault struck again.
  size_t d = 0;
  while (faulty.tokens[d] == honest.tokens[d]) ++d;
  EXPECT_GT(d, 0u);
  size_t wrong = 0;
  Tokens text = kTurn.prompt;
  const auto plain = make_session(model);
  const auto ar = build_method("ar", model);
  for (int32_t token : faulty.tokens) {
    Turn one{text, 0, 1};
    wrong += run(*ar, *plain, one).tokens.front() != token;
    text.push_back(token);
  }
  EXPECT_GE(wrong, 1u);
  EXPECT_LE(wrong, faulty.steps.size() / 4 + 1) << "at most one planted error in four steps";
}

TEST(Faults, MiscountReportsTooManyAndNothingElse) {
  const auto model = small_model(3);
  const auto session = make_session(model);
  for (const Arm& arm : all_arms()) {
    const auto honest = run(*build_arm(arm, model), *session, kTurn);
    const auto faulty =
        run(*methods::plant_fault(build_arm(arm, model), "miscount"), *session, kTurn);
    EXPECT_EQ(faulty.tokens, honest.tokens) << arm.name;
    ASSERT_EQ(faulty.steps.size(), honest.steps.size());
    int inflated = 0;
    for (size_t i = 0; i < faulty.steps.size(); ++i) {
      EXPECT_EQ(faulty.steps[i].emitted, honest.steps[i].emitted);
      const int more = faulty.steps[i].accepted - honest.steps[i].accepted;
      EXPECT_TRUE(more == 0 || more == 1);
      inflated += more;
    }
    EXPECT_EQ(inflated, static_cast<int>(faulty.steps.size()) / 4) << arm.name;
    EXPECT_GE(inflated, 1) << arm.name;
  }
}

// A clock that moves by 100 ns per look, and by what a step "works".
class WorkClock final : public base::Clock {
 public:
  int64_t now_ns() override { return now_ += 100; }
  void work(int64_t ns) { now_ += ns; }

 private:
  int64_t now_ = 0;
};

class Working final : public methods::DecodingMethod {
 public:
  explicit Working(WorkClock& clock) : clock_(clock) {}
  void start(const methods::GenerationContext&) override {}
  void begin_step() override {}
  engine::ForwardRequest rows() override {
    clock_.work(1'000'000);  // verifies
    return {.rows = {&row_, 1}};
  }
  std::span<const int> accept(const engine::ForwardResult&) override { return {&root_, 1}; }
  methods::StepOutcome finish_step() override {
    clock_.work(50'000);  // drafts
    methods::StepOutcome outcome;
    outcome.tokens = token_;
    return outcome;
  }

 private:
  WorkClock& clock_;
  engine::Row row_{.token = 0};
  int root_ = 0;
  std::vector<int32_t> token_ = {1};
};

TEST(Faults, SlowTakesItsShareLongerAndShowsAsOtherTime) {
  for (double share : {0.1, 0.5, 2.0}) {
    WorkClock clock;
    FakeSession session(2, 64, markov_table(1, 1, 1));
    const auto slow = methods::plant_fault(std::make_unique<Working>(clock),
                                           fmt::format("slow:{}%", share * 100));
    for (int step = 0; step < 3; ++step) {
      methods::PhaseTimer timer(clock);
      methods::run_alone(*slow, session, timer);
      // A handful of looks at the clock, 100 ns each, the share of their own included.
      EXPECT_NEAR(static_cast<double>(timer.total_ns()), 1'050'000 * (1 + share), 2000);
      EXPECT_NEAR(static_cast<double>(timer.ns(methods::PhaseTimer::kVerify)), 1'000'000, 1000);
      EXPECT_NEAR(static_cast<double>(timer.ns(methods::PhaseTimer::kOther)), 1'050'000 * share,
                  2000);
    }
  }
}

TEST(Faults, SlowLeavesTheTextAlone) {
  const auto model = small_model(3);
  const auto session = make_session(model);
  const auto honest = run(*build_method("pld", model), *session, kTurn);
  const auto slow =
      run(*methods::plant_fault(build_method("pld", model), "slow:10%"), *session, kTurn);
  EXPECT_EQ(slow.tokens, honest.tokens);
  EXPECT_EQ(slow.steps.size(), honest.steps.size());
}

// They change the law, not greedy decoding, and none of them counts wrongly.
TEST(Faults, OfTheVerifierActOnSampledAnswersOnly) {
  const auto model = small_model(3);
  const auto session = make_session(model);
  const std::string name = "sps:draft=layers:1,k=3";
  Turn turn = kTurn;
  for (const methods::VerifierFault& fault : methods::verifier_faults()) {
    const auto faulty = methods::plant_fault(build_method(name, model), std::string(fault.example));
    turn.sampling = {};
    EXPECT_EQ(run(*faulty, *session, turn).tokens,
              run(*build_method(name, model), *session, turn).tokens)
        << fault.example;
    turn.sampling = {1.0, 0, 1.0};
    int differing = 0;
    for (turn.seed = 1; turn.seed <= 30; ++turn.seed) {
      const auto record = run(*faulty, *session, turn);
      differing += record.tokens != run(*build_method(name, model), *session, turn).tokens;
      for (const auto& s : record.steps) ASSERT_GE(s.emitted, s.accepted) << fault.example;
    }
    // 0.1 % of a vocabulary of 24 is hardly anything.
    if (fault.name != "drop-below") {
      EXPECT_GT(differing, 0) << fault.example;
    }
  }
}

TEST(Faults, UnknownOnesAreRefused) {
  const auto model = small_model(1);
  const auto refuse = [&](const std::string& fault, const std::string& message) {
    try {
      methods::plant_fault(build_method("ar", model), fault);
      ADD_FAILURE() << fault;
    } catch (const base::Error& e) {
      EXPECT_EQ(e.code(), base::ExitCode::kUsage);
      EXPECT_THAT(e.what(), HasSubstr(message));
    }
  };
  for (const char* fault : {"slow:", "slow:10", "slow:%", "slow:-5%", "slow:0%", "slow:nan%",
                            "slow:10%%", "slow:5000%", "slow:1000.5%"})
    refuse(fault, "slow:10%");
  refuse("wrong-acept", "wrong-accept");
  refuse("redraw-from-target:5%", "redraw-from-target");
  refuse("verify-temperature", "verify-temperature:95%");
  refuse("verify-top-p:101%", "verify-top-p:10%");
  refuse("", "miscount");
  WorkClock clock;
  EXPECT_THROW(methods::plant_fault(std::make_unique<Working>(clock), "wrong-accept"), base::Error);
  for (const std::string& fault : methods::known_faults())
    EXPECT_NE(methods::plant_fault(build_method("ar", model), fault), nullptr);
}

}  // namespace
}  // namespace evalrun::tests::faults_test
