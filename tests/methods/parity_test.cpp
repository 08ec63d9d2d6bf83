// Trained drafters against PyTorch: tests/data/adapters holds tiny random adapters and what
// PyTorch, in float32 and row by row, makes of fixed inputs (methods/training/parity.py). Every
// output is compared, and the likeliest token of every row must be the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ostream>

#include "engine/formats/safetensors.h"
#include "methods/heads/draft_network.h"
#include "methods/heads/medusa_heads.h"
#include "methods/heads/trained_draft.h"
#include "methods/masks/mask_weights.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests::parity_test {
namespace {

using engine::SafeTensors;
using methods::Adapter;
using methods::AdapterReader;
using methods::DraftNetwork;

// Outputs of this size are of order 1; float32 sums in another order differ by about 1e-6.
constexpr float kTolerance = 2e-5f;

std::string data(const std::string& name) { return fmt::format("{}/{}", EVALRUN_TEST_DATA, name); }

struct Table {
  std::vector<float> values;
  int rows = 0, cols = 0;
  std::span<const float> row(int i) const {
    return {values.data() + static_cast<size_t>(i) * static_cast<size_t>(cols),
            static_cast<size_t>(cols)};
  }
};

class Expected {
 public:
  explicit Expected(const std::string& name)
      : file_(data("adapters/" + name + ".expected.safetensors")) {}
  Table table(const std::string& name) const {
    const engine::SafeTensor& t = file_.tensors().at(name);
    Table table;
    table.rows = static_cast<int>(t.shape[0]);
    table.values.resize(t.bytes.size() / sizeof(float));
    table.cols = static_cast<int>(table.values.size()) / table.rows;
    std::memcpy(table.values.data(), t.bytes.data(), t.bytes.size());
    return table;
  }
  Tokens tokens(const std::string& name) const {
    const engine::SafeTensor& t = file_.tensors().at(name);
    Tokens tokens(t.bytes.size() / sizeof(int32_t));
    std::memcpy(tokens.data(), t.bytes.data(), t.bytes.size());
    return tokens;
  }

