// Properties every method must have, over the whole registry and random trees, on random models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "tests/methods/support/drafters.h"
#include "tests/methods/support/harness.h"
#include "tests/methods/support/text_tokens.h"

namespace evalrun::tests {
namespace {

using results::TurnRecord;

// What must hold for the record of any method.
void check_accounting(const TurnRecord& turn, const Turn& asked) {
  size_t emitted = 0;
  for (size_t i = 0; i < turn.steps.size(); ++i) {
    const auto& s = turn.steps[i];
    const bool last = i + 1 == turn.steps.size();
    EXPECT_GE(s.emitted, 1);
    EXPECT_LE(s.accepted, s.drafted_depth);
    EXPECT_LE(s.drafted_depth, s.drafted);
    EXPECT_GE(s.rows, s.drafted + 1);  // side rows besides
    EXPECT_EQ(s.target_forwards, 1);
    EXPECT_GE(s.draft_ns, 0);
    EXPECT_GT(s.verify_ns, 0);
    // One token of the target per step, unless the stop rule cut it.
    const bool whole = s.emitted == s.accepted + 1;
    const bool cut = last && s.emitted == s.accepted &&
                     (turn.stop == results::StopReason::kStopToken ||
                      turn.stop == results::StopReason::kStopString);
    EXPECT_TRUE(whole || cut) << "step " << i << ": " << s.accepted << " accepted, " << s.emitted
                              << " emitted";
    emitted += static_cast<size_t>(s.emitted);
  }
  EXPECT_EQ(emitted, turn.tokens.size() - 1);
  EXPECT_LE(turn.tokens.size(), static_cast<size_t>(asked.max_new));
  size_t stops = 0;
  for (int32_t token : turn.tokens)
    stops += static_cast<size_t>(std::count(asked.stop_ids.begin(), asked.stop_ids.end(), token));
  EXPECT_EQ(stops, turn.stop == results::StopReason::kStopToken ? 1u : 0u);
  if (stops > 0) {
    EXPECT_EQ(std::count(asked.stop_ids.begin(), asked.stop_ids.end(), turn.tokens.back()), 1);
  }
}

// Committed keys and values are the bits a session has that never drafted anything.
void check_cache(const engine::Session& session, const std::shared_ptr<const engine::Model>& model,
                 const Turn& asked, const TurnRecord& turn) {
  Tokens text = asked.prompt;
  text.insert(text.end(), turn.tokens.begin(), turn.tokens.end());
  // A cut last step has committed tokens after the ones kept; those are not compared.
  const int n = std::min(session.length(), static_cast<int>(text.size()));
  ASSERT_GE(n, static_cast<int>(asked.prompt.size()));
  const auto plain = make_session(model, session.capacity());
  plain->prefill(std::span<const int32_t>(text).first(static_cast<size_t>(n)));
  const auto width = static_cast<size_t>(model->config().kv_dim());
  std::vector<float> k(width), v(width), expected_k(width), expected_v(width);
  for (int layer = 0; layer < model->config().n_layers; ++layer) {
    for (int position = 0; position < n; ++position) {
      session.read_kv(layer, position, 0, k, v);
      plain->read_kv(layer, position, 0, expected_k, expected_v);
      ASSERT_EQ(k, expected_k) << "layer " << layer << ", position " << position << " of " << n;
      ASSERT_EQ(v, expected_v) << "layer " << layer << ", position " << position << " of " << n;
    }
  }
}

// Prompts that look like text: random, periodic, one token, the ids at both ends of the vocabulary.
std::vector<Tokens> prompts(int vocab, uint64_t seed) {
  base::Rng rng(seed);
  std::vector<Tokens> list = {{0}, {vocab - 1}, {0, vocab - 1, 0, vocab - 1, 0}};
  for (int n : {2, 3, 7, 20, 61}) list.push_back(random_tokens(rng, n, vocab));
  for (int period : {2, 5, 11}) {
    const Tokens piece = random_tokens(rng, period, vocab);
    Tokens prompt;
    while (prompt.size() < 30) prompt.insert(prompt.end(), piece.begin(), piece.end());
    list.push_back(prompt);
  }
  return list;
}

class EveryMethod : public testing::TestWithParam<Arm> {
 protected:
  std::unique_ptr<methods::DecodingMethod> build(
      const std::shared_ptr<const engine::Model>& model) {
    return build_arm(GetParam(), model);
  }
};

TEST_P(EveryMethod, GreedyTokensAreThoseOfPlainDecoding) {
  int64_t accepted = 0;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const auto model = small_model(seed);
    const auto ar = build_method("ar", model);
    const auto method = build(model);
    const auto plain = make_session(model), session = make_session(model);
    for (const Tokens& prompt : prompts(model->config().vocab_size, seed)) {
      const Turn turn{prompt};
      const TurnRecord expected = run(*ar, *plain, turn);
      const TurnRecord got = run(*method, *session, turn);
      ASSERT_EQ(got.tokens, expected.tokens) << "model " << seed;
      EXPECT_EQ(got.stop, results::StopReason::kLimit);
      EXPECT_EQ(expected.steps.size(), expected.tokens.size() - 1) << "tau of ar is exactly 1";
      check_accounting(got, turn);
      check_cache(*session, model, turn, got);
      for (const auto& s : got.steps) accepted += s.accepted;
    }
  }
  // Guards against a test that passes because nothing is ever accepted. Half of a two-layer model
  // is too expensive a draft to be used much by choice.
  const bool too_dear = is_too_dear(GetParam());
  if (GetParam().name != "ar" && !too_dear) {
    EXPECT_GT(accepted, 20);
  }
}

TEST_P(EveryMethod, NoStepHasMoreRowsThanTheLargest) {
  const auto model = small_model(1);
  const auto method = build(model);
  const int most = method->largest_step().rows;
  if (GetParam().name.starts_with("random trees")) {
    EXPECT_EQ(most, 0) << "a drafter that does not say";
    return;
  }
  EXPECT_GE(most, 1);
  EXPECT_LE(most, engine::kMaxRows);
  const auto session = make_session(model);
  for (const Tokens& prompt : prompts(model->config().vocab_size, 1)) {
    const TurnRecord turn = run(*method, *session, Turn{prompt});
    for (const auto& s : turn.steps) EXPECT_LE(s.rows, most);
  }
}

TEST_P(EveryMethod, StopTokensAndLimitsCutWherePlainDecodingIsCut) {
  base::Rng rng(5);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const auto model = small_model(seed, 10);  // so small that stop tokens are drafted
    const auto ar = build_method("ar", model);
    const auto method = build(model);
    const auto plain = make_session(model), session = make_session(model);
    for (int round = 0; round < 25; ++round) {
      Turn turn{random_tokens(rng, 1 + static_cast<int>(rng.below(12)), 10)};
      turn.max_new = 1 + static_cast<int>(rng.below(30));
      if (round % 5 != 0) turn.stop_ids = random_tokens(rng, 1, 10);
      if (round % 2 == 0) turn.sampling = sampling_for(GetParam(), {0.8, 0, 0.95});
      turn.seed = rng.next();
      if (!turn.sampling.greedy()) {
        check_accounting(run(*method, *session, turn), turn);
        continue;
      }
      const TurnRecord expected = run(*ar, *plain, turn);
      const TurnRecord got = run(*method, *session, turn);
      ASSERT_EQ(got.tokens, expected.tokens) << "model " << seed << ", round " << round;
      ASSERT_EQ(got.stop, expected.stop);
      check_accounting(got, turn);
      check_cache(*session, model, turn, got);
    }
  }
}

