// Files that lie: each is a data_error that names file and field, and none of them crashes (the
// sanitizer build runs these as well).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "engine/base/rng.h"
#include "engine/formats/gguf.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/tokenizer/test_files.h"

namespace evalrun::engine {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using testing::data_error_of;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::small_bpe_json;
using testing::TempFolder;

std::string error_for_text(const std::string& text) {
  const TempFolder folder;
  folder.write("tokenizer.json", text);
  return data_error_of([&] { tokenizer_from_folder(folder.path()); });
}

struct BadJson {
  const char* name;
  std::function<void(json&)> damage;
  const char* expected;  // part of the message
};

const std::vector<BadJson>& bad_json() {
  static const std::vector<BadJson> cases = {
      {"DuplicateId", [](json& j) { j["model"]["vocab"]["e"] = 0; }, "same id 0"},
      {"IdGap", [](json& j) { j["model"]["vocab"].erase("hello"); }, "no token has id 8"},
      {"HugeId", [](json& j) { j["model"]["vocab"]["e"] = 2147483647; }, "no token has id 1"},
      {"IdBeyondInt32", [](json& j) { j["model"]["vocab"]["e"] = 4294967297; }, "out of range"},
      {"NegativeId", [](json& j) { j["model"]["vocab"]["e"] = -1; }, "has id -1"},
      {"TextAsId", [](json& j) { j["model"]["vocab"]["e"] = "1"; }, "model.vocab.e"},
      {"FractionalId", [](json& j) { j["model"]["vocab"]["e"] = 1.5; }, "must be an integer"},
      {"VocabularyAsList", [](json& j) { j["model"]["vocab"] = json::array(); }, "model.vocab"},
      {"EmptyVocabulary",
       [](json& j) {
         j["model"]["vocab"] = json::object();
         j["added_tokens"] = j["model"]["merges"] = json::array();
       },
       "is empty"},
      {"NoModel", [](json& j) { j.erase("model"); }, "model"},
      {"UnigramModel", [](json& j) { j["model"]["type"] = "Unigram"; }, "Unigram"},
      {"UnknownMergePart", [](json& j) { j["model"]["merges"][2] = "he xx"; },
       "model.merges[2]: 'xx'"},
      {"UnknownMergeResult", [](json& j) { j["model"]["merges"][1] = "o o"; },
       "model.merges[1]: 'oo'"},
      {"MergeOfOnePart", [](json& j) { j["model"]["merges"][0] = "he"; }, "merges[0]"},
      {"MergeOfThreeParts",
       [](json& j) {
         j["model"]["merges"][0] = {"h", "e", "l"};
       },
       "merges[0]"},
      {"MergeOfNumbers",
       [](json& j) {
         j["model"]["merges"][0] = {1, 2};
       },
       "merges[0]"},
      {"MergesAsText", [](json& j) { j["model"]["merges"] = "h e"; }, "model.merges"},
      {"Dropout", [](json& j) { j["model"]["dropout"] = 0.1; }, "model.dropout"},
      {"SubwordPrefix", [](json& j) { j["model"]["continuing_subword_prefix"] = "##"; },
       "continuing_subword_prefix"},
      {"UnknownTokenMissing", [](json& j) { j["model"]["unk_token"] = "<unk>"; },
       "model.unk_token"},
      {"WrongFlagType", [](json& j) { j["model"]["byte_fallback"] = "yes"; }, "byte_fallback"},
      {"AddedTokenIdConflict", [](json& j) { j["added_tokens"][0]["content"] = "he"; },
       "id 5 in model.vocab"},
      {"AddedTokenIdTaken", [](json& j) { j["added_tokens"][0]["id"] = 3; }, "same id 3"},
      {"AddedTokenWithoutContent", [](json& j) { j["added_tokens"][0].erase("content"); },
       "added_tokens[0].content"},
      {"AddedTokensAsObject", [](json& j) { j["added_tokens"] = json::object(); }, "added_tokens"},
      {"UnknownNormalizer",
       [](json& j) {
         j["normalizer"] = {{"type", "Lowercase"}};
       },
       "normalizer.type: unknown normalizer 'Lowercase'"},
      {"UnknownPreTokenizer",
       [](json& j) {
         j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Bert"}}}}};
       },
       "pre_tokenizer.pretokenizers[0].type: unknown pre-tokenizer 'Bert'"},
      {"BrokenRegex",
       [](json& j) {
         j["pre_tokenizer"] = {
             {"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}};
       },
       "pre_tokenizer.pattern.Regex"},
      {"UnknownBehavior",
       [](json& j) {
         j["pre_tokenizer"] = {
             {"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Glued"}};
       },
       "unknown behavior 'Glued'"},
      {"SequenceWithoutMembers",
       [](json& j) {
         j["pre_tokenizer"] = {{"type", "Sequence"}};
       },
       "pre_tokenizer.pretokenizers"},
      {"NoDecoder", [](json& j) { j.erase("decoder"); }, "decoder"},
      {"UnknownDecoder",
       [](json& j) {
         j["decoder"] = {{"type", "WordPiece"}};
       },
       "WordPiece"},
      {"StripWithoutFuse",
       [](json& j) {
         j["decoder"] = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
       },
       "must come after Fuse"},
      {"UnknownPostProcessor",
       [](json& j) {
         j["post_processor"] = {{"type", "Roberta"}};
       },
       "Roberta"},
      {"TemplateWithUnknownToken",
       [](json& j) {
         j["post_processor"] = {{"type", "TemplateProcessing"},
                                {"single", {{{"SpecialToken", {{"id", "B"}}}}}},
                                {"special_tokens", json::object()}};
       },
       "does not define 'B'"},
      {"TemplateIdOutOfRange",
       [](json& j) {
         j["post_processor"] = {
             {"type", "TemplateProcessing"},
             {"single", {{{"SpecialToken", {{"id", "B"}}}}, {{"Sequence", {{"id", "A"}}}}}},
             {"special_tokens", {{"B", {{"ids", {99}}}}}}};
       },
       "99 is not a token id"},
  };
  return cases;
}

class BadTokenizerJson : public ::testing::TestWithParam<size_t> {};

TEST_P(BadTokenizerJson, IsADataErrorThatNamesThePlace) {
  const BadJson& c = bad_json()[GetParam()];
  json root = small_bpe_json();
  c.damage(root);
  EXPECT_THAT(error_for_text(root.dump()),
              AllOf(HasSubstr("tokenizer.json"), HasSubstr(c.expected)));
}

INSTANTIATE_TEST_SUITE_P(Unit, BadTokenizerJson, ::testing::Range<size_t>(0, bad_json().size()),
                         [](const auto& tested) { return bad_json()[tested.param].name; });

TEST(BadTokenizerJsonFile, TruncatedAnywhereIsAnError) {
  const std::string text = small_bpe_json().dump();
  for (size_t n = 0; n < text.size(); n += 7)
    EXPECT_THAT(error_for_text(text.substr(0, n)), HasSubstr("tokenizer.json"));
}

TEST(BadTokenizerJsonFile, MissingFileSaysWhatIsNeeded) {
  const TempFolder folder;
  EXPECT_THAT(data_error_of([&] { tokenizer_from_folder(folder.path()); }),
              AllOf(HasSubstr("tokenizer.json"), HasSubstr("does not exist"), HasSubstr("hint")));
}

TEST(BadTokenizerJsonFile, DeepNestingIsAnError) {
  json root = small_bpe_json();
  for (int i = 0; i < 50; ++i)
    root["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {root["pre_tokenizer"]}}};
  EXPECT_THAT(error_for_text(root.dump()), HasSubstr("nested too deeply"));
}

TEST(BadTokenizerJsonFile, RandomDamageNeverCrashes) {
  const std::string text = small_bpe_json().dump();
  base::Rng rng(77);
  for (int round = 0; round < 300; ++round) {
    std::string damaged = text;
    for (uint64_t n = 1 + rng.below(4); n > 0; --n)
      damaged[rng.below(damaged.size())] = static_cast<char>(rng.below(256));
    const TempFolder folder;
    folder.write("tokenizer.json", damaged);
    try {  // some damage leaves a valid tokenizer: then it must work
      tokenizer_from_folder(folder.path())->encode("hello <|end|>");
    } catch (const base::Error& e) {
      EXPECT_EQ(e.code(), base::ExitCode::kData) << e.what();
    }
  }
}

TEST(BadSideFiles, AreErrorsToo) {
  const auto error_with = [](const std::string& name, const json& content) {
    const TempFolder folder;
    folder.write("tokenizer.json", small_bpe_json().dump());
    folder.write(name, content.dump());
    return data_error_of([&] { tokenizer_from_folder(folder.path()); });
  };
  EXPECT_THAT(error_with("generation_config.json", {{"eos_token_id", 10}}),
              HasSubstr("generation_config.json: eos_token_id: 10 is not a token id"));
  EXPECT_THAT(error_with("generation_config.json", {{"eos_token_id", {1, "2"}}}),
              HasSubstr("eos_token_id"));
  EXPECT_THAT(error_with("config.json", {{"eos_token_id", std::numeric_limits<uint64_t>::max()}}),
              HasSubstr("eos_token_id"));
  EXPECT_THAT(error_with("tokenizer_config.json", {{"eos_token", "</s>"}}),
              HasSubstr("'</s>' is not in the vocabulary"));
  EXPECT_THAT(error_with("tokenizer_config.json", {{"bos_token", 1}}), HasSubstr("bos_token"));
  EXPECT_THAT(error_with("config.json", json::array()), HasSubstr("config.json"));
}

std::string gguf_error(const GgufWriter& writer) {
  const TempFolder folder;
  const std::string file = folder.write("model.gguf", writer.bytes());
  return data_error_of([&] { tokenizer_from_gguf(GgufFile(file)); });
}

GgufWriter bpe(const std::string& pre, const std::vector<std::string>& tokens,
               const std::vector<std::string>& merges) {
  GgufWriter w;
  w.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", pre);
  w.texts("tokenizer.ggml.tokens", tokens).texts("tokenizer.ggml.merges", merges);
  return w;
}

TEST(BadGgufTokenizer, NamesKeyAndRemedy) {
  EXPECT_THAT(gguf_error(bpe("tekken", {"a"}, {})),
              AllOf(HasSubstr("tokenizer.ggml.pre: unknown pre-tokenizer 'tekken'"),
                    HasSubstr("smollm"), HasSubstr("qwen2")));
  EXPECT_THAT(gguf_error(bpe("gpt-2", {}, {})), HasSubstr("tokenizer.ggml.tokens"));
  EXPECT_THAT(gguf_error(bpe("gpt-2", {"a", "b", "a"}, {})), HasSubstr("'a' has two ids, 0 and 2"));
  EXPECT_THAT(gguf_error(bpe("gpt-2", {"a", "\xFF"}, {})), HasSubstr("tokens[1]"));
  EXPECT_THAT(gguf_error(bpe("gpt-2", {"a", "b"}, {"a b"})), HasSubstr("merges[0]: 'ab'"));
  for (const char* merge : {"", " ", "a", "a ", " a"})
    EXPECT_THAT(gguf_error(bpe("gpt-2", {"a"}, {merge})), HasSubstr("merges[0]")) << merge;
  EXPECT_THAT(gguf_error(bpe("gpt-2", {"a"}, {}).uint32("tokenizer.ggml.eos_token_id", 1)),
              HasSubstr("tokenizer.ggml.eos_token_id: 1 is not a token id"));
  EXPECT_THAT(gguf_error(bpe("gpt-2", {"a"}, {}).int32s("tokenizer.ggml.token_type", {1, 1})),
              HasSubstr("tokenizer.ggml.token_type: has 2 entries"));
  GgufWriter wrong_model;
  wrong_model.text("tokenizer.ggml.model", "bert").texts("tokenizer.ggml.tokens", {"a"});
  EXPECT_THAT(gguf_error(wrong_model), HasSubstr("unknown tokenizer model 'bert'"));
  GgufWriter no_pre;
  no_pre.text("tokenizer.ggml.model", "gpt2").texts("tokenizer.ggml.tokens", {"a"});
  EXPECT_THAT(gguf_error(no_pre), HasSubstr("tokenizer.ggml.pre: is missing"));
  EXPECT_THAT(gguf_error(GgufWriter()), HasSubstr("tokenizer.ggml.tokens"));
}

TEST(BadGgufTokenizer, ScoresMustFitTheVocabulary) {
  const auto spm = [](const std::vector<float>& scores) {
    GgufWriter w;
    w.text("tokenizer.ggml.model", "llama").texts("tokenizer.ggml.tokens", {"a", "b"});
    return w.floats("tokenizer.ggml.scores", scores);
  };
  EXPECT_THAT(gguf_error(spm({1})), HasSubstr("tokenizer.ggml.scores: has 1 entries"));
  EXPECT_THAT(gguf_error(spm({1, std::numeric_limits<float>::quiet_NaN()})),
              HasSubstr("tokenizer.ggml.scores[1]: is not finite"));
}

}  // namespace
}  // namespace evalrun::engine
