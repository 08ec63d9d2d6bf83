// Draft models with other tokenizers: which tokens are common, a text in other tokens, and the law
// of what is emitted. That every arm is lossless on whole models: tests/methods/lossless_test.cpp.
#include "methods/model_draft/foreign_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/error.h"
#include "methods/model_draft/model_drafter.h"
#include "tests/methods/support/exact_laws.h"
#include "tests/methods/support/foreign_draft.h"
#include "tests/methods/support/harness.h"
#include "tests/methods/support/statistics.h"

namespace evalrun::tests::foreign_vocabulary_test {
namespace {

using methods::ForeignVocabulary;
using methods::VocabularyRule;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

methods::VocabularyMap map_of(const LongestTokens& target, const LongestTokens& draft) {
  return methods::map_vocabularies(target, target.vocab_size(), draft, draft.vocab_size());
}

TEST(VocabularyMap, PairsTokensOfEqualBytes) {
  // Byte 0x61 is a token and a fallback; " b" and an unfinished character are bytes like any.
  const LongestTokens target({"a", " b", "\xE2", "c", "d"}, {});
  const LongestTokens draft({"a", "x", "a", "\xE2", " b", ""}, {.bytes = {0}});
  const methods::VocabularyMap map = map_of(target, draft);
  EXPECT_THAT(map.to_draft, ElementsAre(2, 4, 3, -1, -1));
  EXPECT_THAT(map.to_target, ElementsAre(-1, -1, 0, 2, 1, -1));
  EXPECT_THAT(map.draft_ids, ElementsAre(2, 4, 3));
  EXPECT_THAT(map.target_ids, ElementsAre(0, 1, 2));
  EXPECT_EQ(map.text_tokens, 3);
  EXPECT_DOUBLE_EQ(map.share(), 3.0 / 5);
  EXPECT_EQ(methods::to_text(map), "3 of 5 and 6 tokens (60.0 %)");
  // Ids that a model has no logits for.
  EXPECT_THAT(methods::map_vocabularies(target, 1, draft, 6).draft_ids, ElementsAre(2));
  EXPECT_THAT(methods::map_vocabularies(target, 5, draft, 4).draft_ids, ElementsAre(2, 3));
}

TEST(VocabularyMap, PairsSpecialTokensOfOneMeaning) {
  const auto special = [](std::vector<std::string> texts, std::vector<int32_t> stops,
                          std::optional<int32_t> bos) {
    const int n = static_cast<int>(texts.size());
    LongestTokens::Kind kind{.stops = std::move(stops), .bos = bos};
    for (int i = 1; i < n; ++i) kind.special.push_back(i);  // all but the first
    return LongestTokens(std::move(texts), kind);
  };
  // A turn's end of another name, and a text's; begins; equal texts.
  EXPECT_THAT(map_of(special({"a", "<s>", "<|eot_id|>", "<|end_of_text|>", "<tool>"}, {2, 3}, 1),
                     special({"a", "<tool>", "<|endoftext|>", "<|im_end|>", "<bos>"}, {2, 3}, 4))
                  .to_draft,
              ElementsAre(0, 4, 3, 2, 1));
  // Each has one stop token, whatever it is called; with two it is not known which.
  EXPECT_THAT(map_of(special({"a", "<x>"}, {1}, {}), special({"a", "<y>"}, {1}, {})).to_draft,
              ElementsAre(0, 1));
  EXPECT_THAT(
      map_of(special({"a", "<x>"}, {1}, {}), special({"a", "<y>", "<z>"}, {1, 2}, {})).to_draft,
      ElementsAre(0, -1));
  // One text, but it ends a generation in one of them only.
  EXPECT_THAT(map_of(special({"a", "<e>"}, {1}, {}), special({"a", "<e>"}, {}, {})).to_draft,
              ElementsAre(0, -1));
  // A special token is no text, even if a text is written like it.
  EXPECT_THAT(map_of(special({"a", "<e>"}, {}, {}), LongestTokens({"a", "<e>"})).to_draft,
              ElementsAre(0, -1));
}

TEST(LastWord, BeginsAtASingleSpaceBetweenVisibleCharacters) {
  EXPECT_EQ(methods::last_word("one two"), 3u);
  EXPECT_EQ(methods::last_word("one two three"), 7u);
  EXPECT_EQ(methods::last_word("one two "), 3u) << "what follows the space is not known";
  EXPECT_EQ(methods::last_word("one  two"), 0u);
  EXPECT_EQ(methods::last_word("one\n two"), 0u);
  EXPECT_EQ(methods::last_word(" one"), 0u);
  EXPECT_EQ(methods::last_word(""), 0u);
}

// A text's tokens depend on the text, not on how many steps it came in, and stand for its bytes.
TEST(Retokenizer, FollowsATextInPiecesOfAnySize) {
  const LongestTokens from(toy_texts(40));
  std::vector<std::string> texts = toy_texts(30);
  for (const char* more : {"t", "bat", "ab", " aa"}) texts.push_back(more);
  for (int i = 0; i < 20; ++i)  // so that each letter is a token of its own
    texts.push_back(std::string(1, static_cast<char>('a' + i)));
  texts.push_back(" ");
  const LongestTokens to(texts);
  const methods::PieceTokenizer pieces(to);
  const methods::Translation how{&from, &pieces, {}};
  base::Rng rng(3);
  for (int round = 0; round < 50; ++round) {
    const Tokens text = random_tokens(rng, 60, 40);
    methods::Retokenizer once(how), often(how);
    once.start();
    often.start();
    for (size_t n = 0; n < text.size(); n += 1 + rng.below(5))
      often.follow(std::span<const int32_t>(text).first(n));
    const auto all = once.follow(text), grown = often.follow(text);
    EXPECT_EQ(Tokens(all.begin(), all.end()), Tokens(grown.begin(), grown.end()));
    EXPECT_EQ(to.decode(all, false), from.decode(text, false));
    EXPECT_TRUE(once.whole());
  }
}

TEST(Retokenizer, LeavesOutTheSpaceThatATokenizerPutsItself) {
  const LongestTokens plain({"a", " b", " a", "b"});
  const LongestTokens spaced({" a", " b", "a", "b"}, {.puts_space = true});
  const methods::PieceTokenizer of_spaced(spaced), of_plain(plain);
  methods::Retokenizer to_spaced({&plain, &of_spaced, {}}), to_plain({&spaced, &of_plain, {}});
  to_spaced.start();
  to_plain.start();
  EXPECT_THAT(to_spaced.follow(Tokens{0, 1, 3}), ElementsAre(0, 1, 3));  // "a bb"
  EXPECT_THAT(to_plain.follow(Tokens{0, 1, 3}), ElementsAre(0, 1, 3));   // " a bb" of "a bb"
}

TEST(Retokenizer, KnowsSpecialTokensAndUnfinishedCharacters) {
  const LongestTokens from({"<s>", "a", "<e>", "<t>", "\xC3", "\xA9"},
                           {.special = {0, 2, 3}, .bos = 0});
  const LongestTokens to({"<b>", "a", "<f>", "<", "t", ">", "\xC3", "\xC3\xA9"},
                         {.special = {0, 2}, .bos = 0});
  const methods::PieceTokenizer pieces(to);
  const std::vector<int32_t> partners = {0, 1, 2, -1, 6, -1};
  methods::Retokenizer text({&from, &pieces, partners});
  text.start();
  EXPECT_THAT(text.follow(Tokens{0, 1, 2, 3}), ElementsAre(0, 1, 2, 3, 4, 5)) << "one beginning";
  EXPECT_THAT(text.follow(Tokens{0, 1, 2, 3, 4}), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(text.follow(Tokens{0, 1, 2, 3, 4, 5}), ElementsAre(0, 1, 2, 3, 4, 5, 7));
  EXPECT_TRUE(text.whole());
  // Without a token for the first byte there is nothing to draft from until the second comes.
  const LongestTokens less({"a", "\xC3\xA9"});
  const methods::PieceTokenizer few(less);
  methods::Retokenizer waiting({&from, &few, {}});
  waiting.start();
  EXPECT_THAT(waiting.follow(Tokens{1, 4}), ElementsAre(0));
  EXPECT_FALSE(waiting.whole());
  EXPECT_THAT(waiting.follow(Tokens{1, 4, 5}), ElementsAre(0, 1));
  EXPECT_TRUE(waiting.whole());
}

using TokenizerPtr = std::shared_ptr<const LongestTokens>;
std::shared_ptr<const engine::Model> model_with(const TokenizerPtr& tokenizer, uint64_t seed = 1) {
  return with_tokenizer(*small_model(seed, tokenizer->vocab_size()), tokenizer);
}
std::shared_ptr<const ForeignVocabulary> foreign_of(VocabularyRule rule, const TokenizerPtr& target,
                                                    const TokenizerPtr& draft) {
  return std::make_shared<const ForeignVocabulary>(rule, model_with(target), model_with(draft));
}

TEST(DraftedText, BecomesTheTargetsTokensWithoutAnOpenEnd) {
  const auto target = std::make_shared<const LongestTokens>(
      std::vector<std::string>{"a", "b", " a", " ab", "ab", "</s>"},
      LongestTokens::Kind{.special = {5}, .stops = {5}});
  const auto draft =
      std::make_shared<const LongestTokens>(std::vector<std::string>{" ", "a", "b", "<x>"},
                                            LongestTokens::Kind{.special = {3}, .stops = {3}});
  const auto foreign = foreign_of(VocabularyRule::kText, target, draft);
  const auto cut = [&](const Tokens& context, const Tokens& drafted, size_t most = 9) {
    Tokens tokens;
    foreign->retokenize(context, drafted, most, tokens);
    return tokens;
  };
  EXPECT_THAT(cut({1}, {0, 1, 2, 0, 1}), ElementsAre(3)) << "' ab' is closed, ' a' may be ' ab'";
  EXPECT_THAT(cut({1}, {0, 1, 2, 0, 1, 3}), ElementsAre(3, 2, 5)) << "an end closes all";
  EXPECT_THAT(cut({1}, {0, 1, 2, 0, 1, 3}, 2), ElementsAre(3, 2));
  EXPECT_THAT(cut({1}, {1, 1, 2}), ElementsAre(0)) << "of one word all but the last";
  EXPECT_THAT(cut({1}, {1}), ElementsAre());
  EXPECT_THAT(cut({1}, {3}), ElementsAre(5)) << "an end alone";
  // The target has written " a" where its tokenizer writes " ab": "b" goes on by itself.
  EXPECT_THAT(cut({1, 2}, {2, 3}), ElementsAre(1, 5));
}

std::string error_of(const std::string& spec, std::shared_ptr<const engine::Model> target,
                     std::shared_ptr<const engine::Model> draft) {
  try {
    const methods::MethodSpec method = methods::parse_method(spec);
    methods::MethodBuildContext context;
    context.target = std::move(target);
    context.draft = std::move(draft);
    context.session = session_options();
    method.info->build(method.params, context);
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    return std::string(e.message()) + " " + std::string(e.hint());
  }
  return "no error";
}

TEST(ForeignDraft, IsRefusedWithFiguresWhereNothingCanBeDone) {
  const auto target = std::make_shared<const LongestTokens>(toy_texts(24));
  const auto other = std::make_shared<const LongestTokens>(std::vector<std::string>{"X", "Y"});
  EXPECT_THAT(error_of("sps", model_with(target), model_with(other)),
              AllOf(HasSubstr("another vocabulary"), HasSubstr("vocab=intersect"),
                    HasSubstr("vocab=text")));
  for (const char* vocab : {"intersect", "text"}) {
    const std::string spec = std::string("sps:vocab=") + vocab;
    EXPECT_THAT(error_of(spec, model_with(target), model_with(other)),
                HasSubstr("0 of 24 and 2 tokens (0.0 %)"));
    EXPECT_THAT(error_of(spec, small_model(1), small_model(2)), HasSubstr("no tokenizer"));
    EXPECT_THAT(error_of(spec + ",draft=layers:1", model_with(target), nullptr),
                HasSubstr("draft=layers:1 has the target's"));
    EXPECT_EQ(error_of(spec, model_with(target), model_with(target, 2)), "no error");
  }
  for (const char* rule : {"rejection", "block", "gumbel"})
    EXPECT_THAT(error_of(std::string("sps:vocab=text,verify=") + rule, nullptr, nullptr),
                HasSubstr("by match alone"));
}

TEST(ForeignDraft, IsInTheArmsSettings) {
  methods::MethodBuildContext context;
  context.target = small_model(1);
  context = with_foreign_draft(context);
  const auto settings = [&](const std::string& spec) {
    const methods::MethodSpec method = methods::parse_method(spec);
    return method.info->files(method.params, context);
  };
  const auto intersect = settings("sps:vocab=intersect");
  EXPECT_EQ(intersect.at("draft_tokenizer"), context.draft->tokenizer()->vocabulary_hash());
  EXPECT_EQ(intersect.at("common_tokens"), "20 of 24 and 25 tokens (83.3 %)");
  EXPECT_EQ(intersect.count(methods::kFewTokensSetting), 0u);
  EXPECT_EQ(settings("sps:vocab=text"), intersect);
  EXPECT_TRUE(settings("sps").empty());
  std::vector<std::string> texts(24);
  for (size_t i = 0; i < texts.size(); ++i) texts[i] = std::string(2 + i, 'X');
  texts[0] = "a";
  context.draft = model_with(std::make_shared<const LongestTokens>(texts), 2);
  EXPECT_EQ(settings("sps:vocab=intersect").at(methods::kFewTokensSetting),
            "1 of 24 and 24 tokens (4.2 %)");
}

// Four tokens of the target, four of the draft, three of them common; a target text is a draft's.
const TokenizerPtr kTarget =
    std::make_shared<const LongestTokens>(std::vector<std::string>{"a", "b", "ab", "c"});
const TokenizerPtr kDraft =
    std::make_shared<const LongestTokens>(std::vector<std::string>{"c", "b", "bc", "a"});

// The law of one draft by enumeration: what the draft model's restricted distribution gives, and
// what it would give with a rule or a map that is wrong.
enum class Fault { kNone, kNotRenormalised, kMapOffByOne };

MakeDraft restricted(const methods::VocabularyMap& map, Fault fault) {
  return [=](const Toy& toy, UniformSource& uniform) {
    Draft draft;
    draft.tree.reset(0);
    draft.q.emplace_back();
    const std::vector<double> all = toy.draft_dist({});
    std::vector<double> common;
    double mass = 0;
    for (const int32_t id : map.draft_ids) mass += all[static_cast<size_t>(id)];
    std::vector<double> q(static_cast<size_t>(toy.vocab));
    for (size_t i = 0; i < map.draft_ids.size(); ++i) {
      const double p = all[static_cast<size_t>(map.draft_ids[i])];
      common.push_back(p / mass);
      q[static_cast<size_t>(map.target_ids[i])] = fault == Fault::kNotRenormalised ? p : p / mass;
    }
    size_t output = static_cast<size_t>(uniform.draw(common));
    if (fault == Fault::kMapOffByOne) output = (output + 1) % common.size();
    draft.tree.add(map.target_ids[output], 0);
    draft.q.push_back(q);
    return draft;
  };
}

// Rejection with q as it is given: the common verifier normalises it, and so would hide the fault.
Tokens decide_by_given_q(const Toy& toy, const Draft& draft, UniformSource& uniform) {
  std::vector<double> p = toy.target_dist({});
  const std::vector<double>& q = draft.q[1];
  const auto token = static_cast<size_t>(draft.tree.token[1]);
  if (uniform.accept(p[token], q[token])) return {draft.tree.token[1]};
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += p[i] = std::max(0.0, p[i] - q[i]);
  for (double& left : p) left /= sum;
  return {uniform.draw(p)};
}

TEST(RestrictedDraft, HasTheTargetsLawExactly) {
  const methods::VocabularyMap map = map_of(*kTarget, *kDraft);
  ASSERT_THAT(map.draft_ids, ElementsAre(3, 1, 0));
  double given = 1, shifted = 1;
  for (uint64_t seed = 1; seed <= 8; ++seed)
    for (const SamplingParams& sampling : kCells) {
      const Toy toy = make_toy(4, seed, sampling);
      const Distribution plain = toy.autoregressive(1);
      const auto law = [&](Fault fault, const Decide& decide) {
        return distance(law_of(toy, 1, restricted(map, fault), decide), plain);
      };
      const Decide common = by_verifier(Siblings::kIndependent);
      if (toy.draft_dist({})[2] > 0.999) continue;  // all of it is left out
      EXPECT_LT(law(Fault::kNone, common), kExact) << seed;
      EXPECT_LT(law(Fault::kNone, decide_by_given_q), kExact) << seed;
      if (sampling.top_k > 0 || sampling.top_p < 1) continue;
      given = std::min(given, law(Fault::kNotRenormalised, decide_by_given_q));
      shifted = std::min(shifted, law(Fault::kMapOffByOne, common));
    }
  EXPECT_GT(given, 1e-4) << "q that was not renormalised was not seen";
  EXPECT_GT(shifted, 1e-4) << "a wrong map was not seen";
}

// The drafter itself, on tables. Faults are planted between it and the verifier.
class Planted final : public methods::Drafter {
 public:
  Planted(std::unique_ptr<methods::Drafter> inner, bool shift)
      : inner_(std::move(inner)), shift_(shift) {}
  void start(const methods::GenerationContext& context) override { inner_->start(context); }
  void draft(std::span<const int32_t> sequence, int depth, methods::TokenTree& tree) override {
    inner_->draft(sequence, depth, tree);
  }
  methods::DraftGroup* group() override { return inner_->group(); }
  bool stage(methods::TokenTree& tree) override { return inner_->stage(tree); }
  void take(methods::TokenTree& tree) override { inner_->take(tree); }
  std::span<const double> q_of(int node) const override {
    const std::span<const double> q = inner_->q_of(node);
    if (!shift_) return q;
    // As if the ids of q were off by one among the common tokens 0, 1 and 3.
    shifted_ = {q[1], q[3], 0, q[0]};
    return shifted_;
  }
  void accepted(std::span<const int> path, int32_t bonus) override {
    inner_->accepted(path, bonus);
  }

 private:
  const std::unique_ptr<methods::Drafter> inner_;
  const bool shift_;
  mutable std::vector<double> shifted_;
};

struct Tables {
  explicit Tables(bool shift, int gamma = 2) : target(4, 400, markov_table(5, 3, 1.5f)) {
    auto session = std::make_unique<FakeSession>(4, 400, markov_table(6, 3, 1.5f));
    draft = session.get();
    methods::ModelDrafter::Options options;
    options.foreign = foreign_of(VocabularyRule::kIntersect, kTarget, kDraft);
    options.logits = options.foreign->map().draft_ids;
    options.ids = options.foreign->map().target_ids;
    options.draft_vocab = 4;
    options.common_vocab = 3;
    options.length.k = gamma;
    method = methods::make_speculative_method(std::make_unique<Planted>(
        std::make_unique<methods::ModelDrafter>(std::move(session), options), shift));
  }
  FakeSession target;
  FakeSession* draft;
  std::unique_ptr<methods::DecodingMethod> method;
};

constexpr int kTokens = 3, kGenerations = 6000;

double law_p_value(bool shift) {
  Tables tables(shift);
  const Toy toy{4,
                4,
                [](std::span<const int32_t> text, std::span<float> logits) {
                  Tokens context = {0};
                  context.insert(context.end(), text.begin(), text.end());
                  markov_table(5, 3, 1.5f)(context, logits);
                },
                nullptr,
                {1, 0, 1},
                {1, 0, 1}};
  std::vector<double> law(64);
  const auto cell = [](const Tokens& text) {
    return static_cast<size_t>(text[0] * 16 + text[1] * 4 + text[2]);
  };
  for (const auto& [text, p] : toy.autoregressive(kTokens)) law[cell(text)] += p;
  std::vector<int64_t> counts(64);
  Turn turn{{0}, 0, kTokens};
  turn.sampling = {1, 0, 1};
  for (int i = 0; i < kGenerations; ++i) {
    turn.seed = static_cast<uint64_t>(i) + 1;
    ++counts[cell(run(*tables.method, tables.target, turn).tokens)];
  }
  return chi_square_p(counts, law);
}

TEST(ForeignDrafter, GivesTheTargetsLawAndAWrongMapDoesNot) {
  EXPECT_GT(law_p_value(false), 1e-4);
  EXPECT_LT(law_p_value(true), 1e-6);
}

// What is drafted is common, the cache holds the text in the draft's tokens, and of that no more is
// computed again than the new text changes.
TEST(ForeignDrafter, KeepsTheCacheOfTheTextThatStays) {
  Tables tables(false, 3);
  const Turn turn{{0, 1, 2, 3, 0}, 0, 60};
  int computed = 0;
  tables.draft->watch = [&](const engine::ForwardRequest& request) {
    computed += static_cast<int>(request.rows.size());
  };
  const auto record = run(*tables.method, tables.target, turn);
  const auto plain = build_method("ar", small_model(1));
  EXPECT_EQ(record.tokens, run(*plain, tables.target, turn).tokens);
  int drafted = 0;
  for (const auto& step : record.steps) drafted += step.drafted;
  ASSERT_GT(drafted, 0);
  for (const int n : tables.draft->prefills) computed += n;
  // The prompt, the drafts, and at most two tokens a step: the last word is short here, as tokens
  // of two letters are the longest.
  EXPECT_LE(computed, 6 + drafted + 3 * static_cast<int>(record.steps.size()));
  // What the cache holds begins as the text does.
  Tokens text = turn.prompt;
  text.insert(text.end(), record.tokens.begin(), record.tokens.end());
  const std::string written = kTarget->decode(text, false);
  const std::string held = kDraft->decode(tables.draft->committed(), false);
  EXPECT_GT(held.size(), written.size() / 2);
  EXPECT_EQ(held.substr(0, written.size() / 2), written.substr(0, written.size() / 2));
}

}  // namespace
}  // namespace evalrun::tests::foreign_vocabulary_test