TEST_P(EveryMethod, StopTextsCutWherePlainDecodingIsCut) {
  // Strings of two and three letters over tokens of none to two: most span tokens.
  const TextTokens tokenizer({"a", "b", "ab", "", "{", "}", "ba", "\n", "}a", "aa"});
  const std::vector<methods::StopTextRules> rules = {
      {{"bab", "\na"}}, {{"aaa"}, true}, {{}, true}, {{"b{", "}\n", "aba"}}};
  base::Rng rng(8);
  int stopped = 0;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const auto model = small_model(seed, 10);
    const auto ar = build_method("ar", model);
    const auto method = build(model);
    const auto plain = make_session(model), session = make_session(model);
    for (int round = 0; round < 24; ++round) {
      methods::StopText stop(tokenizer, rules[static_cast<size_t>(round) % rules.size()]);
      Turn turn{random_tokens(rng, 1 + static_cast<int>(rng.below(12)), 10)};
      if (round % 3 == 0) turn.stop_ids = random_tokens(rng, 1, 10);
      const TurnRecord whole = run(*ar, *plain, turn);  // without the stop text
      turn.stop_text = &stop;
      const TurnRecord expected = run(*ar, *plain, turn);
      const TurnRecord got = run(*method, *session, turn);
      ASSERT_EQ(got.tokens, expected.tokens) << "model " << seed << ", round " << round;
      ASSERT_EQ(got.stop, expected.stop);
      ASSERT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), whole.tokens.begin()));
      EXPECT_EQ(got.stop == results::StopReason::kStopString,
                got.tokens.size() < whole.tokens.size() || got.stop != whole.stop);
      check_accounting(got, turn);
      check_cache(*session, model, turn, got);
      stopped += got.stop == results::StopReason::kStopString;
    }
  }
  EXPECT_GT(stopped, 20);
}

