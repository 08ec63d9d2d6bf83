#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/tokenizer/tokenizer.h"
#include "tests/tokenizer/test_files.h"

namespace evalrun::engine {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using Ids = std::vector<int32_t>;
using testing::small_bpe_json;
using testing::TempFolder;

std::shared_ptr<const Tokenizer> load(const json& root, const json& side = json::object()) {
  const TempFolder folder;
  folder.write("tokenizer.json", root.dump());
  for (const auto& [name, content] : side.items()) folder.write(name, content.dump());
  return tokenizer_from_folder(folder.path());
}

TEST(TokenizerJson, EncodesAndDecodes) {
  const auto tokenizer = load(small_bpe_json());
  EXPECT_EQ(tokenizer->vocab_size(), 10);
  EXPECT_THAT(tokenizer->encode("hello<|end|> he"), ElementsAre(8, 9, 4, 5));
  EXPECT_EQ(tokenizer->decode(Ids{8, 9, 4, 5}), "hello<|end|> he");
  EXPECT_EQ(tokenizer->decode(Ids{8, 9, 4, 5}, true), "hello he");
  EXPECT_EQ(tokenizer->id_of("<|end|>"), 9);
  EXPECT_EQ(tokenizer->id_of("nothing"), std::nullopt);
  EXPECT_TRUE(tokenizer->is_special(9));
  EXPECT_FALSE(tokenizer->is_special(8));
  EXPECT_EQ(tokenizer->bos_id(), std::nullopt);
  EXPECT_EQ(tokenizer->stop_ids(), (Ids{9}));  // the family's end token, though no file names it
}

TEST(TokenizerJson, SpecialTokensAreTextWhenNotParsed) {
  json root = small_bpe_json();
  root["added_tokens"][0]["content"] = "he";
  root["added_tokens"][0]["id"] = 5;
  const auto tokenizer = load(root);
  EXPECT_THAT(tokenizer->encode("hello"), ElementsAre(5, 6, 3));
  EXPECT_THAT(tokenizer->encode("hello", {.parse_special = false, .add_special = false}),
              ElementsAre(8));
}

TEST(TokenizerJson, InvalidUtf8IsReadAsReplacementCharacters) {
  const auto tokenizer = load(small_bpe_json());
  EXPECT_EQ(tokenizer->encode("he\xFFllo"), tokenizer->encode("he\uFFFDllo"));
}

TEST(TokenizerJson, BothWaysOfWritingMergesAreTheSame) {
  json root = small_bpe_json();
  const auto old_way = load(root);
  root["model"]["merges"] = json::parse(R"([["h", "e"], ["l", "l"], ["he", "ll"], ["hell", "o"]])");
  const auto new_way = load(root);
  EXPECT_EQ(new_way->encode("hello"), old_way->encode("hello"));
  EXPECT_EQ(new_way->vocabulary_hash(), old_way->vocabulary_hash());
  std::swap(root["model"]["merges"][0], root["model"]["merges"][1]);
  EXPECT_NE(load(root)->vocabulary_hash(), old_way->vocabulary_hash());
}

TEST(TokenizerJson, TemplateAddsWhatItSays) {
  json root = small_bpe_json();
  root["post_processor"] = json::parse(R"({"type": "Sequence", "processors": [
    {"type": "ByteLevel"},
    {"type": "TemplateProcessing",
     "single": [{"SpecialToken": {"id": "B", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "B", "type_id": 0}}],
     "special_tokens": {"B": {"id": "B", "ids": [9, 0], "tokens": ["<|end|>", "h"]}}}]})");
  const auto tokenizer = load(root);
  EXPECT_THAT(tokenizer->encode("he", {.parse_special = true, .add_special = true}),
              ElementsAre(9, 0, 5, 9, 0));
  EXPECT_THAT(tokenizer->encode("he"), ElementsAre(5));
}

// Added tokens that are looked for in the normalised text; ids begin at 0.
TEST(TokenizerJson, ANormalizedAddedTokenMayHaveTheFirstId) {
  json root = small_bpe_json();
  root["model"]["vocab"]["h"] = 10;
  root["added_tokens"].push_back({{"id", 0},
                                  {"content", "<a>"},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", true},
                                  {"special", false}});
  EXPECT_THAT(load(root)->encode("h<a>ell"), ElementsAre(10, 0, 1, 6));
}

TEST(TokenizerJson, NormalizersRunInOrder) {
  json root = small_bpe_json();
  root["normalizer"] = json::parse(R"({"type": "Sequence", "normalizers": [
    {"type": "NFC"}, {"type": "Replace", "pattern": {"String": "é"}, "content": "e"},
    {"type": "Replace", "pattern": {"Regex": "l{3,}"}, "content": "ll"},
    {"type": "Prepend", "prepend": "h"}]})");
  EXPECT_THAT(load(root)->encode("e\u0301lllllo"), ElementsAre(8));
  EXPECT_THAT(load(root)->encode(""), ElementsAre());
}

TEST(TokenizerJson, StopAndBeginTokensComeFromTheSideFiles) {
  const json side = {
      {"tokenizer_config.json", {{"bos_token", {{"content", "h"}}}, {"eos_token", "l"}}},
      {"config.json", {{"eos_token_id", 3}, {"bos_token_id", 1}}},
      {"generation_config.json", {{"eos_token_id", {7, 6}}}}};
  const auto tokenizer = load(small_bpe_json(), side);
  EXPECT_EQ(tokenizer->bos_id(), 0);
  EXPECT_EQ(tokenizer->stop_ids(), (Ids{2, 3, 6, 7, 9}));
}

TEST(TokenizerJson, ANullBeginTokenMeansNone) {
  const json side = {{"tokenizer_config.json", {{"bos_token", nullptr}}},
                     {"config.json", {{"bos_token_id", 1}}}};
  EXPECT_EQ(load(small_bpe_json(), side)->bos_id(), std::nullopt);
  EXPECT_EQ(load(small_bpe_json(), {{"config.json", {{"bos_token_id", 1}}}})->bos_id(), 1);
}

}  // namespace
}  // namespace evalrun::engine
