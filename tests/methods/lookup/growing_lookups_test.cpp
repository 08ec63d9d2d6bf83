// What suffix, sam and ngram_mod draft for texts that are checked by hand, and what they keep.
#include <gmock/gmock.h>

#include "engine/base/error.h"
#include "methods/corpus/suffix_corpus.h"
#include "methods/decode_batch.h"
#include "methods/lookup/next_token_table.h"
#include "tests/methods/support/corpora.h"
#include "tests/methods/support/fake_session.h"
#include "tests/methods/support/first_draft.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests::growing_lookups_test {
namespace {

using methods::NextTokenTable;
using methods::StepReproducibility;
using testing::ElementsAre;

TEST(Suffix, DraftsAsManyTokensAsMatchTimesAlpha) {
  const Tokens prompt = {9, 7, 7, 1, 9, 3, 4, 5, 1};  // then the root, 9
  EXPECT_THAT(FirstDraft().of("suffix", prompt), ElementsAre(3, 4)) << "two tokens match";
  EXPECT_THAT(FirstDraft().of("suffix:alpha=2", prompt), ElementsAre(3, 4, 5, 1));
  EXPECT_THAT(FirstDraft().of("suffix:alpha=2,nodes=3", prompt), ElementsAre(3, 4, 5));
  EXPECT_THAT(FirstDraft().of("suffix:alpha=2,depth=4", prompt), ElementsAre(3, 4))
      << "match and draft";
  EXPECT_THAT(FirstDraft().of("suffix:alpha=0.4", prompt), ElementsAre());
  EXPECT_THAT(FirstDraft().of("suffix", {1, 2, 3}), ElementsAre());
}

TEST(Suffix, DraftsWhatFollowedMostOften) {
  const Tokens prompt = {9, 2, 8, 9, 3, 7, 9, 3, 6, 1};  // 9 was followed by 2, 3, 3
  EXPECT_THAT(FirstDraft().of("suffix", prompt), ElementsAre(3));
  EXPECT_THAT(FirstDraft().of("suffix:shape=path,alpha=2,min_prob=0.2", prompt), ElementsAre(3, 6))
      << "of 6 and 7, once each, the one seen last";
  EXPECT_THAT(FirstDraft().of("suffix:shape=path,alpha=2,min_prob=0.5", prompt), ElementsAre(3));
  EXPECT_THAT(FirstDraft().of("suffix:min_prob=0.7", prompt), ElementsAre()) << "two of three";
}

TEST(Suffix, KeepsToTheTokensThatAreLeftAndEndsBeforeStopTokens) {
  EXPECT_THAT(FirstDraft().of("suffix:alpha=2", {1, 9, 3, 4, 1}, {4}), ElementsAre(3));
  EXPECT_THAT(FirstDraft().of("suffix:alpha=2", {1, 9, 3, 4, 1}, {3}), ElementsAre());
  EXPECT_THAT(FirstDraft().of("suffix:alpha=2", {1, 9, 3, 4, 1}, {}, 3), ElementsAre(3));
}

TEST(Sam, DraftsWhatFollowedTheLongestMatch) {
  const Tokens prompt = {9, 7, 7, 1, 9, 3, 4, 5, 1};  // then the root, 9
  EXPECT_THAT(FirstDraft().of("sam", prompt), ElementsAre(3, 4, 5, 1, 9));
  EXPECT_THAT(FirstDraft().of("sam:k=3", prompt), ElementsAre(3, 4, 5));
  EXPECT_THAT(FirstDraft().of("sam:min_match=2,k=1", prompt), ElementsAre(3));
  EXPECT_THAT(FirstDraft().of("sam:min_match=3", prompt), ElementsAre());
  EXPECT_THAT(FirstDraft().of("sam", {1, 2, 3}), ElementsAre());
  EXPECT_THAT(FirstDraft().of("sam:k=1", {9, 3, 8, 9, 4, 1}), ElementsAre(3)) << "the first";
  EXPECT_THAT(FirstDraft().of("sam", {1, 9, 3, 4, 1}, {4}), ElementsAre(3));
  EXPECT_THAT(FirstDraft().of("sam", {1, 9, 3, 4, 1}, {}, 3), ElementsAre(3));
}

TEST(Sam, TakesACorpusWithAMatchThatIsLongerByBias) {
  const TempFolder folder;
  const std::string path = folder.file("a.suffixes");
  const Documents documents = {{5, 1, 2, 9, 6, 6}, {8, 8}};
  methods::build_suffix_corpus(path, corpus_text(documents, {"", 10}));
  const std::string spec = "sam:corpus=" + path;
  const Tokens prompt = {2, 9, 4, 5, 1, 2};  // then 9: four tokens match there, two here
  EXPECT_THAT(FirstDraft().of(spec + ",bias=1", prompt), ElementsAre(6, 6)) << "8 is another text";
  EXPECT_THAT(FirstDraft().of(spec + ",bias=2,k=2", prompt), ElementsAre(4, 5));
  EXPECT_THAT(FirstDraft().of(spec + ",bias=0,min_match=4", prompt), ElementsAre(6, 6));
  EXPECT_THAT(FirstDraft().of(spec + ",bias=1,min_match=4", prompt), ElementsAre());
  const auto method = build_method(spec, small_model(1, 10));
  EXPECT_GT(method->extra_parameter_bytes(), 0u);
  EXPECT_EQ(build_method("sam", small_model(1, 10))->extra_parameter_bytes(), 0u);
  const methods::MethodSpec parsed = methods::parse_method(spec);
  methods::MethodBuildContext context;
  context.target = small_model(1, 10);
  EXPECT_THAT(
      parsed.info->files(parsed.params, context),
      ElementsAre(testing::Pair("corpus", methods::SuffixCorpus(path).info().content_hash)));
}

TEST(NgramMod, GoesFromHashToHash) {
  const std::string spec = "ngram_mod:entries=4096,n_match=2";
  const Tokens prompt = {1, 9, 3, 4, 1};  // then the root, 9
  EXPECT_THAT(FirstDraft().of(spec + ",n_min=0", prompt), ElementsAre(3, 4, 1));
  EXPECT_THAT(FirstDraft().of(spec + ",n_min=3", prompt), ElementsAre(3, 4, 1));
  EXPECT_THAT(FirstDraft().of(spec + ",n_min=4", prompt), ElementsAre());
  EXPECT_THAT(FirstDraft().of(spec + ",n_min=0,n_max=2", prompt), ElementsAre(3, 4));
  EXPECT_THAT(FirstDraft().of(spec + ",n_min=3", prompt, {4}), ElementsAre(3));
  EXPECT_THAT(FirstDraft().of(spec + ",n_min=3", prompt, {}, 3), ElementsAre(3));
  EXPECT_THAT(FirstDraft().of("ngram_mod:entries=4096,n_min=0", prompt), ElementsAre())
      << "shorter than n_match";
  // The latest follower of two.
  EXPECT_THAT(FirstDraft().of(spec + ",n_min=0,n_max=1", {1, 9, 3, 1, 9, 4, 1}), ElementsAre(4));
}

TEST(NgramMod, RefusesAMinimumAboveItsMaximum) {
  EXPECT_THROW(methods::parse_method("ngram_mod:n_min=9,n_max=8"), base::Error);
}

TEST(NextTokenTable, KeepsTheLastOfWhatCollides) {
  base::Rng rng(3);
  NextTokenTable table(17);
  std::vector<int32_t> plain(17, -1);
  size_t used = 0;
  for (int i = 0; i < 200; ++i) {
    const Tokens gram = random_tokens(rng, 3, 50);
    const size_t entry = table.entry_of(gram);
    ASSERT_LT(entry, plain.size());
    ASSERT_EQ(table.find(gram), plain[entry]);
    used += plain[entry] < 0;
    plain[entry] = static_cast<int32_t>(rng.below(50));
    table.add(gram, plain[entry]);
    ASSERT_EQ(table.find(gram), plain[entry]);
    ASSERT_EQ(table.used(), used);
    if (i % 60 != 59) continue;
    table.clear();
    plain.assign(plain.size(), -1);
    used = 0;
  }
}

// The next token is the one after the last, round and round.
LogitTable round_of_tokens(int vocab) {
  return [vocab](std::span<const int32_t> context, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    logits[static_cast<size_t>((context.back() + 1) % vocab)] = 1;
  };
}

constexpr int kRound = 50;

// Steps of an answer of 40 tokens in which nothing repeats.
size_t steps_of(methods::DecodingMethod& method) {
  FakeSession session(kRound, 4000, round_of_tokens(kRound));
  Turn turn{{0, 1, 2, 3, 4, 5}};
  turn.max_new = 40;
  session.reset();
  return run(method, session, turn).steps.size();
}

struct Kept {
  std::string spec;
  size_t most;  // steps where the answer is known
};
const std::vector<Kept> kKept = {
    {"suffix", 8},  // 1, 3, 7, ... tokens
    {"suffix:alpha=8", 5},
    {"sam:bias=0", 4},
    {"ngram_mod:entries=4096,n_match=2,n_min=0", 15},  // the last tokens were not learnt
};

TEST(GrowingLookups, KeepTheAnswerAsTheirStateSays) {
  for (const Kept& kept : kKept)
    for (const std::string state : {"cold", "warm", "shared"}) {
      const std::string spec =
          kept.spec + (kept.spec.find(':') == std::string::npos ? ":" : ",") + "state=" + state;
      const auto slots =
          methods::make_slots(build_arm(arm_of(spec), small_model(1, kRound), 256, 2), 2);
      EXPECT_EQ(steps_of(*slots[0]), 39u) << spec;
      const size_t again = steps_of(*slots[0]), beside = steps_of(*slots[1]);
      if (state == "cold")
        EXPECT_EQ(again, 39u) << spec;
      else
        EXPECT_LE(again, kept.most) << spec;
      if (state == "shared")
        EXPECT_LE(beside, kept.most) << spec;
      else
        EXPECT_EQ(beside, 39u) << spec;
    }
}

// Both values that keep something say so, whatever is adaptive.
TEST(GrowingLookups, SayWhichStepsDependOnOrder) {
  for (const std::string method : {"suffix", "sam", "ngram_mod"}) {
    const auto steps = [&](const std::string& parameters) {
      return methods::parse_method(method + ":" + parameters).steps();
    };
    EXPECT_EQ(steps("state=cold"), StepReproducibility::kFixed);
    EXPECT_EQ(steps("state=warm"), StepReproducibility::kCarryState);
    EXPECT_EQ(steps("state=shared,adaptive=true"), StepReproducibility::kCarryState);
    EXPECT_EQ(steps("adaptive=true"), StepReproducibility::kFollowMachine);
  }
}

// A table that misleads three times running is emptied.
TEST(NgramMod, ForgetsWhatMisleads) {
  constexpr int kVocab = 40;
  const auto method =
      build_method("ngram_mod:entries=4096,n_match=2,n_min=0,n_max=8", small_model(1, kVocab));
  const Tokens prompt = {1, 2, 14, 26, 1, 2, 14};  // 1 2 is followed by 14
  FakeSession session(kVocab, 4000, [](std::span<const int32_t> context, std::span<float> logits) {
    // By others in the answer, 1 2 x 1 2 y ..., of which nothing is learnt in 30 tokens.
    std::fill(logits.begin(), logits.end(), 0.0f);
    const int32_t last = context.back();
    size_t next = 1;
    if (last == 1)
      next = 2;
    else if (last == 2)
      next = 27 + (context.size() / 3) % 12;
    logits[next] = 1;
  });
  Turn turn{prompt};
  turn.max_new = 30;
  session.reset();
  const results::TurnRecord got = run(*method, session, turn);
  int drafts = 0;
  for (const auto& step : got.steps) drafts += step.drafted > 0;
  EXPECT_EQ(drafts, 3) << "then nothing is left to draft from";
  EXPECT_GT(got.steps.size(), 20u);
}

}  // namespace
}  // namespace evalrun::tests::growing_lookups_test