TEST_P(EveryMethod, SecondTurnsAreThoseOfPlainDecoding) {
  base::Rng rng(6);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const auto model = small_model(seed);
    const auto ar = build_method("ar", model);
    const auto method = build(model);
    const auto plain = make_session(model), session = make_session(model);
    Turn first{random_tokens(rng, 17, 24)};
    first.max_new = 20;
    const TurnRecord answer = run(*method, *session, first);
    ASSERT_EQ(answer.tokens, run(*ar, *plain, first).tokens);
    Turn second{first.prompt, 17};
    second.prompt.insert(second.prompt.end(), answer.tokens.begin(), answer.tokens.end());
    const Tokens question = random_tokens(rng, 9, 24);
    second.prompt.insert(second.prompt.end(), question.begin(), question.end());
    const TurnRecord got = run(*method, *session, second);
    ASSERT_EQ(got.tokens, run(*ar, *plain, second).tokens);
    check_cache(*session, model, second, got);
    // Keeping the first prompt saves work and changes nothing.
    second.keep = 0;
    EXPECT_EQ(run(*method, *session, second).tokens, got.tokens);
  }
}

TEST_P(EveryMethod, FillsTheContextLikePlainDecoding) {
  const auto model = small_model(2);
  for (int capacity : {5, 16, 33}) {
    const auto plain = make_session(model, capacity), session = make_session(model, capacity);
    const auto ar = build_method("ar", model, capacity);
    const auto method = build_arm(GetParam(), model, capacity);
    const Turn turn{{3, 1, 3, 1, 3}, 0, 64};
    const TurnRecord expected = run(*ar, *plain, turn);
    const TurnRecord got = run(*method, *session, turn);
    EXPECT_EQ(got.stop, results::StopReason::kContextFull);
    EXPECT_EQ(got.tokens, expected.tokens) << capacity;
    EXPECT_EQ(got.tokens.size(), static_cast<size_t>(capacity - 5 + 1));
  }
}

TEST_P(EveryMethod, GenerationsDoNotDependOnWhatRanBefore) {
  base::Rng rng(8);
  const auto model = small_model(3);
  std::vector<Turn> turns;
  for (int i = 0; i < 6; ++i) {
    Turn turn{random_tokens(rng, 1 + static_cast<int>(rng.below(20)), 24)};
    turn.max_new = 1 + static_cast<int>(rng.below(40));
    if (i % 2 == 0) turn.sampling = sampling_for(GetParam(), {1.0, 0, 0.9});
    if (i % 3 == 0) turn.stop_ids = {7};
    turn.seed = rng.next();
    turns.push_back(turn);
  }
  std::vector<TurnRecord> fresh;
  for (const Turn& turn : turns) fresh.push_back(run(*build(model), *make_session(model), turn));
  const auto method = build(model);
  const auto session = make_session(model);
  for (int i = 0; i < 40; ++i) {
    const size_t which = rng.below(turns.size());
    // Steps that depend on earlier answers take other random numbers.
    if (GetParam().carries_state && !turns[which].sampling.greedy()) continue;
    const TurnRecord got = run(*method, *session, turns[which]);
    ASSERT_EQ(got.tokens, fresh[which].tokens) << "generation " << i;
    if (GetParam().carries_state) continue;
    ASSERT_EQ(got.steps.size(), fresh[which].steps.size()) << "generation " << i;
    for (size_t s = 0; s < got.steps.size(); ++s) {
      ASSERT_EQ(got.steps[s].accepted, fresh[which].steps[s].accepted);
      ASSERT_EQ(got.steps[s].rows, fresh[which].steps[s].rows);
    }
  }
}

