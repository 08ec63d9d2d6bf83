// Several sequences at once: one commit, one prefill. Keys, values and features are those of one
// sequence after the other, to the bit.
#include <gtest/gtest.h>

#include <numeric>

#include "engine/base/error.h"
#include "tests/engine/cache_compare.h"

namespace evalrun::engine::testing {
namespace {

using base::InternalError;

class Batches : public ::testing::TestWithParam<Path> {};

std::vector<int> up_to(int n) {
  std::vector<int> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST_P(Batches, OneCommitIsThatOfEachSequence) {
  const std::vector<int> lengths =
      few_cases(GetParam()) ? std::vector<int>{120, 0, 9} : std::vector<int>{120, 5, 0, 250, 128};
  const int n = static_cast<int>(lengths.size());
  for (const NamedModel& m : some_models(GetParam())) {
    const int vocab = m.model->config().vocab_size;
    auto together = open(m.model, GetParam(), 2, 512, n);
    auto alone = open(m.model, GetParam(), 2, 512, n);
    for (int s = 0; s < n; ++s) {
      const auto prompt = random_tokens(static_cast<size_t>(lengths[static_cast<size_t>(s)]), vocab,
                                        static_cast<uint64_t>(s));
      together->prefill(prompt, s), alone->prefill(prompt, s);
    }
    for (uint64_t step = 0; step < (few_cases(GetParam()) ? 2 : 6); ++step) {
      const ManyTrees t = trees_of(up_to(n), 11, vocab, 10 * step + step % 2);
      (void)together->forward({.rows = t.rows});
      (void)alone->forward({.rows = t.rows});
      together->commit(commits_of(up_to(n), t));
      for (int s = 0; s < n; ++s) alone->commit(t.paths[static_cast<size_t>(s)], s);
      ASSERT_TRUE(same_sequences(*together, *alone)) << m.name << ", step " << step;
    }
  }
}

TEST_P(Batches, OnePrefillIsThatOfEachSequence) {
  // More than one forward takes, chunks that end early, nothing at all.
  const std::vector<std::vector<int>> rounds =
      few_cases(GetParam()) ? std::vector<std::vector<int>>{{37, 140, 0}, {100, 1, 5}}
                            : std::vector<std::vector<int>>{{300, 300, 256, 0, 37, 600, 270},
                                                            {1, 0, 300, 128, 219, 40, 1}};
  const int n = static_cast<int>(rounds[0].size());
  for (const NamedModel& m : tests::sample(feature_models(GetParam().format), 1)) {
    const ModelConfig& c = m.model->config();
    auto together = open(m.model, GetParam(), 2, 1024, n);
    auto alone = open(m.model, GetParam(), 2, 1024, n);
    const FeatureSet features{.hidden = true, .residual_layers = {1, c.n_layers}};
    together->keep_features(features), alone->keep_features(features);
    uint64_t seed = 1;
    for (const std::vector<int>& round : rounds) {
      std::vector<std::vector<int32_t>> texts;
      for (const int tokens : round)
        texts.push_back(random_tokens(static_cast<size_t>(tokens), c.vocab_size, seed++));
      std::vector<SequenceTokens> parts;
      for (int s = n - 1; s >= 0; --s) parts.push_back({s, texts[static_cast<size_t>(s)]});
      together->prefill(parts);
      for (int s = 0; s < n; ++s) alone->prefill(texts[static_cast<size_t>(s)], s);
      for (int s = 0; s < n; ++s) {
        const auto same = [&](MatrixView a, MatrixView b) {
          return a.rows == b.rows && same_bits({a.data, static_cast<size_t>(a.rows * a.cols)},
                                               {b.data, static_cast<size_t>(b.rows * b.cols)});
        };
        EXPECT_TRUE(same(together->hidden_features(s), alone->hidden_features(s))) << s;
        for (const int i : {0, 1})
          EXPECT_TRUE(same(together->residual_features(i, s), alone->residual_features(i, s))) << s;
      }
      ASSERT_TRUE(same_sequences(*together, *alone)) << m.name;
    }
  }
}

// Without a cache the context of every sequence with rows is computed first.
TEST_P(Batches, WithoutACacheTheyAreTheSame) {
  const auto m = feature_models(GetParam().format)[0];
  SessionOptions o;
  o.device = GetParam().device, o.isa = GetParam().isa, o.kv_dtype = GetParam().kv_dtype;
  o.one_isa = GetParam().one_isa, o.max_tokens = 256, o.n_sequences = 3, o.kv_cache = false;
  auto without = Session::create(m.model, o);
  auto with = open(m.model, GetParam(), 2, 256, 3);
  for (Session* s : {without.get(), with.get()}) {
    const auto a = random_tokens(40, 101, 1), b = random_tokens(130, 101, 2);
    const SequenceTokens parts[] = {{0, a}, {2, b}};
    s->prefill(parts);
    const ManyTrees t = trees_of({0, 1, 2}, 5, 101, 3);
    (void)s->forward({.rows = t.rows});
    s->commit(commits_of({0, 1, 2}, t));
  }
  for (const int s : {0, 1, 2}) {
    ASSERT_EQ(without->length(s), with->length(s));
    EXPECT_TRUE(same_bits(next_logits(*without, s, 7), next_logits(*with, s, 7))) << s;
  }
}

// What is refused has changed nothing: the honest list after it has the same bits.
TEST_P(Batches, ListsThatAreNotListsAreRefused) {
  const auto m = feature_models(GetParam().format)[0];
  auto s = open(m.model, GetParam(), 2, 256, 3), plain = open(m.model, GetParam(), 2, 256, 3);
  const auto prompt = random_tokens(20, 101, 1);
  s->prefill(prompt, 0), plain->prefill(prompt, 0);
  const std::vector<SequenceTokens> twice = {{1, prompt}, {1, prompt}}, nobody = {{3, prompt}};
  const std::vector<int32_t> wrong = {5, 101};
  const std::vector<SequenceTokens> no_token = {{1, prompt}, {2, wrong}};
  for (const auto& parts : {twice, nobody, no_token})
    EXPECT_THROW(s->prefill(parts), InternalError);
  const std::vector<int32_t> long_text(250, 1);
  const std::vector<SequenceTokens> too_long = {{1, prompt}, {0, long_text}};
  EXPECT_THROW(s->prefill(too_long), base::Error);
  EXPECT_EQ(s->length(1), 0);

  const std::vector<Row> rows = {{.token = 1, .sequence = 0},
                                 {.token = 2, .sequence = 1},
                                 {.token = 3, .parent = 0, .sequence = 0}};
  (void)s->forward({.rows = rows});
  (void)plain->forward({.rows = rows});
  const std::vector<int> of_0 = {0, 2}, of_1 = {1}, gap = {2};
  for (const std::vector<SequencePath>& list :
       std::vector<std::vector<SequencePath>>{{{0, of_0}, {0, of_0}},
                                              {{1, of_1}, {0, gap}},
                                              {{1, of_1}, {0, of_1}},
                                              {{-1, {}}},
                                              {{1, of_1}, {3, {}}}})
    EXPECT_THROW(s->commit(list), InternalError);
  EXPECT_EQ(s->length(0), 20);
  EXPECT_EQ(s->length(1), 0);
  const std::vector<SequencePath> good = {{1, of_1}, {0, of_0}};
  s->commit(good), plain->commit(good);
  EXPECT_THROW(s->commit(good), InternalError) << "once per forward";
  EXPECT_NO_THROW(s->commit(std::vector<SequencePath>{{2, {}}})) << "it was not in the list";
  EXPECT_TRUE(same_sequences(*s, *plain));
}

INSTANTIATE_TEST_SUITE_P(Isa, Batches, ::testing::ValuesIn(all_paths()),
                         [](const auto& instance) { return instance.param.name(); });

}  // namespace
}  // namespace evalrun::engine::testing
