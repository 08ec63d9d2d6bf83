// Small layers of drafters on every device: what they compute, and that a device does it in one go.
#include "engine/row_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/base/error.h"
#include "tests/engine/random_models.h"
#ifdef EVALRUN_CUDA_EMULATED
#include "tests/gpu/emulator/include/emulator.h"
#endif

namespace evalrun::engine::testing {
namespace {

class RowPrograms : public ::testing::TestWithParam<Path> {};

WeightMatrix matrix_of(WeightStorage storage, int out, int in, uint64_t seed) {
  WeightMatrix w(storage, out, in);
  for (int o = 0; o < out; ++o) {
    std::vector<float> row = random_floats(in, seed + static_cast<uint64_t>(o));
    for (float& v : row) v *= 0.3f;
    w.set_row(o, row);
  }
  return w;
}
SharedVector vector_of(int n, uint64_t seed) {
  return std::make_shared<const std::vector<float>>(random_floats(n, seed));
}

// What compute() left, brought to the host by a product with the unit matrix in float32.
std::vector<float> read(Session& s, InputView view) {
  WeightMatrix unit(WeightStorage::kF32, view.cols, view.cols);
  std::vector<float> row(static_cast<size_t>(view.cols));
  for (int i = 0; i < view.cols; ++i) {
    row.assign(row.size(), 0.0f);
    row[static_cast<size_t>(i)] = 1.0f;
    unit.set_row(i, row);
  }
  const WeightMatrix* head = &unit;
  const Scores scores = s.score({&head, 1}, view, 0);
  return {scores.logits.data,
          scores.logits.data + static_cast<size_t>(view.rows) * static_cast<size_t>(view.cols)};
}

// Every step there is, on rows and widths that are no multiples of anything.
struct Case {
  static constexpr int kHidden = 23;
  int n_rows;
  std::shared_ptr<const Model> model;
  int d;
  WeightMatrix joint, gates, four_gates, block;
  SharedVector joint_bias, gate_bias, block_bias;
  std::vector<float> features, one;
  std::vector<int32_t> tokens;

  explicit Case(std::shared_ptr<const Model> m, int rows = 5)
      : n_rows(rows),
        model(std::move(m)),
        d(model->config().d_model),
        joint(matrix_of(model->layer(0).gate.storage(), d, 2 * d, 1)),
        gates(matrix_of(joint.storage(), 3 * kHidden, 2 * d, 100)),
        four_gates(matrix_of(joint.storage(), 4 * d, kHidden, 300)),
        block(matrix_of(joint.storage(), d, d, 500)),
        joint_bias(vector_of(d, 2)),
        gate_bias(vector_of(3 * kHidden, 3)),
        block_bias(vector_of(d, 4)),
        features(random_floats(n_rows * d, 5)),
        one(random_floats(d, 7)),
        tokens(random_tokens(n_rows, model->config().vocab_size, 6)) {}

  // The number of the result.
  int write(RowProgram& p) const {
    const int given = p.given({features.data(), n_rows, d}), joined = p.value(n_rows, 2 * d);
    p.embed({joined}, tokens, d, 0.7f);
    p.copy({joined, 0, d}, {given}, n_rows, d, 1.3f);
    const int y = p.value(n_rows, d);
    p.product({y}, joint, {joined}, n_rows, joint_bias);
    const int g = p.value(n_rows, 3 * kHidden), h = p.value(n_rows, kHidden);
    p.product({g}, gates, {joined}, n_rows, gate_bias);
    p.lstm(h, g);
    const int g4 = p.value(n_rows, 4 * d), h4 = p.value(n_rows, d);
    p.product({g4}, four_gates, {h}, n_rows);
    p.lstm(h4, g4);
    p.add(y, h4, 1.5f);
    // One row for all.
    const int state = p.given({one.data(), 1, d}), everywhere = p.value(n_rows, d);
    p.copy({everywhere}, {state}, n_rows, d, 0.5f);
    p.add(y, everywhere);
    // Rows 1..3 of y through the block, beside what rows 0 and 4 are.
    const int z = p.value(n_rows, d);
    p.copy({z}, {y}, n_rows, d);
    if (n_rows > 3) p.product({z, 1}, block, {y, 1}, 3, block_bias);
    p.add_silu(y, z);
    // What a product has read before may have changed since.
    const int again = p.value(n_rows, d);
    p.product({again}, block, {y}, n_rows);
    p.add_silu(y, again);
    return y;
  }

