// Synthetic acceptance: drafts of a known text that are right as often as they were asked to be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/error.h"
#include "tests/methods/support/fake_session.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests::synthetic_acceptance_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kIds = 24, kRoom = 4200;

FakeSession fake_session(int sequences = 1) {
  return {kIds, kRoom, markov_table(11, 3, 4.0f), sequences};
}
std::unique_ptr<methods::DecodingMethod> oracle(const std::string& parameters) {
  return build_method("oracle:" + parameters, small_model(1, kIds));
}
Tokens plain_answer(const Turn& turn) {
  FakeSession session = fake_session();
  return run(*build_method("ar", small_model(1, kIds)), session, turn).tokens;
}
results::TurnRecord run_knowing(methods::DecodingMethod& method, engine::Session& session,
                                const Turn& turn, const Tokens& answer) {
  methods::TurnRequest request = request_of(turn);
  request.known_answer = answer;
  base::SteadyClock clock;
  return methods::decode_turn(method, session, request, clock);
}
results::TurnRecord run_knowing(const std::string& parameters, const Turn& turn) {
  FakeSession session = fake_session();
  return run_knowing(*oracle(parameters), session, turn, plain_answer(turn));
}
std::vector<int> accepted_of(const results::TurnRecord& turn) {
  std::vector<int> accepted;
  for (const results::StepRecord& step : turn.steps) accepted.push_back(step.accepted);
  return accepted;
}

// Tokens of a step: 1 + the sum of joint probabilities. Four standard errors.
TEST(SyntheticAcceptance, TauIsWhatTheAcceptanceGives) {
  struct Case {
    double alpha, decay;
    int k;
  };
  const Turn turn{.prompt = {1, 2, 3}, .max_new = 4000, .seed = 5};
  const Tokens answer = plain_answer(turn);
  for (const auto& [alpha, decay, k] : {Case{0.8, 1, 4}, Case{0.9, 0.8, 6}, Case{0.3, 1, 3}}) {
    FakeSession session = fake_session();
    const auto method = oracle(fmt::format("alpha={},decay={},k={}", alpha, decay, k));
    const results::TurnRecord got = run_knowing(*method, session, turn, answer);
    ASSERT_EQ(got.tokens, answer);
    double mean = 1, second = 0, joint = 1;  // moments of the tokens of a step
    for (int d = 1; d <= k; ++d) {
      const double before = joint, rate = alpha * std::pow(decay, d - 1);
      joint *= rate;
      mean += joint;
      second += (before - joint) * d * d;  // d - 1 accepted
      const results::NodeCount& node = got.nodes[static_cast<size_t>(d - 1)];
      const auto tested = static_cast<double>(node.tested);
      EXPECT_EQ(node.depth, d);
      EXPECT_NEAR(static_cast<double>(node.accepted) / tested, rate,
                  4 * std::sqrt(rate * (1 - rate) / tested) + 1e-12)
          << "depth " << d;
    }
    second += joint * (k + 1) * (k + 1);
    const auto steps = static_cast<double>(got.steps.size());
    const double tau = static_cast<double>(answer.size() - 1) / steps;
    EXPECT_NEAR(tau, mean, 4 * std::sqrt((second - mean * mean) / steps))
        << "alpha=" << alpha << ", decay=" << decay << ", k=" << k;
  }
}

TEST(SyntheticAcceptance, AlwaysAndNever) {
  const Turn turn{.prompt = {1, 2, 3}, .max_new = 1 + 4 * 10, .seed = 5};
  EXPECT_EQ(run_knowing("alpha=1,k=3", turn).steps.size(), 10u) << "three drafts and the bonus";
  const results::TurnRecord none = run_knowing("alpha=0,k=3", turn);
  EXPECT_EQ(none.steps.size(), 40u);
  EXPECT_EQ(none.steps.front().rows, 4) << "wrong tokens are computed all the same";
  const results::TurnRecord first = run_knowing("alpha=1,decay=0,k=3", turn);
  EXPECT_EQ(first.steps.size(), 20u) << "the first token alone is right";
}

