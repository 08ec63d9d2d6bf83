// The gate's decision about servers: what they are judged against, slow-downs of graded size on
// machines that drift, answers and drafts that changed, and what makes a server another one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/rng.h"
#include "reports/gate/gate.h"
#include "reports/gate/gate_yardstick.h"
#include "reports/gate/session_spread.h"
#include "tests/results/synthetic.h"

namespace evalrun::reports {
namespace {

using base::ExitCode;
using results::GenerationRecord;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tests::SyntheticArm;

SyntheticArm server_arm(const std::string& label, const std::string& role) {
  SyntheticArm arm;
  arm.label = label;
  arm.method = results::kEndpointMethod;
  arm.role = role;
  arm.lossless = "none";
  arm.device = "server";
  arm.model_hash = "";
  arm.settings["steps"] = "follow the machine";
  return arm;
}

SyntheticArm own_plain(const std::string& role = "method") {
  SyntheticArm arm;
  arm.role = role;
  arm.verify_ns = 5'000'000;
  return arm;
}

// Factors on the times of one run, by label, and what else is done to its answers.
struct Day {
  double machine = 1, server = 1, fast = 1, ar = 1;
  std::function<void(GenerationRecord&, const SyntheticArm&, int prompt, int repeat)> spoil = {};
};

class ServerGate : public ::testing::Test {
 protected:
  ServerGate() : store_(folder_.file("a.db")) {
    run_.prompts_per_task = 24;
    run_.repeats = 2;
    run_.arms = {server_arm("server", "baseline"), server_arm("server (A/A)", "aa"), own_plain()};
  }
  int64_t measure(const Day& day, double noise = 0.05) {
    run_.key = fmt::format("run {}", ++runs_);
    auto rng = std::make_shared<base::Rng>(17 + runs_);
    run_.change = [=](GenerationRecord& g, const SyntheticArm& a, int prompt, int repeat, int) {
      results::TurnRecord& turn = g.turns[0];
      double factor = day.machine * (1 + noise * (rng->uniform() - 0.5));
      if (a.label == "ar") factor *= day.ar;
      if (a.label == "fast") factor *= day.fast;
      if (a.label.starts_with("server")) factor *= day.server;
      turn.decode_ns = std::llround(factor * static_cast<double>(turn.decode_ns));
      if (a.method == results::kEndpointMethod) {
        turn.endpoint = results::EndpointTurnRecord{};
        if (a.label == "fast") count_drafts(turn, 2);
      }
      if (day.spoil) day.spoil(g, a, prompt, repeat);
    };
    return tests::fill(store_, run_);
  }
  // Of answers with `tau` tokens a step.
  static void count_drafts(results::TurnRecord& turn, double tau) {
    const auto tokens = static_cast<double>(turn.tokens.size() - 1);
    const auto steps = std::llround(tokens / tau);
    turn.endpoint->target_steps = steps;
    turn.endpoint->drafted = 4 * steps;
    turn.endpoint->accepted = std::llround(tokens) - steps;
  }
  GateResult gate(int64_t base, int64_t current, const GateOptions& options = {}) {
    return evaluate_gate({store_, {base}}, {store_, {current}}, options);
  }
  GateResult judge(const Day& then, const Day& now, const GateOptions& options = {}) {
    const int64_t base = measure(then);
    return gate(base, measure(now), options);
  }
  static const GateCheck* find(const GateResult& g, const std::string& metric,
                               const std::string& method) {
    for (const GateCheck& v : g.checks)
      if (v.metric == metric && v.method == method) return &v;
    return nullptr;
  }
  static std::vector<std::string> judged(const Yardsticks& yardsticks) {
    std::vector<std::string> texts;
    for (const JudgedArm& arm : yardsticks.arms)
      texts.push_back(fmt::format("{} by {}", arm.label, arm.yardstick));
    return texts;
  }
  Yardsticks yardsticks(const std::string& name = "") {
    return yardsticks_of(load_run(store_, measure({})), {.yardstick = name});
  }