TEST_P(EveryMethod, SeedsReproduceAndMatter) {
  const auto model = small_model(4);
  const auto method = build(model);
  const auto session = make_session(model);
  Turn turn{{1, 2, 3, 1, 2, 3, 1, 2}};
  turn.sampling = sampling_for(GetParam(), {1.0, 0, 1.0});
  std::vector<Tokens> seen;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    turn.seed = seed;
    const TurnRecord once = run(*method, *session, turn);
    if (!GetParam().carries_state) {
      EXPECT_EQ(run(*method, *session, turn).tokens, once.tokens);
    }
    // Typical acceptance leaves next to nothing to chance.
    if (!GetParam().lossy) {
      EXPECT_EQ(std::count(seen.begin(), seen.end(), once.tokens), 0);
    }
    seen.push_back(once.tokens);
    check_accounting(once, turn);
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryMethod, testing::ValuesIn(all_arms()),
                         [](const auto& arm) { return test_name(arm.param.name); });

// A new parameter has arms by itself. These have none, for a reason.
TEST(Arms, HaveEveryChoiceAndSwitchOfTheRegistry) {
  const std::vector<std::string> left_out = {
      // Plain decoding of a model that is not the run's (tests/methods/masks/).
      "ar_tuned:any_target=false", "ar_tuned:any_target=true",
      // Lossless in no mode.
      "pad:init=prompt", "pad:init=vocabulary"};
  EXPECT_THAT(values_without_an_arm(), testing::UnorderedElementsAreArray(left_out));
}

// What decides a position is keyed by it (base::KeyedChance): where no draft is drawn, where drawn
// ones must match the target's own draw, and where both draw by the same noise, sampled texts are
// plain decoding's token by token, not only in distribution.
class SampledTokens : public testing::TestWithParam<Arm> {};

TEST_P(SampledTokens, AreThoseOfPlainDecoding) {
  base::Rng rng(10);
  const auto model = small_model(5, 12);
  const auto plain = make_session(model), session = make_session(model);
  const auto ar = build_method("ar", model);
  const Arm& arm = GetParam();
  const auto method = build_arm(arm, model);
  int equal = 0, accepted = 0;
  for (const engine::Sampler sampler : {engine::Sampler::kInverse, engine::Sampler::kGumbel})
    for (const engine::SamplingParams& way :
         {engine::SamplingParams{0.9, 8, 0.95}, engine::SamplingParams{0.5, 0, 1},
          engine::SamplingParams{1.2, 0, 1}}) {
      Turn turn;
      turn.sampling = sampling_for(arm, way);
      if (turn.sampling.sampler == engine::Sampler::kInverse) turn.sampling.sampler = sampler;
      if (arm.lossy || !gives_the_same_tokens(arm, turn.sampling)) continue;
      for (int i = 0; i < 6; ++i) {
        turn.prompt = random_tokens(rng, 10, 12);
        turn.seed = rng.next();
        const TurnRecord got = run(*method, *session, turn);
        ASSERT_EQ(got.tokens, run(*ar, *plain, turn).tokens);
        ++equal;
        for (const auto& step : got.steps) accepted += step.accepted;
      }
    }
  const bool rejects = arm.name.find("verify=rejection") != arm.name.npos ||
                       arm.name.find("verify=block") != arm.name.npos ||
                       arm.name.find("verify=gbv") != arm.name.npos ||
                       arm.name.find("draft=traversal") != arm.name.npos ||
                       arm.name.find("accept_scale") != arm.name.npos;
  if (!arm.lossy && !rejects) {
    EXPECT_GE(equal, 18) << "by one of the samplers at least";
  }
  if (equal > 0 && arm.name != "ar" && arm.name.find("adaptive=true") == arm.name.npos) {
    EXPECT_GT(accepted, 0) << "nothing was accepted: nothing is shown";
  }
  // So cold that the likeliest token has all of the mass: greedy tokens, whatever the rule.
  if (arm.lossy) return;
  Turn cold{random_tokens(rng, 10, 12)};
  cold.max_new = 12;
  const Tokens greedy = run(*ar, *plain, cold).tokens;
  for (const engine::Sampler sampler : {engine::Sampler::kInverse, engine::Sampler::kGumbel})
    for (const double temperature : {1e-300, 5e-324}) {
      cold.sampling = sampling_for(arm, {temperature, 0, 1, sampler});
      EXPECT_EQ(run(*method, *session, cold).tokens, greedy)
          << "T = " << temperature << ", " << engine::to_string(sampler);
    }
}