TEST(SyntheticAcceptance, TheSeedDecidesAndNeitherBatchNorOrder) {
  Turn one{.prompt = {1, 2, 3}, .max_new = 60, .seed = 5};
  Turn two{.prompt = {7, 2}, .max_new = 45, .seed = 6};
  const Tokens answer_one = plain_answer(one), answer_two = plain_answer(two);
  const std::string parameters = "alpha=0.6,k=5";
  const results::TurnRecord alone_one = run_knowing(parameters, one);
  const results::TurnRecord alone_two = run_knowing(parameters, two);
  FakeSession session = fake_session(2);
  const auto slots = methods::make_slots(oracle(parameters), 2);
  std::vector<methods::TurnRequest> requests = {request_of(two), request_of(one)};
  requests[0].known_answer = answer_two, requests[1].known_answer = answer_one;
  std::vector<results::TurnRecord> together(2);
  methods::RequestList list(requests, [&](size_t request, results::TurnRecord record) {
    together[request] = std::move(record);
  });
  const std::vector<methods::DecodingMethod*> objects = {slots[0].get(), slots[1].get()};
  base::SteadyClock clock;
  methods::decode_batch(objects, session, list, methods::BatchMode::kStatic, clock);
  EXPECT_EQ(accepted_of(together[1]), accepted_of(alone_one));
  EXPECT_EQ(accepted_of(together[0]), accepted_of(alone_two));
  EXPECT_EQ(together[1].tokens, answer_one);
  Turn other = one;
  other.seed = 99;  // greedy: the same text
  const results::TurnRecord drawn_anew = run_knowing(parameters, other);
  EXPECT_EQ(drawn_anew.tokens, answer_one);
  EXPECT_NE(accepted_of(drawn_anew), accepted_of(alone_one));
}

TEST(SyntheticAcceptance, KnowsSampledAnswersOfTheSeed) {
  for (const engine::Sampler sampler : {engine::Sampler::kInverse, engine::Sampler::kGumbel}) {
    Turn turn{.prompt = {1, 2, 3}, .max_new = 1 + 4 * 6, .seed = 8};
    turn.sampling.temperature = 1;
    turn.sampling.sampler = sampler;
    const Tokens answer = plain_answer(turn);
    const results::TurnRecord all = run_knowing("alpha=1,k=3", turn);
    EXPECT_EQ(all.tokens, answer);
    EXPECT_EQ(all.steps.size(), 6u);
    const results::TurnRecord some = run_knowing("alpha=0.5,k=3", turn);
    EXPECT_EQ(some.tokens, answer);
    EXPECT_GT(some.steps.size(), 6u);
  }
}

// Lossless by verification, whatever it was told.
TEST(SyntheticAcceptance, AWrongAnswerCostsStepsAlone) {
  const Turn turn{.prompt = {1, 2, 3}, .max_new = 200, .seed = 5};
  base::Rng rng(3);
  FakeSession session = fake_session();
  const results::TurnRecord got =
      run_knowing(*oracle("alpha=1,k=4"), session, turn, random_tokens(rng, 150, kIds));
  EXPECT_EQ(got.tokens, plain_answer(turn));
  EXPECT_GT(got.steps.size(), 150u);
}

TEST(SyntheticAcceptance, EndsWithTheAnswer) {
  Turn turn{.prompt = {1, 2, 3}, .max_new = 200, .seed = 5};
  turn.stop_ids = {plain_answer(turn)[50]};
  const Tokens answer = plain_answer(turn);
  ASSERT_LE(answer.size(), 51u);
  const results::TurnRecord got = run_knowing("alpha=1,k=9", turn);
  EXPECT_EQ(got.tokens, answer);
  EXPECT_EQ(got.stop, results::StopReason::kStopToken);
}

TEST(SyntheticAcceptance, DraftsWhatPaysWhereItIsAdaptive) {
  const auto rows = [](double of_64_ms) {
    engine::RowCostTable table;
    table.rows = {{1, 10, 10, 10, {}}, {64, of_64_ms, of_64_ms, of_64_ms, {}}};
    methods::MethodBuildContext context;
    context.target = small_model(1, kIds);
    context.row_cost = &table;
    const methods::MethodSpec spec = methods::parse_method("oracle:adaptive=true,alpha=0.9,k=7");
    const auto method = spec.info->build(spec.params, context);
    const Turn turn{.prompt = {1, 2, 3}, .max_new = 64, .seed = 5};
    FakeSession session = fake_session();
    return run_knowing(*method, session, turn, plain_answer(turn)).steps.front().rows;
  };
  EXPECT_EQ(rows(10), 8) << "rows cost nothing";
  EXPECT_EQ(rows(640), 1) << "a row costs as much as a step";
}

TEST(SyntheticAcceptance, RefusesWhereNobodyGivesTheAnswer) {
  FakeSession session = fake_session();
  try {
    run(*oracle("k=2"), session, {.prompt = {1, 2, 3}, .max_new = 4});
    FAIL() << "no error";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    EXPECT_THAT(e.what(),
                AllOf(HasSubstr("drafts from plain decoding's answer"), HasSubstr("evalrun run")));
  }
}

}  // namespace
}  // namespace evalrun::tests::synthetic_acceptance_test
