// load_model on good models (the same weights from both formats, hashes, sizes, templates) and on
// models whose parts do not belong together.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "engine/base/text.h"
#include "engine/formats/gguf.h"
#include "engine/model/model.h"
#include "engine/tokenizer/chat/chat_template.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/formats/test_files.h"

namespace evalrun::engine {
namespace {

using nlohmann::json;
using testing::append;
using testing::data_path;
using testing::expect_data_error;
using testing::GgufBuilder;
using testing::safetensors_bytes;
using testing::TempFolder;

LoadOptions weights_only() {
  LoadOptions options;
  options.need_tokenizer = false;
  return options;
}

std::vector<float> row_of(const WeightMatrix& m, int o) {
  std::vector<float> row(static_cast<size_t>(m.in()));
  m.copy_row(o, row);
  return row;
}

void expect_equal(const WeightMatrix& a, const WeightMatrix& b, const std::string& what) {
  ASSERT_EQ(a.out(), b.out()) << what;
  ASSERT_EQ(a.in(), b.in()) << what;
  for (int o = 0; o < a.out(); ++o) ASSERT_EQ(row_of(a, o), row_of(b, o)) << what << " row " << o;
}

// The files were written from one set of weights; q and k rows lie in another order in GGUF.
TEST(Load, FolderAndGgufHoldTheSameModel) {
  for (const std::string name : {"tiny-llama", "tiny-qwen3"}) {
    const auto folder = load_model(data_path(name)), file = load_model(data_path(name + ".gguf"));
    const ModelConfig &a = folder->config(), &b = file->config();
    EXPECT_EQ(a.architecture, b.architecture);
    EXPECT_EQ(a.head_dim, b.head_dim);
    EXPECT_EQ(a.max_context, b.max_context);
    EXPECT_EQ(a.norm_eps, b.norm_eps);
    EXPECT_EQ(a.rope.theta, b.rope.theta);
    EXPECT_EQ(a.qk_norm, b.qk_norm);
    EXPECT_TRUE(a.tied_head && b.tied_head);
    EXPECT_EQ(&folder->head(), &folder->embedding());
    expect_equal(folder->embedding(), file->embedding(), "embedding");
    EXPECT_EQ(folder->final_norm(), file->final_norm());
    for (int i = 0; i < a.n_layers; ++i) {
      const LayerWeights &x = folder->layer(i), &y = file->layer(i);
      expect_equal(x.q, y.q, "q");
      expect_equal(x.k, y.k, "k");
      expect_equal(x.v, y.v, "v");
      expect_equal(x.o, y.o, "o");
      expect_equal(x.gate, y.gate, "gate");
      expect_equal(x.up, y.up, "up");
      expect_equal(x.down, y.down, "down");
      EXPECT_EQ(x.attn_norm, y.attn_norm);
      EXPECT_EQ(x.ffn_norm, y.ffn_norm);
      EXPECT_EQ(x.q_norm, y.q_norm);
      EXPECT_EQ(x.k_norm, y.k_norm);
    }
    ASSERT_NE(folder->tokenizer(), nullptr);
    ASSERT_NE(file->tokenizer(), nullptr);
    EXPECT_EQ(folder->tokenizer()->vocabulary_hash(), file->tokenizer()->vocabulary_hash());
    EXPECT_EQ(folder->tokenizer()->stop_ids(), file->tokenizer()->stop_ids());
    const std::string text = "The river said: 12 + 7 = 19.<|im_end|>\n";
    EXPECT_EQ(folder->tokenizer()->encode(text), file->tokenizer()->encode(text));
  }
}

TEST(Load, SizesOfTinyLlama) {
  const auto model = load_model(data_path("tiny-llama"), weights_only());
  // 512 x 64 tied; per layer q, o 64 x 64, k, v 32 x 64, three of 160 x 64, two norms; final norm.
  const int64_t parameters =
      512 * 64 + 3 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 160 * 64 + 2 * 64) + 64;
  EXPECT_EQ(model->n_parameters(), parameters);
  EXPECT_EQ(model->weight_bytes(),
            static_cast<size_t>(parameters) * sizeof(float));  // no padding here
  EXPECT_EQ(model->config().name, "tiny-llama");
  EXPECT_EQ(load_model(data_path("tiny-llama") + "/", weights_only())->config().name, "tiny-llama");
  EXPECT_EQ(load_model(data_path("tiny-llama.gguf"), weights_only())->config().name, "tiny-llama");
}

TEST(Load, FirstLayersShareWeights) {
  const auto model = load_model(data_path("tiny-llama"));
  const auto draft = model->first_layers(1);
  EXPECT_EQ(draft->config().n_layers, 1);
  EXPECT_EQ(&draft->embedding(), &model->embedding());
  EXPECT_EQ(&draft->layer(0), &model->layer(0));
  EXPECT_EQ(draft->tokenizer(), model->tokenizer());
  EXPECT_LT(draft->weight_bytes(), model->weight_bytes());
  EXPECT_NE(draft->hash(), model->hash());
  for (const int n : {0, -1, 4}) EXPECT_THROW((void)model->first_layers(n), base::Error) << n;
}

TEST(Load, HashNamesTheWeights) {
  const std::string gguf = data_path("tiny-llama.gguf");
  EXPECT_EQ(load_model(gguf, weights_only())->hash(), base::sha256_file(gguf));
  LoadOptions without = weights_only();
  without.hash_weights = false;
  EXPECT_EQ(load_model(gguf, without)->hash(), "");
  const std::string one = load_model(data_path("tiny-yarn"), weights_only())->hash();
  EXPECT_EQ(one.size(), 64u);
  EXPECT_EQ(one, load_model(data_path("tiny-yarn"), weights_only())->hash());
  EXPECT_NE(one, load_model(data_path("tiny-draft"), weights_only())->hash());
}

TEST(Load, ThreadCountDoesNotMatter) {
  LoadOptions one = weights_only(), many = weights_only();
  one.n_threads = 1;
  many.n_threads = 7;
  const auto a = load_model(data_path("tiny-llama.gguf"), one);
  const auto b = load_model(data_path("tiny-llama.gguf"), many);
  expect_equal(a->layer(2).q, b->layer(2).q, "q");
  expect_equal(a->embedding(), b->embedding(), "embedding");
}

TEST(Load, ChatTemplate) {
  const auto own = load_model(data_path("tiny-llama"));
  ASSERT_NE(own->chat_template(), nullptr) << own->chat_template_error();
  EXPECT_EQ(own->chat_template()->render({{"user", "Hi"}}, true),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(load_model(data_path("tiny-llama.gguf"))->chat_template()->name(),
            own->chat_template()->name());
  LoadOptions named;
  named.chat_template = "llama3";
  EXPECT_EQ(load_model(data_path("tiny-llama"), named)->chat_template()->name(), "llama3");
  // A file with Jinja text, and the model's own tokens.
  const TempFolder folder;
  named.chat_template = folder.write("other.jinja", "{{ eos_token }}{{ messages[0].content }}");
  const auto by_file = load_model(data_path("tiny-llama"), named);
  EXPECT_EQ(by_file->chat_template()->render({{"user", "Hi"}}, true), "<|im_end|>Hi");
  EXPECT_EQ(by_file->chat_template()->place(), named.chat_template);
  folder.write("other.jinja", "{% if %}");
  expect_data_error([&] { (void)load_model(data_path("tiny-llama"), named); },
                    {"other.jinja: chat template, line 1", "expected an expression"});
  named.chat_template = folder.file("none.jinja");
  try {
    (void)load_model(data_path("tiny-llama"), named);
    FAIL() << "no error was thrown";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    EXPECT_THAT(e.what(),
                ::testing::AllOf(::testing::HasSubstr("--chat-template " + named.chat_template),
                                 ::testing::HasSubstr("no such file"),
                                 ::testing::HasSubstr("a name: chatml")));
  }
  named.chat_template = "lama3";
  EXPECT_THROW((void)load_model(data_path("tiny-llama"), named), base::Error);
}

// A copy of a fixture folder whose files tests change.
class Damaged : public ::testing::Test {
 protected:
  void copy(const std::string& fixture) {
    for (const char* name :
         {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"})
      if (std::filesystem::exists(data_path(fixture) + "/" + name))
        folder_.write(name, base::read_file(data_path(fixture) + "/" + name));
    config_ = json::parse(base::read_file(folder_.file("config.json")));
  }
  void refuse(const std::vector<std::string>& parts, const LoadOptions& options = weights_only()) {
    folder_.write("config.json", config_.dump());
    expect_data_error([&] { (void)load_model(folder_.path(), options); }, parts);
  }
  // Rewrites the header of model.safetensors.
  void edit_weights(const std::function<void(json& header, std::string& data)>& edit) {
    const std::string bytes = base::read_file(folder_.file("model.safetensors"));
    uint64_t size = 0;
    std::memcpy(&size, bytes.data(), sizeof size);
    json header = json::parse(bytes.substr(8, size));
    std::string data = bytes.substr(8 + size);
    edit(header, data);
    folder_.write("model.safetensors", safetensors_bytes(header.dump(), data));
  }
  TempFolder folder_;
  json config_;
};

TEST_F(Damaged, ConfigurationFields) {
  const std::vector<std::tuple<const char*, json, std::vector<std::string>>> wrong = {
      {"model_type", "lama", {"model_type", "unknown architecture 'lama'", "llama", "qwen3"}},
      {"model_type", nullptr, {"model_type"}},
      {"hidden_size", "64", {"hidden_size", "integer"}},
      {"hidden_size", 1e30, {"hidden_size"}},
      {"hidden_size", -32, {"hidden size"}},
      {"num_hidden_layers", 2000000000, {"number of layers"}},
      {"num_attention_heads", 0, {"heads"}},
      {"num_key_value_heads", 3, {"key/value heads"}},
      {"head_dim", 7, {"head size", "even"}},
      {"rms_norm_eps", "1e-6", {"rms_norm_eps", "number"}},
      {"hidden_act", "gelu", {"hidden_act", "gelu", "silu"}},
      {"quantization_config", {{"quant_method", "gptq"}}, {"quantization_config", "GGUF"}},
      {"partial_rotary_factor", 0.5, {"partial_rotary_factor"}},
      {"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}, {"rope_scaling", "dynamic", "yarn"}},
      {"rope_scaling", {{"type", "linear"}}, {"rope_scaling.factor", "missing"}},
      {"rope_scaling", {{"type", "linear"}, {"factor", 0.0}}, {"factor", "positive"}},
      {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}, {"fcator", 3}}, {"fcator"}},
      {"rope_scaling", 3, {"rope_scaling", "object"}},
      {"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}}, {"low_freq_factor"}},
  };
  for (const auto& [field, value, parts] : wrong) {
    copy("tiny-linear-rope");
    config_[field] = value;
    SCOPED_TRACE(config_[field].dump());
    refuse(parts);
  }
  copy("tiny-linear-rope");
  config_.erase("intermediate_size");
  refuse({"intermediate_size", "missing"});
  copy("tiny-qwen2-window");
  config_["layer_types"] = {"full_attention"};
  refuse({"layer_types", "1 entries for 3 layers"});
  config_["layer_types"] = {"full_attention", "odd", "full_attention"};
  refuse({"layer_types", "odd"});
}

TEST_F(Damaged, LayerTypesOrMaxWindowLayersGiveTheSameWindows) {
  copy("tiny-qwen2-window");
  const auto old_keys = load_model(folder_.path(), weights_only());
  EXPECT_EQ(old_keys->config().windowed, (std::vector<bool>{false, true, true}));
  config_["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
  folder_.write("config.json", config_.dump());
  EXPECT_EQ(load_model(folder_.path(), weights_only())->config().windowed,
            (std::vector<bool>{false, true, false}));
  config_["use_sliding_window"] = false;
  folder_.write("config.json", config_.dump());
  EXPECT_EQ(load_model(folder_.path(), weights_only())->config().sliding_window, 0);
}

TEST_F(Damaged, WeightsThatDoNotFit) {
  copy("tiny-linear-rope");
  config_["num_hidden_layers"] = 3;
  refuse({"model.layers.2.", "is missing"});
  config_["num_hidden_layers"] = 1;
  refuse({"model.layers.1.", "not used by architecture 'llama'"});
  copy("tiny-linear-rope");
  config_["attention_bias"] = true;
  refuse({"self_attn.q_proj.bias", "is missing"});
  copy("tiny-linear-rope");
  config_["vocab_size"] = 129;
  refuse({"model.embed_tokens.weight", "[128, 32]", "expected [129, 32]"});
  copy("tiny-linear-rope");
  config_["tie_word_embeddings"] = true;
  refuse({"lm_head.weight", "differs", "tie_word_embeddings"});
  copy("tiny-llama");
  config_["tie_word_embeddings"] = false;
  refuse({"lm_head.weight", "is missing"});
}

TEST_F(Damaged, ValuesThatAreNoWeights) {
  for (const uint32_t bits : {0x7FC00000u, 0xFF800000u}) {  // NaN, -infinity
    copy("tiny-linear-rope");
    edit_weights([&](json& header, std::string& data) {
      const auto begin =
          header.at("model.layers.1.mlp.up_proj.weight").at("data_offsets").at(0).get<size_t>();
      std::memcpy(data.data() + begin + (5 * 32 + 7) * 4, &bits, 4);
    });
    refuse({"model.layers.1.mlp.up_proj.weight", "[5, 7]", "not a finite number"});
  }
  copy("tiny-linear-rope");
  edit_weights([](json& header, std::string&) { header["model.norm.weight"]["dtype"] = "I32"; });
  refuse({"model.norm.weight", "I32", "no weights"});
}

TEST_F(Damaged, IgnorableAndDuplicateTensors) {
  copy("tiny-llama");
  edit_weights([&](json& header, std::string& data) {
    // Old checkpoints carry the frequencies; some tied ones the matrix twice.
    const size_t at = data.size();
    data += std::string(32, '\0');
    header["model.layers.0.self_attn.rotary_emb.inv_freq"] = {
        {"dtype", "F32"}, {"shape", {8}}, {"data_offsets", {at, at + 32}}};
    json twin = header.at("model.embed_tokens.weight");
    const auto begin = twin.at("data_offsets").at(0).get<size_t>();
    const size_t size = twin.at("data_offsets").at(1).get<size_t>() - begin;
    twin["data_offsets"] = {data.size(), data.size() + size};
    data += data.substr(begin, size);
    header["lm_head.weight"] = twin;
  });
  EXPECT_TRUE(load_model(folder_.path(), weights_only())->config().tied_head);
}

TEST_F(Damaged, TokenizerAndTemplate) {
  copy("tiny-qwen3");
  folder_.write("tokenizer.json", base::read_file(data_path("tiny-llama/tokenizer.json")));
  refuse({"tokenizer", "512 tokens", "320 embeddings"}, {});
  std::filesystem::remove(folder_.file("tokenizer.json"));
  refuse({"tokenizer.json"}, {});

  copy("tiny-qwen3");
  json tokenizer = json::parse(base::read_file(folder_.file("tokenizer_config.json")));
  tokenizer["chat_template"] = "{{ messages[0].content }} of no known family";
  folder_.write("tokenizer_config.json", tokenizer.dump());
  const auto other = load_model(folder_.path());
  ASSERT_NE(other->chat_template(), nullptr) << other->chat_template_error();
  EXPECT_EQ(other->chat_template()->render({{"user", "Hi"}}, true), "Hi of no known family");
  EXPECT_THAT(other->chat_template()->name(), ::testing::StartsWith("jinja-"));
  tokenizer["chat_template"] = "\n{{ messages[0 }}";
  folder_.write("tokenizer_config.json", tokenizer.dump());
  const auto broken = load_model(folder_.path());  // not an error of loading
  EXPECT_EQ(broken->chat_template(), nullptr);
  EXPECT_THAT(broken->chat_template_error(),
              ::testing::AllOf(::testing::HasSubstr("tokenizer_config.json: chat template, line 2"),
                               ::testing::HasSubstr("--chat-template NAME (chatml")));
  tokenizer.erase("chat_template");
  folder_.write("tokenizer_config.json", tokenizer.dump());
  EXPECT_THAT(load_model(folder_.path())->chat_template_error(),
              ::testing::HasSubstr("no chat template"));
}

TEST_F(Damaged, PathsThatAreNoModels) {
  expect_data_error([] { (void)load_model("/nonexistent/model.gguf"); },
                    {"/nonexistent/model.gguf"});
  expect_data_error([&] { (void)load_model(folder_.path()); }, {"config.json", "hint"});
  try {
    (void)load_model(data_path("tiny-llama/model.safetensors"));
    FAIL();
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ExitCode::kUsage);
  }
}

// Smallest GGUF model; `edit` may add to it before it is written.
GgufBuilder tiny_gguf(const std::string& architecture) {
  GgufBuilder b;
  b.text("general.architecture", architecture);
  const auto u32 = [&](const std::string& key, uint32_t v) {
    b.scalar(architecture + "." + key, GgufBuilder::kU32, v);
  };
  u32("block_count", 1);
  u32("context_length", 16);
  u32("embedding_length", 4);
  u32("feed_forward_length", 4);
  u32("attention.head_count", 2);
  b.scalar(architecture + ".attention.layer_norm_rms_epsilon", GgufBuilder::kF32, 1e-5f);
  uint64_t offset = 0;
  const auto tensor = [&](const std::string& name, const std::vector<uint64_t>& ne) {
    uint64_t bytes = sizeof(float);
    for (const uint64_t n : ne) bytes *= n;
    b.tensor(name, ne, 0, offset);
    b.data(std::string((bytes + 31) / 32 * 32, '\0'));
    offset += (bytes + 31) / 32 * 32;
  };
  tensor("token_embd.weight", {4, 8});
  tensor("output_norm.weight", {4});
  for (const char* name :
       {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
    tensor(std::string("blk.0.") + name + ".weight", {4, 4});
  for (const char* name : {"attn_norm", "ffn_norm"})
    tensor(std::string("blk.0.") + name + ".weight", {4});
  return b;
}

TEST(LoadGguf, KeysThatMatter) {
  const TempFolder folder;
  const auto refuse = [&](const GgufBuilder& b, const std::vector<std::string>& parts) {
    const std::string path = folder.write("m.gguf", b.bytes());
    expect_data_error([&] { (void)load_model(path, weights_only()); }, parts);
  };
  ASSERT_NO_THROW(
      (void)load_model(folder.write("m.gguf", tiny_gguf("llama").bytes()), weights_only()));
  refuse(tiny_gguf("gemma"), {"general.architecture", "gemma", "llama"});
  refuse(tiny_gguf("qwen2"), {"blk.0.attn_q.bias", "is missing"});
  refuse(tiny_gguf("qwen3"), {"blk.0.attn_q_norm.weight", "is missing"});
  GgufBuilder b = tiny_gguf("llama");
  b.scalar<uint32_t>("llama.expert_count", GgufBuilder::kU32, 8);
  refuse(b, {"expert_count", "not supported"});
  b = tiny_gguf("llama");
  b.scalar<uint32_t>("llama.rope.dimension_count", GgufBuilder::kU32, 1);
  refuse(b, {"rope.dimension_count", "partial rotation"});
  b = tiny_gguf("llama");
  b.text("llama.rope.scaling.type", "longrope");
  refuse(b, {"rope.scaling.type", "longrope", "yarn"});
  b = tiny_gguf("llama");
  b.scalar<uint32_t>("llama.vocab_size", GgufBuilder::kU32, 9);
  refuse(b, {"vocab_size", "8 rows"});
  b = tiny_gguf("llama");
  b.scalar<uint32_t>("llama.attention.value_length", GgufBuilder::kU32, 4);
  refuse(b, {"attention.value_length", "key_length is 2"});
  b = tiny_gguf("llama");
  b.text("llama.attention.head_count_kv", "two");
  refuse(b, {"attention.head_count_kv", "must be an integer"});
  b = tiny_gguf("llama");
  b.tensor("blk.0.attn_sinks", {2}, 0, 1024).data(std::string(1024, '\0'));
  refuse(b, {"blk.0.attn_sinks", "not used"});
}

// A file larger than memory as float32: sparse, so that it takes no room. Nothing may be allocated.
TEST(LoadGguf, SaysWhenMemoryIsShort) {
  const TempFolder folder;
  constexpr uint64_t kWidth = 1 << 20, kVocabulary = 1 << 20;  // 4 TiB as float32
  GgufBuilder b;
  b.text("general.architecture", "llama");
  const std::vector<std::pair<std::string, uint64_t>> keys = {
      {"block_count", 1},           {"context_length", 16},        {"embedding_length", kWidth},
      {"feed_forward_length", 32},  {"attention.head_count", 512}, {"attention.key_length", 2},
      {"attention.value_length", 2}};
  for (const auto& [key, value] : keys)
    b.scalar("llama." + key, GgufBuilder::kU32, static_cast<uint32_t>(value));
  b.scalar("llama.attention.layer_norm_rms_epsilon", GgufBuilder::kF32, 1e-5f);
  uint64_t offset = 0;
  const auto tensor = [&](const std::string& name, const std::vector<uint64_t>& ne) {
    b.tensor(name, ne, ne.size() == 1 ? 0 : 2, offset);  // F32 or Q4_0
    const uint64_t bytes = ne.size() == 1 ? ne[0] * 4 : ne[0] / 32 * 18 * ne[1];
    offset += (bytes + 31) / 32 * 32;
  };
  tensor("token_embd.weight", {kWidth, kVocabulary});
  tensor("output_norm.weight", {kWidth});
  for (const char* name : {"attn_q", "attn_k", "attn_v"})
    tensor(std::string("blk.0.") + name + ".weight", {kWidth, 1024});
  tensor("blk.0.attn_output.weight", {1024, kWidth});
  for (const char* name : {"ffn_gate", "ffn_up"})
    tensor(std::string("blk.0.") + name + ".weight", {kWidth, 32});
  tensor("blk.0.ffn_down.weight", {32, kWidth});
  for (const char* name : {"attn_norm", "ffn_norm"})
    tensor(std::string("blk.0.") + name + ".weight", {kWidth});
  const std::string path = folder.write("m.gguf", b.bytes());
  std::error_code error;
  std::filesystem::resize_file(path, b.bytes().size() + offset, error);
  if (error) GTEST_SKIP() << "no sparse file of this size here: " << error.message();
  expect_data_error([&] { (void)load_model(path, weights_only()); },
                    {"B of memory as f32", "are free", "smaller --dtype or model"});
}

TEST(RandomModel, SeedDecides) {
  ModelConfig c = load_model(data_path("tiny-qwen3"), weights_only())->config();
  const auto a = make_random_model(c, 7), b = make_random_model(c, 7),
             other = make_random_model(c, 8);
  expect_equal(a->layer(1).down, b->layer(1).down, "down");
  EXPECT_NE(row_of(a->layer(1).down, 0), row_of(other->layer(1).down, 0));
  EXPECT_EQ(a->tokenizer(), nullptr);
  EXPECT_EQ(a->hash(), "");
  EXPECT_EQ(a->layer(0).q_norm.size(), static_cast<size_t>(c.head_dim));
}

}  // namespace
}  // namespace evalrun::engine
