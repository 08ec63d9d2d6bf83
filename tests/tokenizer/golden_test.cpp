// Encoding and decoding against ids computed by Hugging Face's `tokenizers` and llama.cpp. The data
// are outside of the repository: EVALRUN_SHARED, else ../shared beside the source tree.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/base/text.h"
#include "engine/formats/gguf.h"
#include "engine/tokenizer/chat/chat_template.h"
#include "engine/tokenizer/tokenizer.h"

namespace evalrun::engine {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

std::string shared_root() {
  const char* root = std::getenv("EVALRUN_SHARED");
  return root != nullptr ? root : EVALRUN_SOURCE_DIR "/../shared";
}

std::string default_model() {
  const char* home = std::getenv("EVALRUN_HOME");
  const char* user = std::getenv("HOME");
  const std::string root =
      home != nullptr ? home : std::string(user != nullptr ? user : "") + "/.cache/evalrun";
  return root + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

#define SKIP_WITHOUT(path)            \
  if (!std::filesystem::exists(path)) \
  GTEST_SKIP() << (path) << " is not there; set EVALRUN_SHARED or fetch the default model"

std::vector<json> read_lines(const std::string& path) {
  std::vector<json> rows;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (!base::trim(line).empty()) rows.push_back(json::parse(line));
  return rows;
}

std::string stream(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  StreamDecoder decoder(tokenizer, skip_special);
  std::string text;
  for (int32_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

class LlamaCppVocabulary : public ::testing::TestWithParam<const char*> {};

TEST_P(LlamaCppVocabulary, EveryCaseIsEqual) {
  const std::string base =
      shared_root() + "/data/tokenizer_vectors/ggml-vocab-" + GetParam() + ".gguf";
  SKIP_WITHOUT(base);
  const auto tokenizer = tokenizer_from_gguf(GgufFile(base));
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::string input = base::read_file(base + ".inp");
  std::istringstream expected(base::read_file(base + ".out"));
  int n_cases = 0;
  for (size_t at = input.find(separator); at != std::string::npos; at = input.find(separator)) {
    const std::string text = input.substr(0, at);
    input.erase(0, at + separator.size());
    std::string line;
    ASSERT_TRUE(std::getline(expected, line)) << "fewer id lines than texts";
    std::istringstream numbers(line);
    const Ids ids((std::istream_iterator<int32_t>(numbers)), std::istream_iterator<int32_t>());
    EXPECT_EQ(tokenizer->encode(text), ids) << json(text);
    EXPECT_EQ(tokenizer->decode(ids), text);
    EXPECT_EQ(stream(*tokenizer, ids, false), text);
    ++n_cases;
  }
  EXPECT_EQ(n_cases, 46);
}

INSTANTIATE_TEST_SUITE_P(Golden, LlamaCppVocabulary,
                         ::testing::Values("llama-spm", "gpt-2", "falcon"), [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class TinyModel : public ::testing::TestWithParam<const char*> {};

TEST_P(TinyModel, EveryCaseIsEqual) {
  const std::string folder = shared_root() + "/data/tiny_models/" + GetParam();
  SKIP_WITHOUT(folder);
  const auto tokenizer = tokenizer_from_folder(folder);
  const json cases = json::parse(base::read_file(folder + "/expected.json"))["tokenizer_cases"];
  EXPECT_EQ(cases.size(), 12u);
  for (const json& c : cases) {
    const auto text = c["text"].get<std::string>();
    EXPECT_EQ(tokenizer->encode(text, {.parse_special = true, .add_special = true}),
              c["ids"].get<Ids>())
        << c["text"];
    const Ids ids = c["ids_no_special"].get<Ids>();
    EXPECT_EQ(tokenizer->encode(text), ids) << c["text"];
    EXPECT_EQ(tokenizer->decode(ids), c["decoded"].get<std::string>());
    EXPECT_EQ(stream(*tokenizer, ids, false), c["decoded"].get<std::string>());
  }
  const json eos = json::parse(base::read_file(folder + "/generation_config.json"))["eos_token_id"];
  EXPECT_TRUE(
      std::count(tokenizer->stop_ids().begin(), tokenizer->stop_ids().end(), eos.get<int32_t>()));
}

INSTANTIATE_TEST_SUITE_P(Golden, TinyModel,
                         ::testing::Values("llama_bf16", "llama_gqa_tied", "llama_gqa_untied",
                                           "llama_sharded", "mistral_window16", "qwen2_bias_tied"));

TEST(TinyModelTemplate, QwenTemplateIsPlainChatMl) {
  const std::string folder = shared_root() + "/data/tiny_models/qwen2_bias_tied";
  SKIP_WITHOUT(folder);
  const json config = json::parse(base::read_file(folder + "/tokenizer_config.json"));
  const auto chat =
      chat_template_from_jinja(config["chat_template"].get<std::string>(),
                               {{"eos_token", "<|im_end|>"}}, "tokenizer_config.json");
  EXPECT_EQ(chat->name(), "chatml");
  EXPECT_FALSE(chat->add_special());
  EXPECT_EQ(chat->render({{"user", " Hi "}}, true),
            "<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(tokenizer_from_folder(folder)->stop_ids(), (Ids{381, 383}));
}

TEST(SmolLm2, EncodesEveryCaseAndDecodesItBack) {
  const std::string vectors = shared_root() + "/data/tokenizer_vectors/smollm2.jsonl";
  SKIP_WITHOUT(vectors);
  SKIP_WITHOUT(default_model());
  const auto tokenizer = tokenizer_from_gguf(GgufFile(default_model()));
  EXPECT_EQ(tokenizer->vocab_size(), 49152);
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->stop_ids(), (Ids{0, 2}));
  const std::vector<json> rows = read_lines(vectors);
  EXPECT_EQ(rows.size(), 424u);
  for (const json& row : rows) {
    const auto text = row["text"].get<std::string>();
    const Ids ids = row["ids"].get<Ids>();
    EXPECT_EQ(tokenizer->encode(text), ids) << row["text"];
    EXPECT_EQ(tokenizer->encode(text, {.parse_special = true, .add_special = true}), ids);
    EXPECT_EQ(tokenizer->encode(text, {.parse_special = false, .add_special = false}),
              row.value("ids_special_as_text", ids))
        << row["text"];
    EXPECT_EQ(tokenizer->decode(ids), row.value("decoded", text)) << row["text"];
  }
}

TEST(SmolLm2, DecodesArbitraryIds) {
  const std::string vectors = shared_root() + "/data/tokenizer_vectors/smollm2_decode.jsonl";
  SKIP_WITHOUT(vectors);
  SKIP_WITHOUT(default_model());
  const auto tokenizer = tokenizer_from_gguf(GgufFile(default_model()));
  const std::vector<json> rows = read_lines(vectors);
  EXPECT_EQ(rows.size(), 60u);
  for (const json& row : rows) {
    const Ids ids = row["ids"].get<Ids>();
    std::string hex;
    for (int32_t id : ids)
      for (char b : tokenizer->token_bytes(id))
        hex += fmt::format("{:02x}", static_cast<unsigned char>(b));
    EXPECT_EQ(hex, row["bytes_hex"].get<std::string>());
    const auto text = row["hf_text"].get<std::string>();
    const auto skipped = row["hf_text_skip_special"].get<std::string>();
    EXPECT_EQ(tokenizer->decode(ids), text);
    EXPECT_EQ(tokenizer->decode(ids, true), skipped);
    EXPECT_EQ(stream(*tokenizer, ids, false), text);
    EXPECT_EQ(stream(*tokenizer, ids, true), skipped);
  }
}

TEST(SmolLm2, WritesEveryChat) {
  const std::string chats = shared_root() + "/data/smollm2_golden/chat.json";
  SKIP_WITHOUT(chats);
  SKIP_WITHOUT(default_model());
  const GgufFile file(default_model());
  const auto tokenizer = tokenizer_from_gguf(file);
  const auto chat = chat_template_from_jinja(
      file.text("tokenizer.chat_template"),
      {{"bos_token", "<|im_start|>"}, {"eos_token", "<|im_end|>"}}, default_model());
  EXPECT_EQ(chat->name(), "chatml-smollm2");
  const json cases = json::parse(base::read_file(chats));
  EXPECT_EQ(cases.size(), 20u);
  for (const json& c : cases) {
    std::vector<ChatMessage> messages;
    for (const json& m : c["messages"])
      messages.push_back({m["role"].get<std::string>(), m["content"].get<std::string>()});
    const std::string text = chat->render(messages, c["add_generation_prompt"].get<bool>());
    EXPECT_EQ(text, c["text"].get<std::string>());
    EXPECT_EQ(tokenizer->encode(text), c["ids"].get<Ids>());
  }
}

}  // namespace
}  // namespace evalrun::engine
