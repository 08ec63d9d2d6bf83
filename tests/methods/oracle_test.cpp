// Alignment of trained drafters: on a target that counts (token t + 1 follows t), with weights made
// by hand so that a drafter which reads the right feature and the right token is always right,
// every step must accept the whole draft. Reading one place too early or too late accepts nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>

#include "tests/methods/support/adapters.h"
#include "tests/methods/support/corpora.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests::oracle_test {
namespace {

constexpr int kIds = 32;  // also the width: token t is the direction t

// Rows of a matrix that maps direction i to direction i + `by`, times `factor`.
std::vector<float> shift(int by, float factor = 1, int inputs = kIds, int from = 0) {
  std::vector<float> w(static_cast<size_t>(kIds) * static_cast<size_t>(inputs));
  for (int i = 0; i < kIds; ++i)
    w[static_cast<size_t>((i + by) % kIds * inputs + from + i)] = factor;
  return w;
}

std::shared_ptr<const engine::Model> counting_model() {
  engine::ModelConfig c;
  c.architecture = "llama";
  c.name = "counting";
  c.n_layers = 4;
  c.d_model = kIds;
  c.n_heads = 2, c.n_kv_heads = 1, c.head_dim = 16;
  c.d_ffn = kIds;
  c.vocab_size = kIds;
  c.max_context = 1024;
  const auto filled = [](int out, int in, const std::vector<float>& values) {
    engine::WeightMatrix m(out, in);
    for (int o = 0; o < out; ++o)
      m.set_row(o, std::span(values).subspan(static_cast<size_t>(o * in), static_cast<size_t>(in)));
    return m;
  };
  engine::ModelParts parts;
  parts.config = c;
  parts.path = "counting";
  parts.embedding =
      std::make_shared<const engine::WeightMatrix>(filled(kIds, kIds, shift(0, 4.0f)));
  parts.head = std::make_shared<const engine::WeightMatrix>(filled(kIds, kIds, shift(1)));
  for (int l = 0; l < c.n_layers; ++l) {  // layers that change nothing
    auto w = std::make_shared<engine::LayerWeights>();
    w->attn_norm.assign(kIds, 1.0f), w->ffn_norm.assign(kIds, 1.0f);
    w->q = engine::WeightMatrix(c.q_dim(), kIds);
    w->k = w->v = engine::WeightMatrix(c.kv_dim(), kIds);
    w->o = engine::WeightMatrix(kIds, c.q_dim());
    w->gate = w->up = engine::WeightMatrix(c.d_ffn, kIds);
    w->down = engine::WeightMatrix(kIds, c.d_ffn);
    parts.layers.push_back(std::move(w));
  }
  parts.final_norm.assign(kIds, 1.0f);
  return engine::Model::create(std::move(parts));
}

// Layers of zeros: the residual stream passes.
void empty_layers(AdapterFile& file, int n, int first_input = kIds) {
  for (int l = 0; l < n; ++l) {
    const std::string p = fmt::format("layers.{}.", l);
    const int in = l == 0 ? first_input : kIds;
    if (l > 0) file.vector(p + "attn_norm", std::vector<float>(kIds, 1.0f));
    file.matrix(p + "q.weight", 32, in), file.matrix(p + "k.weight", 16, in);
    file.matrix(p + "v.weight", 16, in), file.matrix(p + "o.weight", kIds, 32);
    file.vector(p + "ffn_norm", std::vector<float>(kIds, 1.0f));
    file.matrix(p + "gate.weight", kIds, kIds), file.matrix(p + "up.weight", kIds, kIds);
    file.matrix(p + "down.weight", kIds, kIds);
  }
}

const std::string kShape = R"("n_heads": 2, "n_kv_heads": 1, "head_dim": 16, "d_ffn": 32)";

// `off` moves what the drafter says by that many tokens: 0 is right.
struct Oracle {
  const char* name;
  const char* spec;  // without adapter=
  int depth;         // of every draft
  void (*fill)(AdapterFile& file, const engine::Model& model, int off);
};

// Head k reads token t (the last whose state is known) and says t + 2 + k.
void fill_medusa(AdapterFile& file, const engine::Model& model, int off) {
  for (int k = 0; k < 4; ++k) {
    file.matrix(fmt::format("heads.{}.0.weight", k), kIds, kIds, shift(k + 1 + off, 50));
    file.vector(fmt::format("heads.{}.0.bias", k), std::vector<float>(kIds));
  }
  file.metadata = adapter_metadata("medusa", model, R"({"heads": 4, "blocks": 1})");
}

// The next feature from the token of the pair ...
void fill_eagle_token(AdapterFile& file, const engine::Model& model, int off) {
  file.matrix("fc.weight", kIds, 2 * kIds, shift(off, 1, 2 * kIds));
  empty_layers(file, 1);
  file.metadata = adapter_metadata("eagle", model, "{" + kShape + "}");
}
// ... and from its feature.
void fill_eagle_feature(AdapterFile& file, const engine::Model& model, int off) {
  file.matrix("fc.weight", kIds, 2 * kIds, shift(1 + off, 1, 2 * kIds, kIds));
  empty_layers(file, 1);
  file.metadata = adapter_metadata("eagle", model, "{" + kShape + "}");
}

// The feature's stream goes on unchanged, so the layer's MLP moves it; what it was stays in it as
// well, so that a third level would be a tie.
void fill_eagle3(AdapterFile& file, const engine::Model& model, int off) {
  file.matrix("fc.weight", kIds, 3 * kIds, shift(0, 1, 3 * kIds, kIds));
  empty_layers(file, 1, 2 * kIds);
  const std::vector<float> ones(kIds, 1.0f);
  file.vector("layers.0.attn_norm", ones), file.vector("layers.0.embed_norm", ones);
  file.matrix("layers.0.gate.weight", kIds, kIds, shift(1 + off, 10));
  file.matrix("layers.0.up.weight", kIds, kIds, shift(1 + off, 10));
  file.matrix("layers.0.down.weight", kIds, kIds, shift(0, 10));
  file.vector("norm", ones);
  file.metadata =
      adapter_metadata("eagle3", model, "{" + kShape + R"(, "residual_layers": [1, 2, 4]})");
}

template <int kSlots, int kLayers>
void fill_falcon(AdapterFile& file, const engine::Model& model, int off) {
  file.matrix("fc.weight", kIds, 2 * kIds, shift(kSlots + off, 1, 2 * kIds, kIds));
  empty_layers(file, kLayers);
  file.metadata = adapter_metadata(
      "falcon", model,
      "{" + kShape + fmt::format(R"(, "k": {}, "layers": {}, "input": "fc"}})", kSlots, kLayers));
}
void fill_falcon_token(AdapterFile& file, const engine::Model& model, int off) {
  file.matrix("fc.weight", kIds, 2 * kIds, shift(1 + off, 1, 2 * kIds));
  empty_layers(file, 1);
  file.metadata =
      adapter_metadata("falcon", model, "{" + kShape + R"(, "k": 2, "layers": 1, "input": "fc"})");
}

void PrintTo(const Oracle& o, std::ostream* out) { *out << o.name; }
class Alignment : public testing::TestWithParam<Oracle> {};

TEST_P(Alignment, EveryDraftIsAcceptedWholeAndNoneWhenItIsOneOff) {
  static const TempFolder folder;
  const auto model = counting_model();
  for (const int off : {0, 1, kIds - 1}) {
    AdapterFile file;
    GetParam().fill(file, *model, off);
    const std::string path = folder.file(fmt::format("{}-{}.safetensors", GetParam().name, off));
    file.write(path);
    const auto method =
        build_method(fmt::format("{},adapter={},dtype=f32", GetParam().spec, path), model);
    const auto session = make_session(model);
    for (const int prompt : {2, 5, 40}) {
      Turn turn;
      for (int i = 0; i < prompt; ++i) turn.prompt.push_back((3 + i) % kIds);
      turn.max_new = 1 + 6 * (GetParam().depth + 1);
      const results::TurnRecord got = run(*method, *session, turn);
      for (size_t i = 0; i < got.tokens.size(); ++i)
        ASSERT_EQ(got.tokens[i], (3 + prompt + static_cast<int>(i)) % kIds);
      // Second choices are ties here and may be right by chance; chains have none.
      const std::string_view spec = GetParam().spec;
      const bool chain = spec.find("chain") != spec.npos || spec.find("k=1") != spec.npos;
      for (const results::StepRecord& step : got.steps) {
        if (off == 0) {
          EXPECT_EQ(step.accepted, step.drafted_depth) << "prompt of " << prompt;
        } else if (chain) {
          EXPECT_EQ(step.accepted, 0) << "prompt of " << prompt << ", off by " << off;
        } else if (step.drafted_depth > 1) {
          EXPECT_LT(step.accepted, step.drafted_depth) << prompt << ", off by " << off;
        }
      }
      // Falcon has no root block before there are k pairs.
      if (off == 0 && prompt > 4) {
        EXPECT_EQ(got.steps.size(), 6u) << "each step drafts " << GetParam().depth;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Drafters, Alignment,
    testing::Values(Oracle{"medusa", "medusa:tree=chain:4", 4, fill_medusa},
                    Oracle{"medusa_tree", "medusa:tree=1+0+00+01+10+000+0000", 4, fill_medusa},
                    Oracle{"eagle_token", "eagle:tree=chain:5", 5, fill_eagle_token},
                    Oracle{"eagle_feature", "eagle:tree=eagle", 5, fill_eagle_feature},
                    Oracle{"eagle2", "eagle2:k=3,levels=4,total=12", 4, fill_eagle_token},
                    Oracle{"eagle3", "eagle3:k=1,levels=2,total=2", 2, fill_eagle3},
                    Oracle{"falcon_k2", "falcon:tree=chain:6", 6, fill_falcon<2, 1>},
                    Oracle{"falcon_k2_token", "falcon:tree=falcon_small", 4, fill_falcon_token},
                    Oracle{"falcon_k2_llama", "falcon:tree=falcon_llama", 8, fill_falcon<2, 2>},
                    Oracle{"falcon_dynamic_k2", "falcon:tree=dynamic,choices=3,levels=6,total=20",
                           6, fill_falcon<2, 1>},
                    Oracle{"falcon_dynamic_k3",
                           "falcon:tree=dynamic,choices=2,levels=7,total=15,align=chunk", 7,
                           fill_falcon<3, 2>},
                    Oracle{"falcon_k3", "falcon:tree=chain:6,align=chunk", 6, fill_falcon<3, 1>},
                    Oracle{"falcon_k4", "falcon:tree=chain:7", 7, fill_falcon<4, 2>}),
    [](const auto& oracle) { return std::string(oracle.param.name); });

}  // namespace
}  // namespace evalrun::tests::oracle_test
