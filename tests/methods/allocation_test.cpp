// The step loop allocates nothing in steady state.
#include <gtest/gtest.h>

#include "tests/methods/support/counted_new.h"
#include "tests/methods/support/harness.h"
#include "tests/sample.h"

namespace evalrun::tests {
namespace {

// Whole turns of different length allocate equally often when steps allocate nothing.
int64_t allocations_of(methods::DecodingMethod& method, engine::Session& session, Turn turn,
                       int max_new, size_t& steps) {
  turn.max_new = max_new;
  const int64_t before = allocations();
  const auto record = run(method, session, turn);
  const int64_t used = allocations() - before;
  steps = record.steps.size();
  return used;
}

class SteadyState : public testing::TestWithParam<Arm> {};

TEST_P(SteadyState, StepsAllocateNothing) {
  const auto model = small_model(3);
  // Two of the three an arm: others for other arms of a method.
  for (const engine::SamplingParams& sampling :
       sample({engine::SamplingParams{}, engine::SamplingParams{1.0, 8, 0.9},
               engine::SamplingParams{1.0, 0, 1, engine::Sampler::kGumbel}},
              2)) {
    const auto session = make_session(model, 512);
    const auto method = build_arm(GetParam(), model, 512);
    Turn turn{{1, 2, 3, 1, 2, 3, 1, 2}};
    turn.sampling = sampling_for(GetParam(), sampling);
    size_t few = 0, many = 0;
    // Buffers reach their size, those too that change places with others.
    allocations_of(*method, *session, turn, 400, many);
    allocations_of(*method, *session, turn, 40, few);
    const int64_t short_turn = allocations_of(*method, *session, turn, 40, few);
    const int64_t long_turn = allocations_of(*method, *session, turn, 400, many);
    ASSERT_GT(many, few + 20);
    // A draft model that is asked now and then may catch up once in a long turn and never in a
    // short.
    if (is_too_dear(GetParam()))
      EXPECT_LE(long_turn, short_turn + 4) << many << " steps against " << few;
    else
      EXPECT_EQ(long_turn, short_turn) << many << " steps against " << few;
    EXPECT_GT(short_turn, 0) << "the counter does not count";
  }
}

// The same of three sequences, of which one has ended when the others go on.
TEST_P(SteadyState, BatchesAllocateNothing) {
  const auto model = small_model(3);
  for (const engine::SamplingParams& sampling :
       sample({engine::SamplingParams{}, engine::SamplingParams{1.0, 8, 0.9}}, 1)) {
    const auto session = make_session(model, 512, 3);
    const auto slots = methods::make_slots(build_arm(GetParam(), model, 512, 3), 3);
    std::vector<Turn> turns = {{{1, 2, 3, 1, 2, 3, 1, 2}}, {{4, 5, 4, 5}}, {{7, 7, 9, 7}}};
    for (Turn& turn : turns) turn.sampling = sampling_for(GetParam(), sampling);
    turns[2].max_new = 30;
    const auto used = [&](int max_new) {
      turns[0].max_new = turns[1].max_new = max_new;
      const int64_t before = allocations();
      run_batch(slots, *session, turns, methods::BatchMode::kStatic);
      return allocations() - before;
    };
    used(400), used(40);  // buffers reach their size, those too that change places with others
    const int64_t short_turns = used(40), long_turns = used(400);
    if (is_too_dear(GetParam()))
      EXPECT_LE(long_turns, short_turns + 12);  // as above, of each of three
    else
      EXPECT_EQ(long_turns, short_turns) << "steps allocate";
  }
}

// What is carried from answer to answer may grow, and buffers with it: not these.
std::vector<Arm> steady_arms() {
  std::vector<Arm> arms = all_arms();
  std::erase_if(arms, [](const Arm& arm) { return arm.carries_state; });
  // Texts are tokenized in every step there, and a tokenizer allocates.
  std::erase_if(arms, [](const Arm& arm) {
    return arm.name.starts_with("sps:") &&
           methods::parse_method(arm.name).params.text("vocab") != "same";
  });
  return arms;
}
INSTANTIATE_TEST_SUITE_P(Registry, SteadyState, testing::ValuesIn(steady_arms()),
                         [](const auto& arm) { return test_name(arm.param.name); });

}  // namespace
}  // namespace evalrun::tests
