// A look-up that drafts for the draft model (levels=pld): the drafts are those without it, token by
// token, by whatever rule, and take fewer forwards of the draft model where the text repeats.
#include "methods/model_draft/draft_lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "engine/base/error.h"
#include "methods/model_draft/model_drafter.h"
#include "methods/speculative_method.h"
#include "tests/methods/support/fake_session.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests::draft_lookup_test {
namespace {

using engine::SamplingParams;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<int32_t> guessed(const Tokens& text, const Tokens& drafted, int most) {
  methods::DraftLookup lookup;
  lookup.start(100);
  lookup.begin(text);
  const auto found = lookup.guess(drafted, most);
  return {found.begin(), found.end()};
}

TEST(DraftLookup, FindsTheLatestOccurrenceOfTextAndDraft) {
  const Tokens text = {1, 2, 3, 4, 1, 2, 3, 5, 6, 2, 3};
  EXPECT_THAT(guessed(text, {}, 3), ElementsAre(5, 6, 2)) << "2 3, the later one";
  EXPECT_THAT(guessed(text, {4}, 2), ElementsAre(1, 2)) << "2 3 4";
  EXPECT_THAT(guessed(text, {5, 6}, 9), ElementsAre(2, 3)) << "3 5 6, up to the end of the text";
  EXPECT_THAT(guessed(text, {7, 1, 2, 3}, 1), ElementsAre(5)) << "the draft alone";
  EXPECT_THAT(guessed(text, {7}, 3), IsEmpty());
  EXPECT_THAT(guessed(text, {4}, 0), IsEmpty());
  EXPECT_THAT(guessed({1}, {}, 3), IsEmpty());
}

// ---- One drafter --------------------------------------------------------------------------------

// The token after the last of a text: its successor in a circle of five, or for `contrary` the one
// after that where the text's own is 3.
LogitTable circle(bool contrary) {
  return [contrary](std::span<const int32_t> context, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    const int32_t last = context.back();
    const int32_t next = (last + (contrary && last == 3 ? 2 : 1)) % 5;
    logits[static_cast<size_t>(next)] = 9;
  };
}

struct Drafted {
  Tokens tokens;
  int forwards = 0;
};

// A draft of six tokens after 0 1 2 3 4 0 1 2 3 4 0.
Drafted draft_with(int guesses, bool contrary) {
  const LogitTable table = circle(contrary);
  FakeSession target(8, 200, table);
  methods::ModelDrafter::Options options;
  options.length.k = 6;
  options.draft_vocab = options.common_vocab = 8;
  options.guesses = guesses;
  methods::ModelDrafter drafter(std::make_unique<FakeSession>(8, 200, table), options);
  const Tokens sequence = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0};
  const Tokens prompt(sequence.begin(), sequence.end() - 1);
  methods::GenerationContext context;
  context.target = &target;
  context.prompt = prompt;
  context.first_token = sequence.back();
  context.max_new = 40;
  drafter.start(context);
  methods::TokenTree tree;
  tree.reset(sequence.back());
  Drafted drafted;
  drafter.draft(sequence, 40, tree);
  drafter.group()->begin();
  while (drafter.stage(tree)) {
    drafter.group()->run();
    drafter.take(tree);
    ++drafted.forwards;
  }
  drafted.tokens.assign(tree.token.begin() + 1, tree.token.end());
  return drafted;
}

TEST(DraftLevels, RightGuessesSaveForwards) {
  const Drafted without = draft_with(0, false);
  EXPECT_THAT(without.tokens, ElementsAre(1, 2, 3, 4, 0, 1));
  EXPECT_EQ(without.forwards, 6);
  const Drafted with = draft_with(5, false);
  EXPECT_EQ(with.tokens, without.tokens);
  EXPECT_EQ(with.forwards, 1) << "five guesses are right, and one token comes behind them";
  const Drafted pairs = draft_with(1, false);
  EXPECT_EQ(pairs.tokens, without.tokens);
  EXPECT_EQ(pairs.forwards, 3) << "each forward drafts a guess and one token";
}

