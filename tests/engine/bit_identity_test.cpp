// The engine's first rule: a row's outputs do not depend on the company it is computed in. All
// comparisons are of bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/random_models.h"
#include "tests/sample.h"

namespace evalrun::engine::testing {
namespace {

class BitIdentity : public ::testing::TestWithParam<Path> {};

TEST_P(BitIdentity, RowAloneEqualsNodeOfAnyTree) {
  // Contexts around the borders of attention chunks (128) and K blocks (16), so that trees cross
  // them.
  std::vector<int> contexts = {0, 1, 15, 118, 127, 128, 250};
  std::vector<std::pair<int, int>> trees = {{2, 1},  {5, 1},  {13, 3}, {16, 0},
                                            {17, 0}, {33, 4}, {64, 0}, {64, 1}};
  if (few_cases(GetParam())) {
    contexts = {0, 127, 250};
    trees = {{5, 1}, {17, 0}, {33, 4}};
  }
  contexts = tests::sample(contexts, 2), trees = tests::sample(trees, 3);
  size_t compared = 0;
  const auto models = some_models(GetParam());
  for (const NamedModel& m : models) {
    const int vocab = m.model->config().vocab_size;
    auto session = open(m.model, GetParam());
    auto plain = open(m.model, GetParam(), 1);
    for (const int context : contexts) {
      const auto prompt = random_tokens(static_cast<size_t>(context), vocab, 7);
      session->reset(), plain->reset();
      session->prefill(prompt), plain->prefill(prompt);
      for (const auto& [rows, bias] : trees) {
        const auto tree = random_tree(rows, vocab, static_cast<uint64_t>(rows + bias), bias);
        const ForwardResult r = session->forward({.rows = tree});
        base::Rng pick(static_cast<uint64_t>(rows));
        const int any = static_cast<int>(pick.below(static_cast<uint64_t>(rows)));
        for (const int node : {rows - 1, any})
          ASSERT_TRUE(path_has_bits_of_plain(r, tree, node, *plain, compared))
              << m.name << " context " << context << " rows " << rows << " bias " << bias;
      }
    }
  }
  EXPECT_GE(compared, 2 * models.size() * contexts.size() * trees.size());  // rows
}

// Sizes of the largest trees of the papers. One model: what matters is how many rows there are. On
// the emulator one format has as many, the others have more than a chunk of keys.
TEST_P(BitIdentity, NodeOfAVeryLargeTree) {
  const auto model = feature_models(GetParam().format).front().model;
  const int vocab = model->config().vocab_size;
  auto session = open(model, GetParam(), 2, 1024);
  auto plain = open(model, GetParam(), 1, 1024);
  const auto prompt = random_tokens(250, vocab, 7);
  session->prefill(prompt), plain->prefill(prompt);
  std::vector<int> sizes = {340, 441, 512};
  if (few_cases(GetParam())) sizes = {in_full(GetParam(), "a very large tree") ? 340 : 140};
  for (const int rows : tests::sample(sizes, 1)) {
    const auto tree = random_tree(rows, vocab, static_cast<uint64_t>(rows), 4);
    const ForwardResult r = session->forward({.rows = tree});
    size_t compared = 0;
    for (const int node : {rows / 2, rows - 1})
      ASSERT_TRUE(path_has_bits_of_plain(r, tree, node, *plain, compared)) << rows << " rows";
  }
}

TEST_P(BitIdentity, SameRowAsOneOfNForEveryN) {
  std::vector<int> sizes;
  for (int n = 2; n <= 64; n += few_cases(GetParam()) ? 7 : 1) sizes.push_back(n);
  sizes = tests::sample(sizes, 9);
  for (const NamedModel& m : some_models(GetParam())) {
    auto session = open(m.model, GetParam());
    const int vocab = m.model->config().vocab_size;
    session->prefill(random_tokens(100, vocab, 3));
    const auto alone = decode_alone(*session, {42});
    for (const int n : sizes) {
      // n independent roots; ours stands at a different place each time.
      std::vector<Row> rows(static_cast<size_t>(n));
      for (int i = 0; i < n; ++i) rows[static_cast<size_t>(i)].token = (i * 7) % vocab;
      const int mine = (n * 5) % n == 0 ? n / 2 : n - 1;
      rows[static_cast<size_t>(mine)].token = 42;
      const ForwardResult r = session->forward({.rows = rows});
      ASSERT_TRUE(same_bits(r.logits_row(mine), alone)) << m.name << " n = " << n;
    }
  }
}

// Of paths that promise the reference's bits; a device has bits of its own.
class ReferenceBitIdentity : public BitIdentity {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ReferenceBitIdentity);

TEST_P(ReferenceBitIdentity, EqualsTheReferenceForwardAtAnyThreadCount) {
  for (const NamedModel& m : some_models(GetParam())) {
    const int vocab = m.model->config().vocab_size;
    const auto prompt = random_tokens(140, vocab, 11);
    const auto tree = random_tree(21, vocab, 5);
    const int layers[] = {0, 1, 2};
    auto reference = open(m.model, {"reference", GetParam().format, GetParam().kv_dtype}, 1);
    reference->prefill(prompt);
    const ForwardRequest request{.rows = tree, .residual_layers = layers};
    const ForwardResult want = reference->forward(request);
    for (const int threads : tests::sample({1, 2, 3, 5}, 2)) {
      auto session = open(m.model, GetParam(), threads);
      session->prefill(prompt);
      const ForwardResult got = session->forward(request);
      for (int i = 0; i < 21; ++i) {
        ASSERT_TRUE(same_bits(got.logits_row(i), want.logits_row(i)))
            << m.name << " threads " << threads;
        ASSERT_TRUE(same_bits(got.hidden_row(i), want.hidden_row(i))) << m.name;
        for (size_t l = 0; l < 3; ++l)
          ASSERT_TRUE(same_bits(got.residual[l].row(i), want.residual[l].row(i)))
              << m.name << " layer " << l;
      }
    }
  }
}

TEST_P(BitIdentity, CommittedPathLeavesTheCacheOfNeverHavingDrafted) {
  for (const NamedModel& m : some_models(GetParam())) {
    const ModelConfig& c = m.model->config();
    auto drafted = open(m.model, GetParam());
    auto plain = open(m.model, GetParam(), 1);
    const auto prompt = random_tokens(120, c.vocab_size, 13);
    drafted->prefill(prompt);
    std::vector<int32_t> text = prompt;
    for (int step = 0; step < 8; ++step) {
      const auto tree = random_tree(12, c.vocab_size, static_cast<uint64_t>(step), 3);
      (void)drafted->forward({.rows = tree});
      std::vector<int> path;  // from a node drawn at random up to the root
      for (int i = (step * 5) % 12; i >= 0; i = tree[static_cast<size_t>(i)].parent)
        path.insert(path.begin(), i);
      drafted->commit(path);
      for (const int i : path) text.push_back(tree[static_cast<size_t>(i)].token);
    }
    plain->prefill(text);
    ASSERT_EQ(drafted->length(), plain->length());
    const size_t width = static_cast<size_t>(c.kv_dim());
    std::vector<float> k1(width), v1(width), k2(width), v2(width);
    for (int l = 0; l < c.n_layers; ++l)
      for (int p = 0; p < plain->length(); ++p) {
        drafted->read_kv(l, p, 0, k1, v1);
        plain->read_kv(l, p, 0, k2, v2);
        ASSERT_TRUE(same_bits(k1, k2) && same_bits(v1, v2))
            << m.name << " layer " << l << " position " << p;
      }
  }
}

TEST_P(BitIdentity, PrefillInAnyPiecesEqualsDecoding) {
  const auto m = feature_models(GetParam().format)[0];
  const auto text = random_tokens(300, m.model->config().vocab_size, 17);
  auto whole = open(m.model, GetParam()), pieces = open(m.model, GetParam());
  whole->prefill(text);
  const std::span<const int32_t> all(text);
  pieces->prefill(all.subspan(0, 37));
  pieces->prefill(all.subspan(37, 200));
  pieces->prefill(all.subspan(237));
  EXPECT_TRUE(same_bits(decode_alone(*whole, {3}), decode_alone(*pieces, {3})));
}

TEST_P(BitIdentity, TwoSequencesInOneForward) {
  for (const NamedModel& m : some_models(GetParam())) {
    const int vocab = m.model->config().vocab_size;
    auto both = open(m.model, GetParam(), 2, 512, 2);
    const auto a = random_tokens(50, vocab, 1), b = random_tokens(133, vocab, 2);
    both->prefill(a, 0);
    both->prefill(b, 1);
    const std::vector<Row> rows = {{.token = 5, .sequence = 1},
                                   {.token = 6, .sequence = 0},
                                   {.token = 7, .parent = 0, .sequence = 1},
                                   {.token = 8, .parent = 1, .sequence = 0}};
    const ForwardResult r = both->forward({.rows = rows});
    auto one = open(m.model, GetParam());
    one->prefill(a);
    EXPECT_TRUE(same_bits(r.logits_row(3), decode_alone(*one, {6, 8}))) << m.name;
    one->reset();
    one->prefill(b);
    EXPECT_TRUE(same_bits(r.logits_row(2), decode_alone(*one, {5, 7}))) << m.name;
    const int path0[] = {1, 3}, path1[] = {0};
    both->commit(path0, 0);
    both->commit(path1, 1);
    EXPECT_EQ(both->length(0), 52);
    EXPECT_EQ(both->length(1), 134);
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, BitIdentity, ::testing::ValuesIn(all_paths()),
                         [](const auto& instance) { return instance.param.name(); });
INSTANTIATE_TEST_SUITE_P(Isa, ReferenceBitIdentity, ::testing::ValuesIn(paths_of_reference_bits()),
                         [](const auto& instance) { return instance.param.name(); });

}  // namespace
}  // namespace evalrun::engine::testing