 private:
  SafeTensors file_;
};

std::shared_ptr<const engine::Model> target(const std::string& name) {
  engine::LoadOptions options;
  options.need_tokenizer = false;
  return engine::load_model(data("models/" + name), options);
}

void expect_near(std::span<const float> got, std::span<const float> expected,
                 const std::string& where) {
  ASSERT_EQ(got.size(), expected.size()) << where;
  float most = 0;
  for (size_t i = 0; i < got.size(); ++i) most = std::max(most, std::fabs(got[i] - expected[i]));
  EXPECT_LE(most, kTolerance) << where;
}

void expect_logits(std::span<const float> got, std::span<const float> expected,
                   const std::string& where) {
  expect_near(got, expected, where);
  EXPECT_EQ(std::max_element(got.begin(), got.end()) - got.begin(),
            std::max_element(expected.begin(), expected.end()) - expected.begin())
      << where;
}

struct PairCase {
  const char* name;
  const char* target;
  DraftNetwork::Input input;
  int layers, block;
  double scale;
};

void PrintTo(const PairCase& c, std::ostream* out) { *out << c.name; }
class PairParity : public testing::TestWithParam<PairCase> {};

TEST_P(PairParity, EqualsPyTorch) {
  const PairCase& c = GetParam();
  const auto model = target(c.target);
  const auto adapter = Adapter::open(data(std::string("adapters/") + c.name + ".safetensors"));
  AdapterReader reader(*adapter, adapter->method(), *model, false);
  DraftNetwork::Options options;
  options.session = session_options();
  options.storage = engine::WeightStorage::kF32;
  options.input = c.input;
  options.layers = c.layers;
  options.scale = c.scale;
  DraftNetwork network(reader, *model, options);
  const Expected expected(c.name);
  const Tokens tokens = expected.tokens("tokens"), tree_tokens = expected.tokens("tree.tokens"),
               tree_parent = expected.tokens("tree.parent");
  const Table features = expected.table("features");
  const Table chain_features = expected.table("chain.features"),
              chain_logits = expected.table("chain.logits"),
              tree_features = expected.table("tree.features"),
              tree_logits = expected.table("tree.logits");
  const int n = features.rows, k = c.block;

  // The pairs, in blocks of k (a block of one is a chain).
  network.begin();
  for (int t = 0; t < n; ++t) {
    DraftNetwork::Row row;
    row.token = tokens[static_cast<size_t>(t) + 1];
    row.feature = features.row(t);
    row.parent = t / k * k - 1;
    if (k > 1) row.block = t / k;
    row.previous = t - 1;
    row.read = row.keep = true;
    network.add(row);
  }
  network.run();
  std::vector<std::vector<float>> last;
  for (int t = 0; t < n; ++t) {
    expect_logits(network.scores(t).logits, chain_logits.row(t), "pair " + std::to_string(t));
    expect_near(network.feature(t), chain_features.row(t), "pair " + std::to_string(t));
    if (t >= n - k) last.emplace_back(network.feature(t).begin(), network.feature(t).end());
  }

  // The tree, one forward for each level of blocks.
  const int blocks = static_cast<int>(tree_tokens.size()) / k;
  std::vector<int> level(static_cast<size_t>(blocks)), row_of(static_cast<size_t>(blocks), -1);
  int deepest = 0;
  for (int b = 0; b < blocks; ++b) {
    const int parent = tree_parent[static_cast<size_t>(b * k)];
    level[static_cast<size_t>(b)] = parent < 0 ? 0 : level[static_cast<size_t>(parent)] + 1;
    deepest = std::max(deepest, level[static_cast<size_t>(b)]);
  }
  for (int l = 0; l <= deepest; ++l) {
    std::vector<std::pair<int, int>> asked;  // rows of the network and of the tree
    for (int b = 0; b < blocks; ++b) {
      if (level[static_cast<size_t>(b)] != l) continue;
      const int parent = tree_parent[static_cast<size_t>(b * k)];
      const int above = parent < 0 ? -1 : row_of[static_cast<size_t>(parent)];
      for (int s = 0; s < k; ++s) {
        DraftNetwork::Row row;
        row.token = tree_tokens[static_cast<size_t>(b * k + s)];
        row.feature = parent < 0 ? std::span<const float>(last[static_cast<size_t>(s)])
                                 : network.feature(above + s);
        row.predicted = true;
        row.parent = parent < 0 ? -1 : above + k - 1;
        if (k > 1) row.block = b;
        if (s > 0)
          row.previous = row_of[static_cast<size_t>(b)] + s - 1;
        else if (parent >= 0)
          row.previous = above + k - 1;
        row.read = true;
        const int number = network.add(row);
        if (s == 0) row_of[static_cast<size_t>(b)] = number;
        asked.emplace_back(number, b * k + s);
      }
    }
    network.run();
    for (const auto& [row, at] : asked) {
      const std::string where = "tree row " + std::to_string(at);
      expect_logits(network.scores(row).logits, tree_logits.row(at), where);
      expect_near(network.feature(row), tree_features.row(at), where);
    }
  }
}

// In bytes it is close: parts of an input that differ in size do not spoil each other.
TEST_P(PairParity, BytesAreClose) {
  const PairCase& c = GetParam();
  const auto model = target(c.target);
  const auto adapter = Adapter::open(data(std::string("adapters/") + c.name + ".safetensors"));
  const Expected expected(c.name);
  const Tokens tokens = expected.tokens("tokens");
  const Table given = expected.table("features");
  std::vector<std::vector<float>> outputs;
  for (const auto storage : {engine::WeightStorage::kF32, engine::WeightStorage::kInt8Group}) {
    AdapterReader reader(*adapter, adapter->method(), *model, false);
    DraftNetwork::Options options;
    options.session = session_options();
    options.storage = storage;
    options.input = c.input;
    options.layers = c.layers;
    options.scale = c.scale;
    DraftNetwork network(reader, *model, options);
    network.begin();
    for (int t = 0; t < given.rows; ++t) {
      DraftNetwork::Row row;
      row.token = tokens[static_cast<size_t>(t) + 1];
      row.feature = given.row(t);
      row.parent = t - 1;
      row.previous = t - 1;
      row.read = true;
      network.add(row);
    }
    network.run();
    auto& all = outputs.emplace_back();
    for (int t = 0; t < given.rows; ++t)
      all.insert(all.end(), network.feature(t).begin(), network.feature(t).end());
  }
  double error = 0, size = 0;
  for (size_t i = 0; i < outputs[0].size(); ++i) {
    error += std::pow(outputs[1][i] - outputs[0][i], 2);
    size += std::pow(outputs[0][i], 2);
  }
  EXPECT_LT(std::sqrt(error / size), 0.03);
}

INSTANTIATE_TEST_SUITE_P(
    Drafters, PairParity,
    testing::Values(
        PairCase{"eagle", "tiny-llama", DraftNetwork::Input::kLinear, 1, 1, 1},
        PairCase{"eagle-published", "tiny-draft", DraftNetwork::Input::kLinear, 1, 1, 1},
        PairCase{"eagle3", "tiny-llama", DraftNetwork::Input::kPaired, 1, 1, 1},
        PairCase{"falcon-fc", "tiny-draft", DraftNetwork::Input::kLinear, 2, 2, 1},
        PairCase{"falcon-per-token", "tiny-draft", DraftNetwork::Input::kPerToken, 1, 3, 1.5},
        PairCase{"falcon-recurrent", "tiny-draft", DraftNetwork::Input::kRecurrent, 1, 2, 1.5}),
    [](const auto& c) { return test_name(c.param.name); });

TEST(Parity, MedusaHeadsEqualPyTorch) {
  const auto model = target("tiny-llama");
  const auto adapter = Adapter::open(data("adapters/medusa.safetensors"));
  AdapterReader reader(*adapter, "medusa", *model, false);
  methods::MedusaHeads heads(reader, *model, engine::WeightStorage::kF32);
  const Expected expected("medusa");
  const Table features = expected.table("features"), logits = expected.table("logits");
  const auto session = make_session(model);
  // Alone, then all positions at once, as the slots of a batch look.
  for (const int at_once : {1, features.rows})
    for (int first = 0; first < features.rows; first += at_once) {
      heads.begin();
      for (int t = first; t < first + at_once; ++t)
        heads.add(*session, features.row(t), heads.n_heads());
      heads.run();
      for (int t = first; t < first + at_once; ++t)
        for (int head = 0; head < heads.n_heads(); ++head) {
          const auto got = heads.scores(t - first, head).logits;
          const auto at = static_cast<size_t>(head) * got.size();
          expect_logits(got, logits.row(t).subspan(at, got.size()),
                        fmt::format("position {}, head {}", t, head));
        }
    }
}

TEST(Parity, DistilledDraftEqualsPyTorch) {
  const auto model = target("tiny-draft");
  const auto adapter = Adapter::open(data("adapters/draft.safetensors"));
  AdapterReader reader(*adapter, "draft", *model, false);
  const methods::TrainedDraft draft =
      methods::open_trained_draft(reader, *model, engine::WeightStorage::kF32);
  const Expected expected("draft");
  const Tokens tokens = expected.tokens("tokens"), tree = expected.tokens("tree.tokens"),
               parent = expected.tokens("tree.parent");
  const Table chain = expected.table("chain.logits"), branches = expected.table("tree.logits");
  const auto session = make_session(draft.model);
  std::vector<engine::Row> rows;
  for (size_t t = 0; t < tokens.size(); ++t)
    rows.push_back({.token = tokens[t], .parent = static_cast<int32_t>(t) - 1});
  const int last = static_cast<int>(tokens.size()) - 1;
  for (size_t i = 0; i < tree.size(); ++i)
    rows.push_back({.token = tree[i], .parent = parent[i] < 0 ? last : last + 1 + parent[i]});
  const engine::ForwardResult result = session->forward({.rows = rows});
  for (int t = 0; t <= last; ++t)
    expect_logits(result.logits_row(t), chain.row(t), fmt::format("token {}", t));
  for (int i = 0; i < branches.rows; ++i)
    expect_logits(result.logits_row(last + 1 + i), branches.row(i), fmt::format("branch {}", i));
}

// Masks after a text, through the target's own forward: prefix, updates and embeddings as trained;
// for SPACE the text's rows, too, which run through the tuned target.
class MaskParity : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(MaskParity, RowsEqualPyTorch) {
  const auto [name, method] = GetParam();
  const auto model = target("tiny-llama");
  const std::string path = data(fmt::format("adapters/{}.safetensors", name));
  const auto adapter = Adapter::open(path);
  AdapterReader reader(*adapter, method, *model, false);
  const methods::MaskWeights weights =
      methods::read_mask_weights(reader, *model, engine::WeightStorage::kF32);
  const auto spec = methods::parse_method(fmt::format("{}:adapter={}", method, path));
  methods::MethodBuildContext context;
  context.target = model;
  const auto session = make_session(methods::decoded_model(spec, context));
  const bool gated = std::string_view(method) == "gated_lora";
  const Expected expected(name);
  const Tokens tokens = expected.tokens("tokens");
  const Table text = expected.table("text.logits"), masks = expected.table("mask.logits");
  ASSERT_EQ(masks.rows, weights.masks);
  std::vector<engine::Row> rows;
  for (size_t t = 0; t < tokens.size(); ++t)
    rows.push_back({.token = tokens[t], .parent = static_cast<int32_t>(t) - 1});
  for (int j = 0; j < weights.masks; ++j)
    rows.push_back({.embedding = weights.distinct ? j : 0,
                    .parent = static_cast<int32_t>(rows.size()) - 1,
                    .prefix = weights.prefix.length > 0,
                    .low_rank = gated,
                    .logits = false,
                    .hidden = true});
  const engine::ForwardResult result =
      session->forward({.rows = rows,
                        .embeddings = weights.embeddings(model->config().d_model),
                        .prefix = weights.prefix.length > 0 ? &weights.prefix : nullptr,
                        .low_rank = gated ? &weights.low_rank : nullptr});
  for (int t = 0; t < text.rows; ++t)
    expect_logits(result.logits_row(t), text.row(t), fmt::format("token {}", t));
  std::vector<float> states;
  for (int j = 0; j < masks.rows; ++j) {
    const auto state = result.hidden_row(text.rows + j);
    states.insert(states.end(), state.begin(), state.end());
  }
  const engine::MatrixView logits =
      session->multiply(*weights.head, {states.data(), masks.rows, model->config().d_model});
  for (int j = 0; j < masks.rows; ++j)
    expect_logits(logits.row(j), masks.row(j), fmt::format("mask {}", j));
}

INSTANTIATE_TEST_SUITE_P(Methods, MaskParity,
                         testing::Values(std::pair("bita", "bita"), std::pair("bita-heads", "bita"),
                                         std::pair("gated", "gated_lora"),
                                         std::pair("pass", "pass"), std::pair("space", "space")),
                         [](const auto& c) { return test_name(c.param.first); });

}  // namespace
}  // namespace evalrun::tests::parity_test