// The draft model goes 0 1 2 3 0, against the text's 0 1 2 3 4.
TEST(DraftLevels, WrongGuessesChangeNothing) {
  const Drafted without = draft_with(0, true);
  EXPECT_THAT(without.tokens, ElementsAre(1, 2, 3, 0, 1, 2));
  for (int guesses = 1; guesses < methods::DraftModel::kMostRows; ++guesses) {
    const Drafted with = draft_with(guesses, true);
    EXPECT_EQ(with.tokens, without.tokens) << guesses;
    EXPECT_LT(with.forwards, without.forwards) << guesses;
    EXPECT_GT(with.forwards, 1) << guesses;
  }
}

// ---- Whole generations --------------------------------------------------------------------------

struct StepDraft {
  Tokens tokens;
  std::vector<std::vector<double>> q;
  bool operator==(const StepDraft&) const = default;
};
struct Generation {
  Tokens tokens;
  std::vector<StepDraft> drafts;
};

Generation generate(const std::string& spec, const std::shared_ptr<const engine::Model>& model,
                    const SamplingParams& sampling) {
  const auto method = build_method(spec, model);
  Generation generation;
  methods::with_verdicts(*method, "a test")
      .set_verdict_hook([&](const methods::SpeculativeMethod::Verdict& verdict) {
        StepDraft draft;
        draft.tokens = verdict.tree.token;
        for (int node = 1; node < verdict.tree.size(); ++node) {
          const auto q = verdict.drafter.q_of(node);
          draft.q.emplace_back(q.begin(), q.end());
        }
        generation.drafts.push_back(std::move(draft));
      });
  const auto session = make_session(model);
  Turn turn{{1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3}, 0, 48};
  turn.sampling = sampling;
  turn.seed = 7;
  generation.tokens = run(*method, *session, turn).tokens;
  return generation;
}

TEST(DraftLevels, DraftsAreTheSameTokenByToken) {
  const auto model = small_model(1);
  const SamplingParams greedy, sampled{1.0, 0, 1.0};
  SamplingParams noise = sampled;
  noise.sampler = engine::Sampler::kGumbel;
  for (const char* spec :
       {"sps:draft=self,k=6", "sps:draft=layers:1,k=5", "sps:draft=self,k=8,confidence=0.3",
        "sps:draft=self,k=8,entropy=0.3", "sps:draft=self,k=3,schedule=transient,k_max=9",
        "sps:draft=self,k=6,verify=block", "sps:draft=self,k=6,verify=match",
        "sps:draft=self,k=6,verify=argmax"})
    for (const SamplingParams& sampling : {greedy, sampled, noise}) {
      const Generation without = generate(spec, model, sampling);
      size_t drafted = 0;
      for (const StepDraft& draft : without.drafts) drafted += draft.tokens.size() - 1;
      EXPECT_GT(drafted, 10u) << spec;
      for (const int most : {2, 7}) {
        const Generation with =
            generate(fmt::format("{},levels=pld,level_k={}", spec, most), model, sampling);
        EXPECT_EQ(with.tokens, without.tokens) << spec << " T " << sampling.temperature;
        EXPECT_TRUE(with.drafts == without.drafts) << spec << " T " << sampling.temperature;
      }
    }
}

// The comparison sees a draft that another model makes, and one of another length.
TEST(DraftLevels, OtherDraftsAreSeen) {
  const auto model = small_model(1);
  const Generation here = generate("sps:draft=self,k=6", model, {});
  EXPECT_FALSE(generate("sps:draft=layers:1,k=6", model, {}).drafts == here.drafts);
  EXPECT_FALSE(generate("sps:draft=self,k=5", model, {}).drafts == here.drafts);
}

TEST(DraftLevels, RefusesWhatIsNoChainOfTheTargetsTokens) {
  const auto refused = [](const std::string& spec) -> std::string {
    try {
      methods::parse_method(spec);
    } catch (const base::Error& e) {
      EXPECT_EQ(e.code(), base::ExitCode::kUsage);
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(refused("sps:draft=self,levels=pld,verify=gbv"),
              HasSubstr("verify=gbv drafts several"));
  EXPECT_THAT(refused("sps:levels=pld,vocab=intersect"), HasSubstr("in another tokenizer's"));
  EXPECT_THAT(refused("sps:draft=self,level_k=5"), HasSubstr("add levels=pld"));
  EXPECT_THAT(refused("sps:draft=self,levels=pld,level_k=8"), HasSubstr("level_k"));
  EXPECT_EQ(refused("sps:draft=self,levels=pld,level_k=7,verify=block"), "no error");
}

}  // namespace
}  // namespace evalrun::tests::draft_lookup_test
