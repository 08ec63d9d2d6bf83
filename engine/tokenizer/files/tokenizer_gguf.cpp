// Tokenizers in GGUF files: `tokenizer.ggml.model` = "gpt2" (byte-level BPE, merges) and "llama"
// (SentencePiece, scores). Key names and their defaults as in llama.cpp.
#include <algorithm>
#include <cmath>
#include <set>

#include "engine/base/error.h"
#include "engine/base/utf8.h"
#include "engine/formats/gguf.h"
#include "engine/tokenizer/pipeline_tokenizer.h"
#include "engine/tokenizer/subword/bpe.h"
#include "engine/tokenizer/subword/spm.h"

namespace evalrun::engine {
namespace {

constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTokenType = "tokenizer.ggml.token_type";
constexpr const char* kMerges = "tokenizer.ggml.merges";
constexpr const char* kScores = "tokenizer.ggml.scores";
constexpr const char* kModel = "tokenizer.ggml.model";
constexpr const char* kPre = "tokenizer.ggml.pre";

// tokenizer.ggml.token_type
constexpr int64_t kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5;

class GgufReader {
 public:
  explicit GgufReader(const GgufFile& file) : file_(file) {}

  TokenizerParts read() {
    read_vocabulary();
    const std::string model = file_.text(kModel);
    if (model == "gpt2")
      read_byte_level();
    else if (model == "llama")
      read_sentencepiece();
    else
      fail(kModel, fmt::format("unknown tokenizer model '{}'", model), "known: gpt2, llama");
    read_special_ids();
    read_added_tokens();
    return std::move(parts_);
  }

 private:
  [[noreturn]] void fail(const std::string& key, const std::string& what,
                         const std::string& hint = {}) const {
    throw base::data_error(file_.path(), key, what, hint);
  }

  void read_vocabulary() {
    const std::vector<std::string>& tokens = file_.texts(kTokens);
    if (tokens.empty()) fail(kTokens, "is empty");
    for (size_t id = 0; id < tokens.size(); ++id)
      if (!base::utf8_valid(tokens[id]))
        fail(fmt::format("{}[{}]", kTokens, id), "is not valid UTF-8");
    types_.assign(tokens.size(), 1);
    if (file_.has(kTokenType)) types_ = file_.integers(kTokenType);
    require_length(kTokenType, types_.size(), tokens.size());
    parts_.vocabulary = std::make_shared<Vocabulary>(tokens, file_.path(), kTokens);
    parts_.n_hashed_tokens = parts_.vocabulary->size();
    // Converters pad the vocabulary to the model's rows with unused tokens; tokenizer.json does
    // not.
    while (parts_.n_hashed_tokens > 0 &&
           types_[static_cast<size_t>(parts_.n_hashed_tokens) - 1] == kUnused)
      --parts_.n_hashed_tokens;
  }

  void require_length(const char* key, size_t found, size_t expected) const {
    if (found != expected)
      fail(key, fmt::format("has {} entries, but there are {} tokens", found, expected));
  }

  void read_byte_level() {
    if (!file_.has(kPre))
      fail(kPre, "is missing, so the splitting rule is unknown",
           "convert the model again with a current converter; known values: " + known_pre());
    const std::string pre = file_.text(kPre);
    const auto named = pre_tokenizer_by_name(pre);
    if (!named) fail(kPre, fmt::format("unknown pre-tokenizer '{}'", pre), "known: " + known_pre());
    if (named->nfc) parts_.normalizer.add(Normalizer::Nfc{});
    parts_.pre_tokenizer = named->pre_tokenizer;
    adds_bos_ = named->adds_bos;
    for (size_t rank = 0; rank < file_.texts(kMerges).size(); ++rank) {
      const std::string& merge = file_.texts(kMerges)[rank];
      // From 1 on: the byte alphabet has no space, but be exact about where the left part may end.
      const size_t space = merge.find(' ', 1);
      if (merge.empty() || space == std::string::npos || space + 1 == merge.size())
        fail(fmt::format("{}[{}]", kMerges, rank),
             fmt::format("'{}' is not two parts with a space between", merge));
      parts_.hashed_merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
    }
    BpeOptions options;
    options.ignore_merges = named->ignore_merges;
    parts_.model = std::make_unique<BpeModel>(parts_.vocabulary, parts_.hashed_merges, options,
                                              file_.path(), kMerges);
    parts_.decode.byte_alphabet = true;
  }