INSTANTIATE_TEST_SUITE_P(Registry, SampledTokens, testing::ValuesIn(all_arms()),
                         [](const auto& arm) { return test_name(arm.param.name); });

// A node has two children at most, and lists of choices are used up by them.
TEST(TwoTokens, TreesAndNoiseGivePlainDecodingsTokens) {
  const auto model = small_model(5, 2);
  const auto plain = make_session(model), session = make_session(model);
  const auto ar = build_method("ar", model);
  std::vector<Arm> arms;
  for (const Arm& arm : all_arms())
    if (arm.name.starts_with("random trees")) arms.push_back(arm);
  ASSERT_FALSE(arms.empty());
  for (const char* spec :
       {"pld:k=4,match=recent,candidates=4", "medusa:adapter=@medusa,draft=best",
        "medusa:adapter=@medusa,draft=drawn", "medusa:adapter=@medusa,draft=matched",
        "eagle:adapter=@eagle", "eagle2:adapter=@eagle,k=3,levels=8,total=20",
        "falcon:adapter=@falcon,tree=falcon_llama", "bita:adapter=@bita", "pass:adapter=@pass",
        "sps:draft=layers:1,k=3,verify=match", "sps:draft=layers:1,k=3,verify=rejection",
        "sps:draft=trained,adapter=@draft,k=3,verify=gumbel"})
    arms.push_back(arm_of(spec));
  base::Rng rng(12);
  size_t equal = 0;
  int siblings = 0;
  for (const Arm& arm : arms)
    for (const engine::Sampler sampler : {engine::Sampler::kInverse, engine::Sampler::kGumbel}) {
      SCOPED_TRACE(fmt::format("{}, {}", arm.name, engine::to_string(sampler)));
      const auto method = build_arm(arm, model);
      Turn turn{random_tokens(rng, 10, 2)};
      turn.max_new = 24;
      turn.sampling = sampling_for(arm, {1, 0, 1, sampler});
      turn.seed = rng.next();
      const TurnRecord got = run(*method, *session, turn);
      check_accounting(got, turn);
      for (const auto& step : got.steps) siblings += step.drafted > step.drafted_depth ? 1 : 0;
      if (!gives_the_same_tokens(arm, turn.sampling)) continue;
      EXPECT_EQ(got.tokens, run(*ar, *plain, turn).tokens);
      ++equal;
    }
  EXPECT_GE(equal, arms.size()) << "by one of the samplers at least, but for verify=rejection";
  EXPECT_GT(siblings, 20) << "there are no trees";
}

// The oldest sanity check of speculative sampling: a draft model equal to the target is always
// right.
TEST(SpeculativeSampling, DraftEqualToTheTargetIsAlwaysAccepted) {
  const auto model = small_model(6);
  const auto session = make_session(model);
  const auto method = build_method("sps:draft=layers:2,k=5", model);
  for (const engine::SamplingParams& sampling :
       {engine::SamplingParams{}, engine::SamplingParams{1.0, 0, 1.0},
        engine::SamplingParams{0.7, 10, 0.9}}) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      Turn turn{{5, 6, 7, 5}, 0, 61};  // 60 tokens after the first: ten steps of six
      turn.sampling = sampling;
      turn.seed = seed;
      const TurnRecord got = run(*method, *session, turn);
      ASSERT_EQ(got.steps.size(), 10u);
      for (const auto& s : got.steps) {
        EXPECT_EQ(s.drafted, 5);
        EXPECT_EQ(s.accepted, 5);
      }
    }
  }
}

}  // namespace
}  // namespace evalrun::tests
