// What trained drafters need of the engine: rows that stay while a tree grows, features kept of
// committed tokens, products beside the model, and networks that take features instead of tokens.
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "tests/engine/random_models.h"

namespace evalrun::engine::testing {
namespace {

using base::InternalError;

class DrafterFeatures : public ::testing::TestWithParam<Path> {};

// A tree grown level by level is the tree in one forward: the same logits, and the same keys and
// values once a path is committed.
TEST_P(DrafterFeatures, RowsThatStayAreAsOneForward) {
  for (const auto& m : some_models(GetParam())) {
    auto whole = open(m.model, GetParam()), grown = open(m.model, GetParam());
    const auto prompt = random_tokens(130, 101, 3);
    whole->prefill(prompt), grown->prefill(prompt);
    const std::vector<Row> rows = {{.token = 4},
                                   {.token = 9, .parent = 0},
                                   {.token = 8, .parent = 0},
                                   {.token = 7, .parent = 1},
                                   {.token = 6, .parent = 2},
                                   {.token = 5, .parent = 1},
                                   {.token = 3, .parent = 5},
                                   {.token = 3, .parent = 4}};
    const ForwardResult all = whole->forward({.rows = rows});
    std::vector<std::vector<float>> expected;
    for (int i = 0; i < 8; ++i) expected.push_back(copy(all.logits_row(i)));
    const std::span<const Row> span(rows);
    const int levels[] = {0, 1, 3, 6, 8};
    for (int l = 0; l < 4; ++l) {
      const ForwardResult part =
          grown->forward({.rows = span.subspan(static_cast<size_t>(levels[l]),
                                               static_cast<size_t>(levels[l + 1] - levels[l])),
                          .extend = l > 0});
      for (int i = levels[l]; i < levels[l + 1]; ++i)
        EXPECT_TRUE(
            same_bits(copy(part.logits_row(i - levels[l])), expected[static_cast<size_t>(i)]))
            << m.name << ", row " << i;
    }
    const int path[] = {0, 1, 5, 6};
    whole->commit(path), grown->commit(path);
    EXPECT_TRUE(same_bits(decode_alone(*grown, {11, 12}), decode_alone(*whole, {11, 12})))
        << m.name;
  }
}

TEST_P(DrafterFeatures, RowsStayOnlyUntilSomethingIsCommitted) {
  const auto m = feature_models(GetParam().format)[0];
  auto s = open(m.model, GetParam());
  const Row row{.token = 4};
  EXPECT_THROW(s->forward({.rows = {&row, 1}, .extend = true}), InternalError);
  s->forward({.rows = {&row, 1}});
  EXPECT_NO_THROW(s->forward({.rows = {&row, 1}, .extend = true}));
  const int root = 0;
  s->commit({&root, 1});
  EXPECT_THROW(s->forward({.rows = {&row, 1}, .extend = true}), InternalError);
}

// Features of prefilled and of committed tokens are those a forward shows, and keeping them changes
// no key or value. On the emulator one format prefills over a border of chunks, another one in
// other runs.
TEST_P(DrafterFeatures, KeptFeaturesAreThoseOfTheForward) {
  const int n = !kFewCases || in_full(GetParam(), "kept features") ? 265 : 70;
  const auto at = [](const auto& list, int i) { return list[static_cast<size_t>(i)]; };
  for (const auto& m : some_models(GetParam())) {
    auto kept = open(m.model, GetParam()), plain = open(m.model, GetParam());
    kept->keep_features({.hidden = true, .residual_layers = {0, 2}});
    const auto text = random_tokens(static_cast<size_t>(n + 5), 101, 5);
    const auto front = std::span<const int32_t>(text).first(static_cast<size_t>(n));
    kept->prefill(front), plain->prefill(front);
    const std::vector<Row> tree = {{.token = at(text, n)},
                                   {.token = 1, .parent = 0},
                                   {.token = at(text, n + 1), .parent = 0},
                                   {.token = at(text, n + 2), .parent = 2}};
    kept->forward({.rows = tree}), plain->forward({.rows = tree});
    const int path[] = {0, 2, 3};
    kept->commit(path), plain->commit(path);
    EXPECT_TRUE(same_bits(decode_alone(*kept, {11, 12}), decode_alone(*plain, {11, 12})));

    std::vector<Row> chain;
    for (int i = 0; i < n + 3; ++i)
      chain.push_back({.token = text[static_cast<size_t>(i)],
                       .parent = i - 1,
                       .logits = false,
                       .hidden = true});
    plain->reset();
    const int layers[] = {2};
    const ForwardResult r = plain->forward({.rows = chain, .residual_layers = layers});
    const MatrixView hidden = kept->hidden_features(), residual = kept->residual_features(1);
    ASSERT_EQ(hidden.rows, n + 3);
    std::vector<float> e(static_cast<size_t>(m.model->config().d_model));
    for (int i = 0; i < n + 3; ++i) {
      ASSERT_TRUE(same_bits(hidden.row(i), r.hidden_row(i))) << m.name << ", token " << i;
      ASSERT_TRUE(same_bits(residual.row(i), r.residual[0].row(i))) << m.name << ", token " << i;
      m.model->embed(text[static_cast<size_t>(i)], e);
      ASSERT_TRUE(same_bits(kept->residual_features(0).row(i), e));
    }
    kept->rewind(60);
    EXPECT_EQ(kept->hidden_features().rows, 60);
    // The stream after the last layer, without hidden states: prefill must still go through it.
    kept->reset();
    kept->keep_features({.hidden = false, .residual_layers = {2}});
    kept->prefill(front);
    for (int i = 0; i < n; ++i)
      ASSERT_TRUE(same_bits(kept->residual_features(0).row(i), r.residual[0].row(i))) << m.name;
  }
}

TEST_P(DrafterFeatures, TokensCommittedWithoutFeaturesAreNotPassedOver) {
  const auto m = feature_models(GetParam().format)[0];
  auto s = open(m.model, GetParam());
  s->prefill(random_tokens(5, 101, 1));
  s->keep_features({.hidden = true});
  s->prefill(random_tokens(5, 101, 2));
  EXPECT_THROW(s->hidden_features(), InternalError);
  s->rewind(0);
  s->prefill(random_tokens(5, 101, 2));
  EXPECT_EQ(s->hidden_features().rows, 5);
  s->keep_features({});
  EXPECT_THROW(s->hidden_features(), InternalError);
}

// Without attention norm and final norm, with an input of twice the width, with fewer outputs than
// ids: every path gives the reference's bits.
TEST_P(DrafterFeatures, NetworksThatTakeFeaturesEqualTheReference) {
  for (const bool paired : {false, true}) {
    ModelConfig c = small_config();
    c.n_layers = paired ? 1 : 2;
    c.tied_head = false;
    c.head_size = 37;
    c.paired_input = paired;
    c.bare_input = c.bare_output = !paired;
    const auto model = make_random_model(c, 5, GetParam().format);
    auto fast = open(model, GetParam()), slow = open_reference(model, GetParam());
    base::Rng rng(3);
    std::vector<float> in(5 * static_cast<size_t>(c.input_width()));
    for (float& x : in) x = static_cast<float>(rng.uniform() - 0.5);
    const std::vector<Row> rows = {{.embedding = 0},
                                   {.embedding = 1, .parent = 0},
                                   {.embedding = 2, .parent = 0},
                                   {.embedding = 3, .parent = 2, .hidden = true},
                                   {.embedding = 4, .parent = 3, .logits = false, .top = true}};
    const ForwardRequest request{.rows = rows, .embeddings = {in.data(), 5, c.input_width()}};
    const ForwardResult a = fast->forward(request), b = slow->forward(request);
    ASSERT_EQ(a.logits.cols, 37);
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(as_reference(GetParam(), a.logits_row(i), b.logits_row(i)))
          << paired << ", row " << i;
    }
    if (!GetParam().own_bits()) {
      EXPECT_TRUE(same_bits(a.hidden_row(3), b.hidden_row(3)));
      EXPECT_EQ(a.top[4], b.top[4]);
      EXPECT_LT(a.top[4], 37);
    }
  }
}

class ReferenceDrafterFeatures : public DrafterFeatures {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ReferenceDrafterFeatures);

TEST_P(ReferenceDrafterFeatures, ProductsEqualTheReference) {
  const auto m = feature_models(GetParam().format)[0];
  Path reference = GetParam();
  reference.isa = "reference", reference.device = "cpu";
  auto fast = open(m.model, GetParam()), slow = open(m.model, reference);
  const WeightMatrix& w = m.model->layer(0).gate;
  base::Rng rng(3);
  std::vector<float> x(7 * static_cast<size_t>(w.in()));
  for (float& v : x) v = static_cast<float>(rng.uniform() - 0.5);
  const MatrixView in{x.data(), 7, w.in()};
  const MatrixView a = fast->multiply(w, in), b = slow->multiply(w, in);
  ASSERT_EQ(a.rows, 7);
  for (int i = 0; i < 7; ++i) EXPECT_TRUE(same_bits(a.row(i), b.row(i)));
}

INSTANTIATE_TEST_SUITE_P(Cpu, DrafterFeatures, ::testing::ValuesIn(all_paths()),
                         [](const auto& path) { return path.param.name(); });
INSTANTIATE_TEST_SUITE_P(Cpu, ReferenceDrafterFeatures,
                         ::testing::ValuesIn(paths_of_reference_bits()),
                         [](const auto& path) { return path.param.name(); });

}  // namespace
}  // namespace evalrun::engine::testing