  static std::string known_pre() {
    return fmt::format("{}", fmt::join(pre_tokenizer_names(), ", "));
  }

  void read_sentencepiece() {
    const std::vector<double>& numbers = file_.numbers(kScores);
    require_length(kScores, numbers.size(), static_cast<size_t>(parts_.vocabulary->size()));
    std::vector<float> scores;
    for (size_t id = 0; id < numbers.size(); ++id) {
      if (!std::isfinite(numbers[id])) fail(fmt::format("{}[{}]", kScores, id), "is not finite");
      scores.push_back(static_cast<float>(numbers[id]));
    }
    const std::string mark = "\xE2\x96\x81";  // U+2581
    const bool prefix = file_.boolean_or("tokenizer.ggml.add_space_prefix", true);
    if (prefix) parts_.normalizer.add(Normalizer::Prepend{mark});
    parts_.normalizer.add(Normalizer::Replace{std::nullopt, " ", mark});
    parts_.decode.replace = {{mark, " "}};
    parts_.decode.byte_fallback = true;
    parts_.decode.rules.whole_byte_runs = true;
    parts_.decode.rules.strip_leading_spaces = prefix ? 1 : 0;
    parts_.model = std::make_unique<SpmModel>(parts_.vocabulary, std::move(scores),
                                              token_id("tokenizer.ggml.unknown_token_id"));
    adds_bos_ = true;
  }

  std::optional<int32_t> token_id(const std::string& key) const {
    if (!file_.has(key)) return std::nullopt;
    const int64_t id = file_.integer(key);
    if (id < 0 || id >= parts_.vocabulary->size())
      fail(key, fmt::format("{} is not a token id (the vocabulary has {})", id,
                            parts_.vocabulary->size()));
    return static_cast<int32_t>(id);
  }

  void read_special_ids() {
    parts_.bos_id = token_id("tokenizer.ggml.bos_token_id");
    const auto eos = token_id("tokenizer.ggml.eos_token_id");
    for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                            "tokenizer.ggml.eom_token_id"})
      if (const auto id = token_id(key)) parts_.stop_ids.push_back(*id);
    if (file_.boolean_or("tokenizer.ggml.add_bos_token", adds_bos_) && parts_.bos_id)
      parts_.before.push_back(*parts_.bos_id);
    if (file_.boolean_or("tokenizer.ggml.add_eos_token", false) && eos)
      parts_.after.push_back(*eos);
  }

  void read_added_tokens() {
    // Old files call every token normal; what begins or ends a text is special all the same.
    std::set<int32_t> special(parts_.stop_ids.begin(), parts_.stop_ids.end());
    if (parts_.bos_id) special.insert(*parts_.bos_id);
    for (int32_t id = 0; id < parts_.vocabulary->size(); ++id) {
      const int64_t type = types_[static_cast<size_t>(id)];
      const bool is_special = type == kUnknown || type == kControl || special.contains(id);
      if (!is_special && type != kUserDefined) continue;
      AddedToken token;
      token.id = id;
      token.content = parts_.vocabulary->text(id);
      token.special = is_special;
      parts_.added.push_back(std::move(token));
    }
  }

  const GgufFile& file_;
  TokenizerParts parts_;
  std::vector<int64_t> types_;
  bool adds_bos_ = false;
};

}  // namespace

std::shared_ptr<const Tokenizer> tokenizer_from_gguf(const GgufFile& file) {
  return std::make_shared<PipelineTokenizer>(GgufReader(file).read());
}

}  // namespace evalrun::engine
