#include <gtest/gtest.h>

#include "engine/base/rng.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/tokenizer/test_files.h"

namespace evalrun::engine {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

std::shared_ptr<const Tokenizer> from_json(const json& root) {
  const testing::TempFolder folder;
  folder.write("tokenizer.json", root.dump());
  return tokenizer_from_folder(folder.path());
}

// Tokens "<s>", "▁a", "b", "▁", and the bytes E2 96 81 0A 20.
std::shared_ptr<const Tokenizer> sentencepiece() {
  return from_json(json::parse(R"({
    "added_tokens": [{"id": 0, "content": "<s>", "special": true}],
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "byte_fallback": true, "merges": [],
              "vocab": {"▁a": 1, "b": 2, "▁": 3, "<0xE2>": 4, "<0x96>": 5, "<0x81>": 6,
                        "<0x0A>": 7, "<0x20>": 8}}})"));
}

TEST(StreamDecoder, HoldsBackHalfACharacter) {
  json root = testing::small_bpe_json();
  root["model"]["vocab"] = {{"\u00E2", 0}, {"\u0138", 1}, {"\u0123", 2}, {"h", 3}};  // E2 96 81 h
  root["model"]["merges"] = json::array();
  root["added_tokens"] = json::array();
  const auto tokenizer = from_json(root);
  ASSERT_EQ(tokenizer->token_bytes(0) + tokenizer->token_bytes(1) + tokenizer->token_bytes(2),
            "\xE2\x96\x81");
  StreamDecoder stream(*tokenizer);
  EXPECT_EQ(stream.push(3), "h");
  EXPECT_EQ(stream.push(0), "");
  EXPECT_EQ(stream.push(1), "");
  EXPECT_EQ(stream.push(2), "\xE2\x96\x81");
  EXPECT_EQ(stream.push(0), "");
  EXPECT_EQ(stream.push(3), "\uFFFDh");
  EXPECT_EQ(stream.push(0), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.finish(), "");
}

TEST(StreamDecoder, JudgesByteRunsAsAWhole) {
  const auto tokenizer = sentencepiece();
  EXPECT_EQ(tokenizer->decode(Ids{2, 4, 5, 6, 2}),
            "b\xE2\x96\x81"
            "b");
  EXPECT_EQ(tokenizer->decode(Ids{2, 4, 5, 7, 2}), "b\uFFFD\uFFFD\uFFFDb");
  EXPECT_EQ(tokenizer->decode(Ids{2, 7, 4}), "b\uFFFD\uFFFD");
}

TEST(StreamDecoder, StripsOneSpaceInFrontOnly) {
  const auto tokenizer = sentencepiece();
  EXPECT_EQ(tokenizer->decode(Ids{1, 1}), "a a");
  EXPECT_EQ(tokenizer->decode(Ids{3, 1}), " a");
  EXPECT_EQ(tokenizer->decode(Ids{8, 2, 8, 2}), "b b");  // a space from a byte token as well
  EXPECT_EQ(tokenizer->decode(Ids{0, 1}, true), "a");
  EXPECT_EQ(tokenizer->decode(Ids{0, 1}, false), "<s> a");
}

TEST(StreamDecoder, MetaspaceDropsTheSpacesOfTheFirstToken) {
  json root = testing::small_bpe_json();
  root["pre_tokenizer"] = root["decoder"] =
      json{{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "always"}};
  root["model"]["vocab"] = {{"__a", 0}, {"_b", 1}};
  root["model"]["merges"] = root["added_tokens"] = json::array();
  EXPECT_EQ(from_json(root)->decode(Ids{0, 0, 1}), "a  a b");
  root["decoder"]["prepend_scheme"] = "never";
  EXPECT_EQ(from_json(root)->decode(Ids{0, 0, 1}), "  a  a b");
}

TEST(StreamDecoder, IdsOutsideTheVocabularyAreNothing) {
  const auto tokenizer = sentencepiece();
  EXPECT_EQ(tokenizer->decode(Ids{1, -1, 9, 1 << 30, 2}), "ab");
  EXPECT_FALSE(tokenizer->is_special(-1));
  EXPECT_EQ(tokenizer->token_bytes(1 << 30), "");
}

}  // namespace
}  // namespace evalrun::engine
