// A tokenizer of bytes, a chat template of two letters, a clock that stands still, and a tiny model
// that holds them: whole runs without weights.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/model/model.h"
#include "engine/tokenizer/chat/chat_template.h"
#include "engine/tokenizer/tokenizer.h"

namespace evalrun::tests {

// One token per byte; id 0 ends a generation.
class ByteTokenizer final : public engine::Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text, const engine::EncodeOptions&) const override {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::string token_bytes(int32_t id, bool skip_special) const override {
    return id == 0 ? (skip_special ? "" : "<eos>") : std::string(1, static_cast<char>(id));
  }
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string text;
    for (const int32_t id : ids) text += token_bytes(id, skip_special);
    return text;
  }
  int vocab_size() const override { return 256; }
  bool is_special(int32_t id) const override { return id == 0; }
  std::optional<int32_t> bos_id() const override { return std::nullopt; }
  std::optional<int32_t> id_of(std::string_view) const override { return std::nullopt; }
  const std::vector<int32_t>& stop_ids() const override { return stop_ids_; }
  const std::string& vocabulary_hash() const override { return hash_; }

 private:
  std::vector<int32_t> stop_ids_ = {0};
  std::string hash_ = "bytes";
};

// "U:question A:answer U:question A:"
class LetterTemplate final : public engine::ChatTemplate {
 public:
  std::string name() const override { return "letters"; }
  std::string render(const std::vector<engine::ChatMessage>& messages,
                     bool add_generation_prompt) const override {
    std::string text;
    for (const engine::ChatMessage& m : messages)
      text += (m.role == "user" ? "U:" : "A:") + m.content + " ";
    return text + (add_generation_prompt ? "A:" : "");
  }
  bool add_special() const override { return false; }
};

// Moves only when told to, so that every time in a record is known.
class FakeClock final : public base::Clock {
 public:
  int64_t now_ns() override { return now; }
  int64_t now = 1'000'000'000;
};

// Random weights, byte vocabulary, a context of `context` tokens.
inline std::shared_ptr<const engine::Model> tiny_model(
    int context, std::string hash = "h1",
    engine::WeightFormat format = engine::WeightFormat::kF32) {
  engine::ModelConfig config;
  config.architecture = "llama";
  config.name = "tiny";
  config.n_layers = 1;
  config.d_model = 32;
  config.n_heads = 2;
  config.n_kv_heads = 1;
  config.head_dim = 16;
  config.d_ffn = 32;
  config.vocab_size = 256;
  config.max_context = context;
  config.tied_head = true;
  const auto random = engine::make_random_model(config, 7, format);
  engine::ModelParts parts;
  parts.format = format;
  parts.config = config;
  parts.path = "tiny.gguf";
  parts.hash = std::move(hash);
  parts.embedding = std::make_shared<engine::WeightMatrix>(random->embedding());
  parts.layers = {std::make_shared<engine::LayerWeights>(random->layer(0))};
  parts.final_norm = random->final_norm();
  parts.head = parts.embedding;
  parts.tokenizer = std::make_shared<ByteTokenizer>();
  parts.chat_template = std::make_shared<LetterTemplate>();
  return engine::Model::create(std::move(parts));
}

}  // namespace evalrun::tests