  std::vector<double> expected() const {
    using Row = std::vector<double>;
    const auto at = [](int i, int j, int width) {
      return static_cast<size_t>(i) * static_cast<size_t>(width) + static_cast<size_t>(j);
    };
    const auto product = [](const WeightMatrix& w, const Row& x, const SharedVector& bias) {
      Row y(static_cast<size_t>(w.out()));
      for (int o = 0; o < w.out(); ++o) {
        double sum = bias == nullptr ? 0 : static_cast<double>((*bias)[static_cast<size_t>(o)]);
        for (int k = 0; k < w.in(); ++k)
          sum += static_cast<double>(w.at(o, k)) * x[static_cast<size_t>(k)];
        y[static_cast<size_t>(o)] = sum;
      }
      return y;
    };
    const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
    const auto lstm = [&](const Row& g, int width) {
      const size_t n = static_cast<size_t>(width), c = g.size() - 2 * n, o = g.size() - n;
      Row h(n);
      for (size_t j = 0; j < n; ++j)
        h[j] = sigmoid(g[o + j]) * std::tanh(sigmoid(g[j]) * std::tanh(g[c + j]));
      return h;
    };
    std::vector<double> all;
    for (int i = 0; i < n_rows; ++i) {
      std::vector<float> e(static_cast<size_t>(d));
      model->embed(tokens[static_cast<size_t>(i)], e);
      Row joined;
      for (const float v : e) joined.push_back(0.7 * static_cast<double>(v));
      for (int j = 0; j < d; ++j)
        joined.push_back(1.3 * static_cast<double>(features[at(i, j, d)]));
      Row y = product(joint, joined, joint_bias);
      const Row h = lstm(product(gates, joined, gate_bias), kHidden),
                h4 = lstm(product(four_gates, h, nullptr), d);
      for (size_t j = 0; j < y.size(); ++j) y[j] += 1.5 * h4[j];
      for (size_t j = 0; j < y.size(); ++j) y[j] += 0.5 * static_cast<double>(one[j]);
      const Row z = n_rows > 3 && i >= 1 && i <= 3 ? product(block, y, block_bias) : y;
      for (size_t j = 0; j < y.size(); ++j) y[j] += z[j] * sigmoid(z[j]);
      const Row again = product(block, y, nullptr);
      for (size_t j = 0; j < y.size(); ++j) y[j] += again[j] * sigmoid(again[j]);
      all.insert(all.end(), y.begin(), y.end());
    }
    return all;
  }
};

// Where every access is looked at, float32, which has kernels of its own, and one other path.
bool is_left_to_the_other_run(const Path& path) {
  return looks_at_accesses() && path.format != WeightFormat::kF32 && !in_full(path, "row programs");
}

TEST_P(RowPrograms, AreTheirDefinition) {
  const auto model = feature_models(GetParam().format)[0].model;
  auto s = open(model, GetParam());
  RowProgram p;
  for (const int n : {5, 1, 5, 5, 70, 1}) {  // the same buffers, new ones, graphs made and replayed
    const Case c(model, n);
    p.clear();
    const int result = c.write(p);
    const std::vector<float> got = read(*s, s->compute(p, result));
    const std::vector<double> want = c.expected();
    double error = 0, size = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      error += std::pow(static_cast<double>(got[i]) - want[i], 2);
      size += want[i] * want[i];
    }
    EXPECT_LT(std::sqrt(error / size), GetParam().format == WeightFormat::kF32 ? 1e-6 : 0.03);
    if (GetParam().own_bits()) continue;
    auto reference = open_reference(c.model, GetParam());
    EXPECT_TRUE(same_bits(got, read(*reference, reference->compute(p, result))));
  }
}

// A forward takes computed rows as it takes the host's, whether it is new or replayed.
TEST_P(RowPrograms, FeedForwards) {
  if (is_left_to_the_other_run(GetParam())) return;
  const Case c(feature_models(GetParam().format)[0].model);
  auto s = open(c.model, GetParam()), plain = open(c.model, GetParam());
  std::vector<Row> rows(c.n_rows);
  for (int i = 0; i < c.n_rows; ++i)
    rows[static_cast<size_t>(i)] = {.embedding = c.n_rows - 1 - i, .parent = i - 1};
  RowProgram p;
  for (int step = 0; step < 3; ++step) {
    p.clear();
    const int result = c.write(p);
    const std::vector<float> host = read(*plain, plain->compute(p, result));
    const ForwardResult got = s->forward({.rows = rows, .embeddings = s->compute(p, result)});
    const ForwardResult want =
        plain->forward({.rows = rows, .embeddings = {host.data(), c.n_rows, c.d}});
    for (int i = 0; i < c.n_rows; ++i)
      ASSERT_TRUE(same_bits(got.logits_row(i), want.logits_row(i))) << "step " << step;
    const int path[] = {0, 1};
    s->commit(path), plain->commit(path);
  }
}

// One head for all rows, or one for each; of the host's rows and computed ones.
TEST_P(RowPrograms, FeedHeads) {
  if (is_left_to_the_other_run(GetParam())) return;
  const Case c(feature_models(GetParam().format)[0].model);
  auto s = open(c.model, GetParam());
  RowProgram p;
  const int result = c.write(p);
  const std::vector<float> host = read(*s, s->compute(p, result));
  std::vector<WeightMatrix> own;
  for (int i = 0; i < c.n_rows; ++i)
    own.push_back(matrix_of(c.joint.storage(), 70, c.d, 1000 * static_cast<uint64_t>(i)));
  for (const bool together : {true, false}) {
    std::vector<const WeightMatrix*> heads;
    for (int i = 0; i < (together ? 1 : c.n_rows); ++i)
      heads.push_back(&own[static_cast<size_t>(i)]);
    for (const int n_best : {0, 3}) {
      std::vector<std::vector<TokenLogit>> want;
      std::vector<std::vector<float>> logits;
      for (int i = 0; i < c.n_rows; ++i) {
        const WeightMatrix* head = heads[together ? 0 : static_cast<size_t>(i)];
        const Scores one = s->score({&head, 1}, {host.data() + i * c.d, 1, c.d}, n_best);
        logits.push_back(copy(one.row(0).logits));
        want.emplace_back(one.row(0).best.begin(), one.row(0).best.end());
      }
      const auto same = [&](const Scores& got) {
        for (int i = 0; i < c.n_rows; ++i) {
          const auto row = static_cast<size_t>(i);
          EXPECT_TRUE(same_bits(got.row(i).logits, logits[row])) << i;
          ASSERT_EQ(got.row(i).best.size(), want[row].size());
          for (size_t j = 0; j < want[row].size(); ++j) {
            EXPECT_EQ(got.row(i).best[j].token, want[row][j].token) << i;
            EXPECT_EQ(got.row(i).best[j].logit, want[row][j].logit) << i;
          }
        }
      };
      same(s->score(heads, {host.data(), c.n_rows, c.d}, n_best));
      same(s->score(heads, s->compute(p, result), n_best));
    }
    // Draws: their tokens, row by row.
    const SamplingParams sampling{.temperature = 1};
    const auto dists = s->make_distributions(c.n_rows, 70, {});
    base::Rng rng(9);
    std::vector<std::array<double, 2>> uniforms(static_cast<size_t>(c.n_rows));
    std::vector<DistributionDraw> draws;
    std::vector<int32_t> want;
    for (int i = 0; i < c.n_rows; ++i) {
      auto& two = uniforms[static_cast<size_t>(i)];
      two = {rng.uniform(), rng.uniform()};
      draws.push_back({i, i, two});
      const WeightMatrix* head = heads[together ? 0 : static_cast<size_t>(i)];
      DistributionDraw alone = draws.back();
      alone.row = 0;
      const auto tokens = s->draw({&head, 1}, {host.data() + i * c.d, 1, c.d},
                                  {&sampling, dists.get(), {&alone, 1}});
      want.insert(want.end(), tokens.begin(), tokens.end());
    }
    EXPECT_EQ(want.size(), 2u * static_cast<size_t>(c.n_rows));
    const DistributionDraws all{&sampling, dists.get(), draws};
    EXPECT_TRUE(std::ranges::equal(s->draw(heads, s->compute(p, result), all), want));
    EXPECT_TRUE(std::ranges::equal(s->draw(heads, {host.data(), c.n_rows, c.d}, all), want));
  }
}

#ifdef EVALRUN_CUDA_EMULATED
// Whatever a drafter computes before a forward or a head costs no wait of its own.
TEST_P(RowPrograms, WaitForNothing) {
  if (is_left_to_the_other_run(GetParam())) return;
  const Case c(feature_models(GetParam().format)[0].model);
  auto s = open(c.model, GetParam());
  RowProgram p;
  const int result = c.write(p);
  const WeightMatrix* head = &c.block;
  const Row row{.embedding = 0, .logits = false, .top = true};
  const int path[] = {0};
  for (int step = 0; step < 3; ++step) {
    const long before = emulator::waits(), launches = emulator::kernel_launches();
    (void)s->score({&head, 1}, s->compute(p, result), 2);
    const long scored = emulator::waits();
    (void)s->forward({.rows = {&row, 1}, .embeddings = s->compute(p, result)});
    s->commit(path);
    if (step == 0) continue;  // matrices are brought, a graph is made
    EXPECT_EQ(scored - before, 1);
    EXPECT_EQ(emulator::waits() - scored, 1);
    EXPECT_LE(emulator::kernel_launches() - launches, 1) << "all but the commit are graphs";
  }
}
#endif

TEST_P(RowPrograms, AreCheckedWhenTheyAreWritten) {
  RowProgram p;
  const std::vector<float> x(12);
  const int given = p.given({x.data(), 3, 4}), y = p.value(3, 4);
  const WeightMatrix w(WeightStorage::kF32, 4, 5);
  EXPECT_THROW(p.copy({y}, {given}, 4, 4), base::InternalError);
  EXPECT_THROW(p.copy({y, 0, 1}, {given}, 3, 4), base::InternalError);
  EXPECT_THROW(p.copy({given}, {y}, 3, 4), base::InternalError) << "what is given stays";
  EXPECT_THROW(p.product({y}, w, {given}, 3), base::InternalError);
  EXPECT_THROW(p.lstm(y, given), base::InternalError);
  EXPECT_THROW(p.add(y, 7), base::InternalError);
  EXPECT_THROW((void)p.value(0, 4), base::InternalError);
}

INSTANTIATE_TEST_SUITE_P(Engine, RowPrograms, ::testing::ValuesIn(all_paths()),
                         [](const auto& path) { return path.param.name(); });

}  // namespace
}  // namespace evalrun::engine::testing