  tests::TempFolder folder_;
  results::ResultStore store_;
  tests::SyntheticRun run_;
  uint64_t runs_ = 0;
};

TEST_F(ServerGate, AServerIsJudgedByPlainDecodingOfItsMachine) {
  const GateResult same = judge({}, {});
  EXPECT_EQ(same.code, ExitCode::kOk) << to_text(same);
  EXPECT_THAT(same.warnings, IsEmpty());
  EXPECT_EQ(find(same, "speed", "ar"), nullptr) << "the yardstick is not judged";
  const GateResult slow = judge({}, {.server = 1.1});
  EXPECT_EQ(slow.code, ExitCode::kRegression) << to_text(slow);
  const GateCheck& check = *find(slow, "speed", "server");
  EXPECT_NEAR(*check.effect, 1 / 1.1 - 1, 0.01);
  EXPECT_THAT(check.reason,
              AllOf(HasSubstr("server slower: speed against ar -"), HasSubstr("server 1"),
                    HasSubstr(" tok/s, ar "), HasSubstr("would be found")));
  EXPECT_THAT(check.causes, ElementsAre(Cause::kMethodSlower));
  EXPECT_GT(*check.detectable, 0.03);
  EXPECT_LT(*check.detectable, 0.06);
}

// What would be found four times in five is neither less nor much more.
TEST_F(ServerGate, TheDetectableLossIsFound) {
  const int64_t base = measure({});
  const double loss = *find(gate(base, measure({})), "speed", "server")->detectable;
  int found = 0;
  for (int i = 0; i < 40; ++i)
    found += gate(base, measure({.server = 1 / (1 - loss)})).code == ExitCode::kRegression;
  EXPECT_GE(found, 24) << loss;
  EXPECT_LE(found, 39) << loss;
}

TEST_F(ServerGate, SlowDownsOfGradedSizeOnAMachineThatDrifts) {
  const int64_t base = measure({});
  // A whole day slower or faster is in both times, whatever becomes of the server.
  for (const double machine : {0.8, 1.0, 1.3}) {
    for (const double slower : {0.9, 1.0, 1.01})
      EXPECT_EQ(gate(base, measure({.machine = machine, .server = slower})).code, ExitCode::kOk)
          << machine << " " << slower;
    for (const double slower : {1.06, 1.1, 1.2, 2.0}) {
      const GateResult g = gate(base, measure({.machine = machine, .server = slower}));
      EXPECT_EQ(g.code, ExitCode::kRegression) << machine << " " << slower << "\n" << to_text(g);
    }
    // At the margin nothing is proven, and nothing passes as fine.
    EXPECT_EQ(gate(base, measure({.machine = machine, .server = 1 / 0.97})).code,
              ExitCode::kInconclusive)
        << machine;
  }
}

TEST_F(ServerGate, ASlowerYardstickIsNoLossOfTheServer) {
  const GateResult slower = judge({}, {.ar = 1.1});
  EXPECT_EQ(slower.code, ExitCode::kOk) << to_text(slower);
  EXPECT_EQ(find(slower, "speed", "server")->outcome, Outcome::kImprovement);
  // A faster one cannot be told from a server that became slower on a faster machine.
  const GateResult faster = judge({}, {.ar = 0.9});
  EXPECT_EQ(faster.code, ExitCode::kRegression) << to_text(faster);
  EXPECT_THAT(find(faster, "speed", "server")->reason, HasSubstr("ar faster"));
  EXPECT_THAT(faster.warnings, IsEmpty());
  const int64_t base = measure({});
  run_.commit = "another";
  EXPECT_THAT(gate(base, measure({})).warnings,
              ElementsAre(AllOf(HasSubstr("commit 0123456789ab then and another now"),
                                HasSubstr("save a baseline"))));
}

TEST_F(ServerGate, WhatIsJudgedAgainstWhat) {
  SyntheticArm pld = tests::usual_arms()[2];
  run_.arms.push_back(server_arm("fast", "method"));
  run_.arms.push_back(pld);
  EXPECT_THAT(judged(yardsticks()), ElementsAre("server by ar", "fast by ar", "pld:k=4 by ar"));
  EXPECT_THAT(judged(yardsticks("server")), ElementsAre("fast by server", "pld:k=4 by server"));
  EXPECT_THAT(judged(yardsticks("none")), ElementsAre("server by ", "fast by ", "pld:k=4 by ar"));
  EXPECT_THAT(yardsticks("nobody").refusal, HasSubstr("'nobody' is no arm"));
  EXPECT_THAT(yardsticks("nobody").remedy, HasSubstr("server, ar, fast, pld:k=4"));
  EXPECT_THAT(yardsticks("server (A/A)").refusal, HasSubstr("is no arm"));
  // Plain decoding here says nothing of a machine elsewhere.
  run_.environment["endpoint.server.host"] = run_.environment["endpoint.fast.host"] = "gpu7";
  EXPECT_THAT(yardsticks().arms, testing::SizeIs(2));
  EXPECT_THAT(judged(yardsticks()), ElementsAre("fast by server", "pld:k=4 by ar"));
  run_.arms.erase(run_.arms.begin() + 3);
  EXPECT_THAT(yardsticks().refusal, HasSubstr("the server is elsewhere"));
  EXPECT_THAT(judged(yardsticks("ar")), ElementsAre("server by ar", "pld:k=4 by ar"));
  const int64_t run = measure({});
  EXPECT_THAT(gate(run, run, {.yardstick = "ar"}).warnings,
              ElementsAre(HasSubstr("the server is elsewhere")));
  run_.arms = tests::usual_arms();
  EXPECT_THAT(judged(yardsticks()), ElementsAre("pld:k=4 by ar"));
  EXPECT_THAT(yardsticks("ar").refusal, HasSubstr("has no servers"));
}

TEST_F(ServerGate, AServerAloneIsRefusedUnlessItsTimeIsTakenAsItIs) {
  run_.arms.pop_back();
  const int64_t base = measure({});
  const GateResult refused = gate(base, measure({}));
  EXPECT_EQ(refused.code, ExitCode::kNoBaseline);
  EXPECT_THAT(refused.summary, AllOf(HasSubstr("server has no yardstick"),
                                     HasSubstr("--methods ar"), HasSubstr("--yardstick none")));
  const GateOptions as_it_is = {.yardstick = "none"};
  const GateResult same = gate(base, measure({}), as_it_is);
  EXPECT_EQ(same.code, ExitCode::kOk) << to_text(same);
  EXPECT_THAT(same.warnings, ElementsAre(HasSubstr("moves with the machine")));
  const GateResult slow = gate(base, measure({.server = 1.1}), as_it_is);
  EXPECT_EQ(slow.code, ExitCode::kRegression) << to_text(slow);
  EXPECT_NEAR(*find(slow, "speed", "server")->effect, 1 / 1.1 - 1, 0.01);
  EXPECT_THAT(slow.summary, HasSubstr("tokens per second, without a yardstick, -9."));
  // That is the price.
  EXPECT_EQ(gate(base, measure({.machine = 1.1}), as_it_is).code, ExitCode::kRegression);
}

TEST_F(ServerGate, TwoServersAreEachOthersYardstick) {
  run_.arms[2] = server_arm("fast", "method");
  const int64_t base = measure({});
  EXPECT_EQ(gate(base, measure({.machine = 1.2})).code, ExitCode::kOk);
  const GateResult fast = gate(base, measure({.fast = 1.1}));
  EXPECT_EQ(fast.code, ExitCode::kRegression);
  EXPECT_THAT(fast.summary, HasSubstr("fast: fast slower: speed against server"));
  const GateResult first = gate(base, measure({.server = 1.1}));
  EXPECT_EQ(first.code, ExitCode::kRegression) << to_text(first);
  EXPECT_THAT(first.summary, HasSubstr("server slower"));
  // Where one is declared the yardstick, it is not judged.
  EXPECT_EQ(gate(base, measure({.server = 1.1}), {.yardstick = "server"}).code, ExitCode::kOk);
}

TEST_F(ServerGate, AnswersMayChangeAsMuchAsTheServerDoesByItself) {
  const auto changed = [](int share) {
    return [=](GenerationRecord& g, const SyntheticArm& a, int prompt, int) {
      if (a.label.starts_with("server") && prompt % share == 0) g.turns[0].tokens[3] += 1;
    };
  };
  const int64_t base = measure({});
  const GateResult one = gate(base, measure({.spoil = changed(24)}));
  EXPECT_EQ(one.code, ExitCode::kOk) << to_text(one);
  EXPECT_THAT(find(one, "answers", "server")->reason,
              AllOf(HasSubstr("23 of 24 answers"), HasSubstr("0 of 96")));
  const GateResult many = gate(base, measure({.spoil = changed(2)}));
  EXPECT_EQ(many.code, ExitCode::kCorrectness) << to_text(many);
  EXPECT_THAT(many.summary, HasSubstr("12 of 24 answers"));
  // A server that draws other tokens whenever it is asked: as many changes are none of its faults.
  const auto restless = [](GenerationRecord& g, const SyntheticArm& a, int prompt, int repeat) {
    if (a.label.starts_with("server") && prompt % 2 == 0)
      g.turns[0].tokens[3] += repeat + (a.role == "aa" ? 10 : 0);
  };
  const auto more = [=](GenerationRecord& g, const SyntheticArm& a, int prompt, int repeat) {
    restless(g, a, prompt, repeat);
    if (a.label.starts_with("server") && prompt % 2 == 0) g.turns[0].tokens[4] += 1;
  };
  const GateResult by_itself = judge({.spoil = restless}, {.spoil = more});
  EXPECT_EQ(by_itself.code, ExitCode::kOk) << to_text(by_itself);
  // Never asked twice, it is taken to agree with itself.
  run_.repeats = 1;
  run_.arms.erase(run_.arms.begin() + 1);
  const GateResult once = judge({}, {.spoil = changed(2)});
  EXPECT_EQ(once.code, ExitCode::kCorrectness) << to_text(once);
  EXPECT_THAT(once.summary, HasSubstr("never asked twice"));
}

TEST_F(ServerGate, DrawsThatNoSeedRepeatsAreNotCompared) {
  for (SyntheticArm& arm : run_.arms) arm.temperature = 1;
  for (size_t i : {0u, 1u}) run_.arms[i].settings["seeded"] = "no";
  const GateResult g =
      judge({}, {.spoil = [](GenerationRecord& r, const SyntheticArm& a, int, int) {
              if (a.label.starts_with("server")) r.turns[0].tokens[3] += 1;
            }});
  EXPECT_EQ(g.code, ExitCode::kOk) << to_text(g);
  EXPECT_THAT(find(g, "answers", "server")->reason, HasSubstr("not compared"));
}

TEST_F(ServerGate, TokensPerStepAreJudgedWhereTheServerCounts) {
  run_.arms.push_back(server_arm("fast", "method"));
  const int64_t base = measure({});
  const auto tau = [&](double value) {
    return gate(base, measure({.spoil = [=](GenerationRecord& g, const SyntheticArm& a, int, int) {
                  if (a.label == "fast") count_drafts(g.turns[0], value);
                }}));
  };
  const GateResult same = tau(2);
  EXPECT_EQ(same.code, ExitCode::kOk) << to_text(same);
  EXPECT_EQ(find(same, "tau", "server"), nullptr) << "it drafts nothing";
  EXPECT_THAT(find(same, "tau", "fast")->reason, HasSubstr("tau 2.0"));
  const GateResult fewer = tau(1.7);
  EXPECT_EQ(fewer.code, ExitCode::kRegression) << to_text(fewer);
  const GateCheck& check = *find(fewer, "tau", "fast");
  EXPECT_NEAR(*check.effect, 1.7 / 2 - 1, 0.02);
  EXPECT_THAT(check.reason, HasSubstr("alpha 0.25"));
  EXPECT_EQ(tau(2.4).code, ExitCode::kOk);
  const GateResult gone =
      gate(base, measure({.spoil = [](GenerationRecord& g, const SyntheticArm& a, int, int) {
             if (a.label == "fast") g.turns[0].endpoint = results::EndpointTurnRecord{};
           }}));
  EXPECT_EQ(gone.code, ExitCode::kRegression) << to_text(gone);
  EXPECT_THAT(gone.summary, HasSubstr("is its speculation on?"));
}

// A server is its name, its API, its model and its machine.
TEST_F(ServerGate, AnotherModelOrMachineIsAnotherServer) {
  run_.environment["endpoint.server.model"] = "m.gguf";
  run_.environment["endpoint.server.host"] = "this machine";
  const int64_t base = measure({});
  run_.environment["endpoint.server.model"] = "n.gguf";
  const GateResult model = gate(base, measure({}));
  EXPECT_EQ(model.code, ExitCode::kNoBaseline);
  EXPECT_THAT(model.summary, HasSubstr("server: model was m.gguf, is n.gguf"));
  run_.environment["endpoint.server.model"] = "m.gguf";
  run_.environment["endpoint.server.host"] = "gpu7";
  EXPECT_THAT(gate(base, measure({})).summary,
              HasSubstr("server: machine was this machine, is gpu7"));
}

TEST_F(ServerGate, TheSpreadOfSessionsIsThatOfWhatIsJudged) {
  std::vector<int64_t> sessions;
  for (const double factor : {1.0, 1.04, 0.96})
    sessions.push_back(measure({.machine = factor, .server = factor}, 0));
  EXPECT_NEAR(*session_spread(store_, sessions), 0.04, 0.001) << "the machine is in both times";
  EXPECT_NEAR(*session_spread(store_, sessions, {.yardstick = "none"}), 0.08, 0.002);
}

}  // namespace
}  // namespace evalrun::reports
