// What later methods need of one forward: injected embeddings, prefix keys and values, blocks,
// residual streams, skip sets, low-rank deltas, no KV cache. Each is checked against something it
// must equal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/error.h"
#include "tests/engine/random_models.h"

namespace evalrun::engine::testing {
namespace {

using base::InternalError;

class ForwardFeatures : public ::testing::TestWithParam<Path> {};

TEST_P(ForwardFeatures, InjectedEmbeddingEqualsItsToken) {
  const auto m = feature_models(GetParam().format)[0];
  auto s = open(m.model, GetParam());
  s->prefill(random_tokens(20, 101, 1));
  std::vector<float> e(static_cast<size_t>(m.model->config().d_model));
  m.model->embed(9, e);
  const std::vector<Row> rows = {{.token = 4}, {.embedding = 0, .parent = 0}};
  const ForwardResult r =
      s->forward({.rows = rows, .embeddings = {e.data(), 1, static_cast<int>(e.size())}});
  const auto injected = copy(r.logits_row(1));
  EXPECT_TRUE(same_bits(injected, decode_alone(*s, {4, 9})));
}

// Logits that are no numbers are an error where only the likeliest token is asked for, too.
TEST_P(ForwardFeatures, NaNIsAnErrorAndNoToken) {
  const auto m = feature_models(GetParam().format)[0];
  auto s = open(m.model, GetParam());
  std::vector<float> e(static_cast<size_t>(m.model->config().d_model), 0.1f);
  for (const int n : {1, 5}) {  // few rows take another way than many
    std::vector<Row> rows(static_cast<size_t>(n));
    for (Row& r : rows) r.token = 4, r.logits = false, r.top = true;
    rows.back().embedding = 0;
    const ForwardRequest request{.rows = rows,
                                 .embeddings = {e.data(), 1, static_cast<int>(e.size())}};
    e[3] = 0.1f;
    EXPECT_NO_THROW(s->forward(request)) << n;
    e[3] = std::nanf("");
    EXPECT_THROW(s->forward(request), base::Error) << n;
  }
}

TEST_P(ForwardFeatures, LogitsAndHiddenOnlyWhereAsked) {
  const auto m = feature_models(GetParam().format)[1];
  auto s = open(m.model, GetParam());
  const std::vector<Row> rows = {{.token = 1, .logits = false, .hidden = true},
                                 {.token = 2, .parent = 0, .logits = true},
                                 {.token = 3, .parent = 1, .logits = false}};
  const ForwardResult r = s->forward({.rows = rows});
  EXPECT_EQ(r.logits.rows, 1);
  EXPECT_EQ(r.hidden.rows, 1);
  EXPECT_THAT(copy({reinterpret_cast<const float*>(r.logits_of.data()), 0}), ::testing::IsEmpty());
  EXPECT_EQ(r.logits_of[0], -1);
  EXPECT_EQ(r.logits_of[1], 0);
  EXPECT_EQ(r.hidden_of[0], 0);
  const auto logits = copy(r.logits_row(1));
  EXPECT_TRUE(same_bits(logits, decode_alone(*s, {1, 2})));
}

TEST_P(ForwardFeatures, HeadOfHiddenEqualsLogits) {
  for (const auto& m : some_models(GetParam())) {
    auto s = open(m.model, GetParam());
    s->prefill(random_tokens(10, 101, 1));
    const Row row{.token = 5, .hidden = true};
    const ForwardResult r = s->forward({.rows = {&row, 1}});
    const auto logits = copy(r.logits_row(0)), hidden = copy(r.hidden_row(0));
    const MatrixView again = s->head({hidden.data(), 1, static_cast<int>(hidden.size())});
    EXPECT_TRUE(same_bits(again.row(0), logits)) << m.name;
  }
}

TEST_P(ForwardFeatures, ResidualEnteringLayerZeroIsTheEmbedding) {
  const auto m = feature_models(GetParam().format)[2];
  auto s = open(m.model, GetParam());
  s->prefill(random_tokens(10, 101, 1));
  const Row row{.token = 77};
  const int layers[] = {2, 0};
  const ForwardResult r = s->forward({.rows = {&row, 1}, .residual_layers = layers});
  std::vector<float> e(static_cast<size_t>(m.model->config().d_model));
  m.model->embed(77, e);
  ASSERT_EQ(r.residual.size(), 2u);
  EXPECT_TRUE(same_bits(r.residual[1].row(0), e));
  EXPECT_FALSE(same_bits(r.residual[0].row(0), e));
}

// Prefix keys and values taken from committed tokens must act as those tokens do. Near, not equal:
// a prefix is its own run of chunks, so sums are merged at other places (float32 noise of a few
// ulp).
TEST_P(ForwardFeatures, PrefixBankActsAsTheTokensItWasTakenFrom) {
  const auto m = feature_models(GetParam().format)[0];
  const ModelConfig& c = m.model->config();
  const size_t width = static_cast<size_t>(c.kv_dim());
  const auto text = random_tokens(9, c.vocab_size, 21);
  auto with_context = open(m.model, GetParam());
  with_context->prefill(text);
  PrefixBank bank;
  bank.length = 9;
  for (int l = 0; l < c.n_layers; ++l) {
    bank.k.emplace_back(9 * width);
    bank.v.emplace_back(9 * width);
    for (int p = 0; p < 9; ++p)
      with_context->read_kv(
          l, p, 0, std::span(bank.k.back()).subspan(static_cast<size_t>(p) * width, width),
          std::span(bank.v.back()).subspan(static_cast<size_t>(p) * width, width));
  }
  const auto want = decode_alone(*with_context, {33});
  auto empty = open(m.model, GetParam());
  const Row row{.token = 33, .position = 9, .prefix = true};
  const ForwardResult r = empty->forward({.rows = {&row, 1}, .prefix = &bank});
  if (GetParam().own_bits() && GetParam().device != "cpu") {
    EXPECT_TRUE(as_reference(GetParam(), r.logits_row(0), want));  // its keys are merged separately
    return;
  }
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(r.logits_row(0)[i], want[i], 2e-4) << i;
}

TEST_P(ForwardFeatures, PrefixBankDoesNotTouchUnflaggedRows) {
  const auto m = feature_models(GetParam().format)[1];
  const ModelConfig& c = m.model->config();
  PrefixBank bank;
  bank.length = 130;  // more than a chunk
  base::Rng rng(3);
  for (int l = 0; l < c.n_layers; ++l) {
    bank.k.emplace_back(static_cast<size_t>(bank.length * c.kv_dim()));
    for (float& x : bank.k.back()) x = static_cast<float>(rng.uniform() * 100 - 50);
    bank.v.push_back(bank.k.back());
  }
  auto s = open(m.model, GetParam()), reference = open_reference(m.model, GetParam());
  const auto prompt = random_tokens(40, c.vocab_size, 2);
  s->prefill(prompt);
  reference->prefill(prompt);
  const std::vector<Row> rows = {
      {.token = 1}, {.token = 2, .parent = 0}, {.token = 2, .parent = 0, .prefix = true}};
  const ForwardRequest request{.rows = rows, .prefix = &bank};
  const ForwardResult r = s->forward(request);
  const auto plain = copy(r.logits_row(1)), flagged = copy(r.logits_row(2));
  // Scores are in the hundreds: rounded inputs choose other keys.
  if (!GetParam().own_bits()) {
    EXPECT_TRUE(same_bits(flagged, reference->forward(request).logits_row(2)));
  }
  EXPECT_FALSE(same_bits(flagged, plain));
  EXPECT_TRUE(same_bits(plain, decode_alone(*s, {1, 2})));
}

TEST_P(ForwardFeatures, BlockRowsSeeEachOtherAndNothingElse) {
  const auto m = feature_models(GetParam().format)[0];
  auto s = open(m.model, GetParam()), reference = open_reference(m.model, GetParam());
  const auto prompt = random_tokens(126, 101, 2);  // the blocks cross a chunk border
  s->prefill(prompt);
  reference->prefill(prompt);
  // root, a block of 3 under it, a block of 3 under that, and a plain sibling of the first block.
  std::vector<Row> rows = {{.token = 1}};
  for (int i = 0; i < 3; ++i) rows.push_back({.token = 10 + i, .parent = 0, .block = 0});
  for (int i = 0; i < 3; ++i) rows.push_back({.token = 20 + i, .parent = 1, .block = 1});
  rows.push_back({.token = 30, .parent = 0});
  const auto logits_of = [&](Session& session, const std::vector<Row>& r) {
    std::vector<std::vector<float>> all;
    const ForwardResult result = session.forward({.rows = r});
    for (size_t i = 0; i < r.size(); ++i)
      all.push_back(copy(result.logits_row(static_cast<int>(i))));
    return all;
  };
  const auto base = logits_of(*s, rows);
  const auto oracle = logits_of(*reference, rows);
  for (size_t i = 0; i < rows.size(); ++i)
    EXPECT_TRUE(as_reference(GetParam(), base[i], oracle[i])) << i;
  EXPECT_TRUE(same_bits(base[7], decode_alone(*s, {1, 30})));
  // Changing the last slot of a block changes its earlier slots and its descendants, nobody else.
  rows[3].token = 99;
  const auto changed = logits_of(*s, rows);
  for (const size_t i : {0, 7}) EXPECT_TRUE(same_bits(base[i], changed[i])) << i;
  for (const size_t i : {1, 2, 3, 4, 5, 6}) EXPECT_FALSE(same_bits(base[i], changed[i])) << i;
  rows[6].token = 98;  // last slot of the second block: the first block does not see it
  const auto again = logits_of(*s, rows);
  for (const size_t i : {0, 1, 2, 3, 7}) EXPECT_TRUE(same_bits(changed[i], again[i])) << i;
  for (const size_t i : {4, 5, 6}) EXPECT_FALSE(same_bits(changed[i], again[i])) << i;
}

TEST_P(ForwardFeatures, SkippingTheLastLayersEqualsTheCutModel) {
  ModelConfig c = small_config();
  c.n_layers = 4;
  const auto model = make_random_model(c, 31);
  auto full = open(model, GetParam()), cut = open(model->first_layers(2), GetParam());
  SkipSet skip;
  skip.attention = skip.mlp = {false, false, true, true};
  const auto prompt = random_tokens(30, c.vocab_size, 6);
  full->prefill(prompt);
  cut->prefill(prompt);
  // Two draft steps on the target's own cache, then back.
  for (const int32_t t : {5, 6}) {
    const Row row{.token = t};
    const ForwardResult a = full->forward({.rows = {&row, 1}, .skip = &skip});
    const ForwardResult b = cut->forward({.rows = {&row, 1}});
    EXPECT_TRUE(same_bits(a.logits_row(0), b.logits_row(0)));
    const int zero = 0;
    full->commit({&zero, 1});
    cut->commit({&zero, 1});
  }
  const Row row{.token = 7};
  EXPECT_THROW((void)full->forward({.rows = {&row, 1}}),
               InternalError);  // would see half-made keys
  full->rewind(30);
  auto fresh = open(model, GetParam());
  fresh->prefill(prompt);
  EXPECT_TRUE(same_bits(decode_alone(*full, {7}), decode_alone(*fresh, {7})));
}

TEST_P(ForwardFeatures, SkippingOneSublayerChangesOnlyWhatItShould) {
  const auto m = feature_models(GetParam().format)[0];
  auto s = open(m.model, GetParam()), reference = open_reference(m.model, GetParam());
  SkipSet attention_only;
  attention_only.attention = {true, true};
  const std::vector<Row> rows = {{.token = 1}, {.token = 2, .parent = 0}};
  const ForwardRequest request{.rows = rows, .skip = &attention_only};
  const auto a = copy(s->forward(request).logits_row(1));
  EXPECT_TRUE(as_reference(GetParam(), a, reference->forward(request).logits_row(1)));
  // Without attention a row knows nothing of its parent.
  const Row alone{.token = 2};
  EXPECT_TRUE(
      same_bits(a, s->forward({.rows = {&alone, 1}, .skip = &attention_only}).logits_row(0)));
}

PrefixBank random_bank(const ModelConfig& c, int length, int heads, double size, uint64_t seed) {
  base::Rng rng(seed);
  PrefixBank bank;
  bank.length = length, bank.heads = heads;
  const auto values = [&] {
    std::vector<float> v(static_cast<size_t>(length * heads * c.head_dim));
    for (float& x : v) x = static_cast<float>((rng.uniform() - 0.5) * size);
    return v;
  };
  for (int l = 0; l < c.n_layers; ++l) bank.k.push_back(values()), bank.v.push_back(values());
  return bank;
}

// Mask rows are many and stand side by side: they go through attention in blocks. With a bank per
// query head, as published programs have it, each query meets its own keys.
TEST_P(ForwardFeatures, PrefixRowsInBlocksHaveTheReferencesBits) {
  for (const auto& m : some_models(GetParam())) {
    const ModelConfig& c = m.model->config();
    auto s = open(m.model, GetParam()), reference = open_reference(m.model, GetParam());
    for (const int heads : {c.n_kv_heads, c.n_heads}) {  // in sequence in one session
      const PrefixBank bank = random_bank(c, 7, heads, 2.0, 5);
      s->reset(), reference->reset();
      const std::vector<int32_t> prompt = {5, 6, 7};
      s->prefill(prompt), reference->prefill(prompt);
      std::vector<Row> rows;
      for (int i = 0; i < 21; ++i)
        rows.push_back({.token = 3 + i, .parent = i / 3 - 1, .prefix = i % 7 > 1});
      const ForwardRequest request{.rows = rows, .prefix = &bank};
      const ForwardResult r = s->forward(request), want = reference->forward(request);
      for (int i = 0; i < 21; ++i)
        EXPECT_TRUE(as_reference(GetParam(), r.logits_row(i), want.logits_row(i)))
            << "row " << i << ", " << heads << " heads";
    }
  }
}

// Real rows do not know of mask rows, however large their prefix (BiTA's claim, bit for bit).
TEST_P(ForwardFeatures, LargePrefixesLeaveRealRowsAsTheyAre) {
  const auto m = feature_models(GetParam().format)[0];
  PrefixBank bank = random_bank(m.model->config(), 16, m.model->config().n_kv_heads, 200.0, 6);
  bank.id = PrefixBank::next_id();
  auto s = open(m.model, GetParam());
  const std::vector<Row> rows = {{.token = 4},
                                 {.token = 9, .parent = 0},
                                 {.token = 1, .parent = 0, .prefix = true},
                                 {.token = 2, .parent = 2, .prefix = true},
                                 {.token = 1, .parent = 1, .prefix = true}};
  for (int round = 0; round < 2; ++round) {  // the second finds the bank loaded
    const ForwardResult r = s->forward({.rows = rows, .prefix = &bank});
    const auto first = copy(r.logits_row(0)), second = copy(r.logits_row(1));
    EXPECT_TRUE(same_bits(first, decode_alone(*s, {4})));
    EXPECT_TRUE(same_bits(second, decode_alone(*s, {4, 9})));
  }
}

LowRankDelta random_delta(const ModelConfig& c, int rank, uint64_t seed,
                          WeightStorage storage = WeightStorage::kF32) {
  base::Rng rng(seed);
  const auto matrix = [&](int out, int in) {
    WeightMatrix w(WeightStorage::kF32, out, in);
    std::vector<float> row(static_cast<size_t>(in));
    for (int o = 0; o < out; ++o) {
      for (float& x : row) x = static_cast<float>(rng.uniform() - 0.5) * 0.2f;
      w.set_row(o, row);
    }
    return w;
  };
  const auto factor = [&](int out, int in) {
    return LowRankFactor{
        .scale = 0.5f, .a = matrix(rank, in).converted(storage), .b = matrix(out, rank)};
  };
  LowRankDelta delta;
  for (int l = 0; l < c.n_layers; ++l)
    delta.layers.push_back({factor(c.q_dim(), c.d_model), factor(c.kv_dim(), c.d_model),
                            factor(c.kv_dim(), c.d_model), factor(c.d_model, c.q_dim()),
                            factor(c.d_ffn, c.d_model), factor(c.d_ffn, c.d_model),
                            factor(c.d_model, c.d_ffn)});
  return delta;
}

// As adapters have them: bfloat16 first, many rows at once, some of them flagged, a rank that
// fills no panel.
TEST_P(ForwardFeatures, LowRankRowsHaveTheReferencesBitsHoweverManyThereAre) {
  const auto m = feature_models(GetParam().format)[0];
  auto s = open(m.model, GetParam()), reference = open_reference(m.model, GetParam());
  std::vector<Row> rows;
  for (int i = 0; i < 23; ++i)
    rows.push_back({.token = 3 + i, .parent = i / 2 - 1, .low_rank = i % 5 != 0});
  std::vector<float> last;
  for (const bool all : {true, false}) {
    LowRankDelta delta = random_delta(m.model->config(), 5, 11, WeightStorage::kBf16);
    if (!all) {  // adapters of some matrices only
      delta.layers[0].k = delta.layers[0].o = delta.layers[0].up = {};
      delta.layers[1].q = delta.layers[1].v = delta.layers[1].gate = delta.layers[1].down = {};
    }
    const ForwardRequest request{.rows = rows, .low_rank = &delta};
    const ForwardResult r = s->forward(request), want = reference->forward(request);
    for (int i = 0; i < 23; ++i)
      EXPECT_TRUE(
          as_reference(GetParam(), r.logits_row(i), want.logits_row(i), GetParam().device == "cpu"))
          << "row " << i << (all ? "" : ", some matrices");
    EXPECT_FALSE(same_bits(last, r.logits_row(22)));
    last = copy(r.logits_row(22));
  }
}

TEST_P(ForwardFeatures, LowRankDeltaActsAsMergedWeightsOnFlaggedRowsOnly) {
  const auto m = feature_models(GetParam().format)[1];  // with biases
  const LowRankDelta delta = random_delta(m.model->config(), 3, 9);
  auto s = open(m.model, GetParam()), reference = open_reference(m.model, GetParam());
  const std::vector<Row> rows = {
      {.token = 3, .low_rank = true}, {.token = 4, .parent = 0, .low_rank = true}, {.token = 3}};
  const ForwardRequest request{.rows = rows, .low_rank = &delta};
  const ForwardResult r = s->forward(request);
  const auto flagged = copy(r.logits_row(1)), plain = copy(r.logits_row(2));
  EXPECT_TRUE(as_reference(GetParam(), flagged, reference->forward(request).logits_row(1)));
  EXPECT_TRUE(same_bits(plain, decode_alone(*s, {3})));
  if (GetParam().format != WeightFormat::kF32) return;  // merged weights would be rounded again
  auto merged = open(merge_low_rank(*m.model, delta, "merged", "", 2), GetParam());
  // Other order of additions than merged weights: float32 noise on logits of a few units.
  const auto want = decode_alone(*merged, {3, 4});
  double moved = 0;
  const auto original = decode_alone(*s, {3, 4});
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(flagged[i], want[i], 2e-4);
    moved = std::max(moved, std::abs(static_cast<double>(want[i]) - original[i]));
  }
  EXPECT_GT(moved, 0.05) << "the delta is too small for this test to mean anything";
}

TEST_P(ForwardFeatures, WithoutKvCacheTheBitsAreTheSame) {
  const auto m = feature_models(GetParam().format)[3];
  SessionOptions o;
  o.device = GetParam().device;
  o.isa = GetParam().isa, o.kv_dtype = GetParam().kv_dtype, o.one_isa = GetParam().one_isa,
  o.n_threads = 2, o.max_tokens = 512, o.kv_cache = false;
  auto off = Session::create(m.model, o);
  auto on = open(m.model, GetParam());
  const auto prompt = random_tokens(270, 101, 2);
  off->prefill(prompt);
  on->prefill(prompt);
  for (int step = 0; step < 3; ++step) {
    const auto tree = random_tree(6, 101, static_cast<uint64_t>(step), 2);
    const auto a = copy(off->forward({.rows = tree}).logits_row(5));
    EXPECT_TRUE(same_bits(a, on->forward({.rows = tree}).logits_row(5))) << step;
    const int zero = 0;
    off->commit({&zero, 1});
    on->commit({&zero, 1});
  }
  EXPECT_EQ(off->length(), 273);
}

// On the emulator and slow instruction sets not every format has all the rows, another one in other
// runs: room, borders of chunks and the merge of keys are no matter of the format, and 150 rows
// meet its products.
TEST_P(ForwardFeatures, AThousandRowsInOneForward) {
  const bool all = !few_cases(GetParam()) || in_full(GetParam(), "a thousand rows");
  const int n = all ? kMaxRows : 150;
  const auto m = feature_models(GetParam().format)[0];
  auto s = open(m.model, GetParam(), 2, 2048);
  s->prefill(random_tokens(33, 101, 1));
  auto chain = random_tree(n, 101, 1, 1);
  for (Row& r : chain) r.hidden = false, r.logits = false;
  chain.back().logits = true;
  const auto last = copy(s->forward({.rows = chain}).logits_row(n - 1));
  std::vector<int32_t> tokens;
  for (const Row& r : chain) tokens.push_back(r.token);
  auto fresh = open(m.model, GetParam(), 2, 2048);
  fresh->prefill(random_tokens(33, 101, 1));
  fresh->prefill(std::span(tokens).subspan(0, tokens.size() - 1));
  EXPECT_TRUE(same_bits(last, decode_alone(*fresh, {tokens.back()})));
  chain.resize(kMaxRows + 1, chain.back());
  EXPECT_THROW((void)s->forward({.rows = chain}), InternalError);
}

INSTANTIATE_TEST_SUITE_P(Isa, ForwardFeatures, ::testing::ValuesIn(all_paths()),
                         [](const auto& instance) { return instance.param.name(); });

}  // namespace
}  // namespace evalrun::engine::testing
