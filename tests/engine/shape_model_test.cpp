// Models of a shape with random weights: few layers in turn, finite numbers, and everything that a
// forward's cost depends on as in a whole model.
#include "engine/model/shape_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "engine/cache_memory.h"
#include "tests/engine/random_models.h"

namespace evalrun::engine {
namespace {

ModelConfig deep_config() {
  ModelConfig c = testing::small_config();
  c.n_layers = 32;      // values must stay finite through all of them
  c.vocab_size = 2101;  // more than are drawn, and no whole panels
  return c;
}

std::shared_ptr<const Model> shape(const ModelConfig& c, WeightFormat format, int distinct,
                                   uint64_t seed = 1, int threads = 2) {
  return make_shape_model(
      c, {.format = format, .distinct_layers = distinct, .n_threads = threads, .seed = seed});
}

bool same_bytes(const WeightMatrix& a, const WeightMatrix& b) {
  return a.size() == b.size() && std::memcmp(a.bytes().data(), b.bytes().data(), a.size()) == 0;
}

TEST(ShapeModel, LayersAreUsedInTurn) {
  const auto model = shape(deep_config(), WeightFormat::kQ4, 3);
  std::set<const LayerWeights*> layers;
  std::set<const std::byte*> memory;
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(&model->layer(i), &model->layer(i % 3));
    layers.insert(&model->layer(i));
    memory.insert(model->layer(i).down.bytes().data());
  }
  EXPECT_EQ(layers.size(), 3u);
  EXPECT_EQ(memory.size(), 3u);
  EXPECT_FALSE(same_bytes(model->layer(0).q, model->layer(1).q));
  EXPECT_FALSE(same_bytes(model->layer(0).gate, model->layer(0).up));
  EXPECT_EQ(&model->head(), &model->embedding()) << "tied";
  const auto fast = shape(deep_config(), WeightFormat::kInt8Fast, 3);
  EXPECT_NE(&fast->head(), &fast->embedding()) << "tied, in another storage";
  EXPECT_EQ(model->hash(), "") << "no cache of tables may know it";
}

TEST(ShapeModel, SeedDecidesAndThreadsDoNot) {
  const ModelConfig c = deep_config();
  const auto one = shape(c, WeightFormat::kInt8, 2, 7, 1),
             many = shape(c, WeightFormat::kInt8, 2, 7, 5),
             other = shape(c, WeightFormat::kInt8, 2, 8, 1);
  EXPECT_TRUE(same_bytes(one->layer(1).down, many->layer(1).down));
  EXPECT_TRUE(same_bytes(one->embedding(), many->embedding()));
  EXPECT_FALSE(same_bytes(one->embedding(), other->embedding()));
}

// Drawn rows are normal numbers of the promised deviation; the others repeat them.
TEST(ShapeModel, RowsAreNormalAndRepeatAfter1024) {
  const auto model = shape(deep_config(), WeightFormat::kF32, 1);
  const WeightMatrix& m = model->embedding();
  double sum = 0, squares = 0;
  std::vector<float> row(static_cast<size_t>(m.in())), again(row.size());
  for (int o = 0; o < 1024; ++o) {
    m.copy_row(o, row);
    for (const float x : row) {
      sum += static_cast<double>(x);
      squares += static_cast<double>(x) * static_cast<double>(x);
    }
  }
  const double n = 1024.0 * m.in(), deviation = 4 / std::sqrt(static_cast<double>(m.in()));
  // Four standard errors of n independent normal numbers.
  EXPECT_NEAR(sum / n, 0, 4 * deviation / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n), deviation, 4 * deviation / std::sqrt(2 * n));
  m.copy_row(5, row);
  m.copy_row(1024 + 5, again);
  EXPECT_EQ(row, again);
  m.copy_row(2100, again);  // the last one, of a panel that is not full: drawn
  m.copy_row(2100 % 1024, row);
  EXPECT_NE(row, again);
}

TEST(ShapeModel, NumbersAreFiniteInEveryFormatAndFamily) {
  ModelConfig qwen2 = deep_config(), qwen3 = deep_config();
  qwen2.architecture = "qwen2", qwen2.qkv_bias = true, qwen2.tied_head = false;
  qwen3.architecture = "qwen3", qwen3.qk_norm = true, qwen3.head_dim = 24;
  for (const ModelConfig& c : {deep_config(), qwen2, qwen3})
    for (const WeightFormatSpec& spec : rounded_formats()) {
      SCOPED_TRACE(c.architecture + " " + std::string(spec.name));
      const auto session = testing::open(shape(c, spec.format, 2), available_isas().front());
      session->prefill(testing::random_tokens(40, c.vocab_size, 3));
      const auto rows = testing::random_tree(4, c.vocab_size, 5, 1);
      const ForwardResult result = session->forward({.rows = rows});
      for (int i = 0; i < 4; ++i) {
        double squares = 0;
        for (const float x : result.logits_row(i)) {
          ASSERT_TRUE(std::isfinite(x));
          squares += static_cast<double>(x) * static_cast<double>(x);
        }
        const double deviation = std::sqrt(squares / c.vocab_size);
        EXPECT_GT(deviation, 1) << "of a model's size: 4";
        EXPECT_LT(deviation, 16);
      }
    }
}

// Two layers that share weights share neither inputs nor keys and values.
TEST(ShapeModel, EveryLayerHasItsOwnCache) {
  const ModelConfig c = deep_config();
  const auto few = testing::open(shape(c, WeightFormat::kBf16, 2), available_isas().front());
  const auto all =
      testing::open(make_random_model(c, 1, WeightFormat::kBf16), available_isas().front());
  few->prefill(testing::random_tokens(9, c.vocab_size, 3));
  const auto width = static_cast<size_t>(c.kv_dim());
  std::vector<float> k0(width), k2(width), v(width);
  few->read_kv(0, 4, 0, k0, v);
  few->read_kv(2, 4, 0, k2, v);
  EXPECT_NE(k0, k2);
  EXPECT_EQ(few->kv_bytes(), all->kv_bytes());
  EXPECT_EQ(few->bytes_per_forward(9), all->bytes_per_forward(9));
  EXPECT_EQ(static_cast<double>(few->kv_bytes() + static_cast<size_t>(few->capacity()) *
                                                      static_cast<size_t>(c.head_dim) * 4),
            cache_bytes_for(c, few->options()))
      << "no padding in this shape";
}

// The same weights as objects of their own give the same logits: sharing changes memory alone.
TEST(ShapeModel, SharedLayersComputeWhatCopiesWould) {
  const ModelConfig c = deep_config();
  const auto shared = shape(c, WeightFormat::kInt8, 2);
  ModelParts parts = shared->parts();
  for (auto& layer : parts.layers) layer = std::make_shared<LayerWeights>(*layer);
  const auto copies = Model::create(std::move(parts));
  const auto a = testing::open(shared, available_isas().front());
  const auto b = testing::open(copies, available_isas().front());
  const auto rows = testing::random_tree(5, c.vocab_size, 6);
  const ForwardResult x = a->forward({.rows = rows}), y = b->forward({.rows = rows});
  for (int i = 0; i < 5; ++i)
    EXPECT_TRUE(testing::same_bits(x.hidden_row(i), y.hidden_row(i))) << i;
}

}  // namespace
}  // namespace evalrun::engine
