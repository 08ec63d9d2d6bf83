#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/formats/gguf.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/tokenizer/test_files.h"

namespace evalrun::engine {
namespace {

using ::testing::ElementsAre;
using Ids = std::vector<int32_t>;
using testing::GgufWriter;
using testing::TempFolder;

std::shared_ptr<const Tokenizer> load(const GgufWriter& writer) {
  const TempFolder folder;
  return tokenizer_from_gguf(GgufFile(folder.write("model.gguf", writer.bytes())));
}

GgufWriter small_bpe() {
  GgufWriter w;
  w.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "gpt-2");
  w.texts("tokenizer.ggml.tokens", {"h", "e", "he", "\u0120", "\u0120he", "<|im_end|>", "[user]"});
  w.texts("tokenizer.ggml.merges", {"h e", "\u0120 he"});
  w.int32s("tokenizer.ggml.token_type", {1, 1, 1, 1, 1, 3, 4});
  return w;
}

GgufWriter small_spm() {
  GgufWriter w;
  w.text("tokenizer.ggml.model", "llama");
  w.texts("tokenizer.ggml.tokens",
          {"<unk>", "<s>", "</s>", "<0x0A>", "\u2581", "h", "e", "he", "\u2581he"});
  w.floats("tokenizer.ggml.scores", {0, 0, 0, 0, -9, -9, -9, -1, -2});
  w.int32s("tokenizer.ggml.token_type", {2, 3, 3, 6, 1, 1, 1, 1, 1});
  w.uint32("tokenizer.ggml.bos_token_id", 1).uint32("tokenizer.ggml.eos_token_id", 2);
  w.uint32("tokenizer.ggml.unknown_token_id", 0);
  return w;
}

TEST(TokenizerGguf, ByteLevel) {
  const auto tokenizer = load(small_bpe());
  EXPECT_THAT(tokenizer->encode("he he<|im_end|>[user]"), ElementsAre(2, 4, 5, 6));
  EXPECT_EQ(tokenizer->decode(Ids{2, 4, 5, 6}, true), "he he[user]");
  EXPECT_EQ(tokenizer->stop_ids(), (Ids{5}));
  // User-defined tokens are found even where special ones are text.
  EXPECT_THAT(tokenizer->encode("he[user]", {.parse_special = false, .add_special = false}),
              ElementsAre(2, 6));
  EXPECT_THAT(tokenizer->encode("he", {.parse_special = true, .add_special = true}),
              ElementsAre(2));
}

TEST(TokenizerGguf, SentencePiece) {
  const auto tokenizer = load(small_spm());
  EXPECT_THAT(tokenizer->encode("he he\n"), ElementsAre(8, 8, 3));
  EXPECT_THAT(tokenizer->encode("he</s>he"), ElementsAre(8, 2, 8));
  EXPECT_THAT(tokenizer->encode("he", {.parse_special = true, .add_special = true}),
              ElementsAre(1, 8));
  EXPECT_THAT(tokenizer->encode("\u00E9"), ElementsAre(4, 0, 0));  // bytes without a token
  EXPECT_THAT(tokenizer->encode(""), ElementsAre());
  EXPECT_EQ(tokenizer->decode(Ids{8, 8, 3}), "he he\n");
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->stop_ids(), (Ids{2}));
}

TEST(TokenizerGguf, SpacePrefixAndBeginTokenCanBeSwitchedOff) {
  GgufWriter w = small_spm();
  w.boolean("tokenizer.ggml.add_space_prefix", false)
      .boolean("tokenizer.ggml.add_bos_token", false);
  const auto tokenizer = load(w);
  EXPECT_THAT(tokenizer->encode("he he", {.parse_special = true, .add_special = true}),
              ElementsAre(7, 8));
  EXPECT_EQ(tokenizer->decode(Ids{8, 8}), " he he");
}

TEST(TokenizerGguf, UnusedPaddingDoesNotChangeTheHash) {
  const auto build = [](std::vector<std::string> tokens, std::vector<int32_t> types) {
    GgufWriter w;
    w.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "gpt-2");
    w.texts("tokenizer.ggml.tokens", tokens).texts("tokenizer.ggml.merges", {"h e"});
    w.int32s("tokenizer.ggml.token_type", types);
    return load(w)->vocabulary_hash();
  };
  EXPECT_EQ(build({"h", "e", "he"}, {1, 1, 1}), build({"h", "e", "he", "[PAD3]"}, {1, 1, 1, 5}));
  EXPECT_NE(build({"h", "e", "he"}, {1, 1, 1}), build({"h", "e", "he", "x"}, {1, 1, 1, 1}));
  EXPECT_NE(build({"h", "e", "he"}, {1, 1, 1}), build({"e", "h", "he"}, {1, 1, 1}));
}

TEST(TokenizerGguf, SameVocabularyInBothFormatsHasTheSameHash) {
  nlohmann::json root = testing::small_bpe_json();
  root["added_tokens"] = nlohmann::json::array();
  root["model"]["vocab"] = {{"h", 0}, {"e", 1}, {"he", 2}};
  root["model"]["merges"] = {"h e"};
  const TempFolder folder;
  folder.write("tokenizer.json", root.dump());
  GgufWriter w;
  w.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "gpt-2");
  w.texts("tokenizer.ggml.tokens", {"h", "e", "he"}).texts("tokenizer.ggml.merges", {"h e"});
  EXPECT_EQ(load(w)->vocabulary_hash(), tokenizer_from_folder(folder.path())->vocabulary_hash());
}

}  // namespace
}  // namespace evalrun::engine
