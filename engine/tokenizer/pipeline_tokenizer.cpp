#include "engine/tokenizer/pipeline_tokenizer.h"

#include <algorithm>
#include <array>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/base/utf8.h"
#include "engine/tokenizer/subword/byte_alphabet.h"

namespace evalrun::engine {
namespace {

// Tokens that end a turn or a text in the supported families. A model's files do not always name
// all of them (SmolLM2 names <|im_end|> only); they count when the vocabulary marks them as
// special.
constexpr std::array<std::string_view, 9> kEndTokens = {
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>",    "<|endoftext|>",  "<|end_of_text|>",
    "</s>",       "<|end|>",    "<end_of_turn>", "<|end_of_turn|>"};

// `normalized` tokens are searched in normalized text, so what is searched is normalized as well
// (with LLaMA's "▁" in front, as Hugging Face has it). Differs: `tokenizers` 0.23 also decodes such
// a token to its normalized text (" <s>"); earlier versions, and this one, to its own.
AddedTokenMatcher matcher(const TokenizerParts& parts, bool normalized) {
  std::vector<AddedToken> tokens;
  for (AddedToken token : parts.added) {
    if (token.normalized != normalized) continue;
    if (normalized) token.content = parts.normalizer.apply(token.content);
    tokens.push_back(std::move(token));
  }
  return AddedTokenMatcher(std::move(tokens));
}

std::string token_text_to_bytes(const DecodePlan& plan, const std::string& text) {
  if (plan.byte_alphabet) return alphabet_to_bytes(text);
  std::string out = text;
  for (const auto& [from, to] : plan.replace) out = replace_all(out, from, to);
  if (plan.byte_fallback)
    if (const auto byte = fallback_byte_of(out)) return std::string(1, static_cast<char>(*byte));
  return out;
}

std::string hash_of(const TokenizerParts& parts) {
  std::string all;
  const auto put = [&](std::string_view text) {  // length first: no two lists write the same
    all += fmt::format("{}:", text.size());
    all += text;
  };
  for (int32_t id = 0; id < parts.n_hashed_tokens; ++id) put(parts.vocabulary->text(id));
  all += "merges";
  for (const auto& [left, right] : parts.hashed_merges) {
    put(left);
    put(right);
  }
  return base::sha256_hex(all);
}

}  // namespace

PipelineTokenizer::PipelineTokenizer(TokenizerParts parts)
    : parts_(std::move(parts)),
      raw_matcher_(matcher(parts_, false)),
      normalized_matcher_(matcher(parts_, true)),
      hash_(hash_of(parts_)) {
  entries_.resize(static_cast<size_t>(vocab_size()));
  for (int32_t id = 0; id < vocab_size(); ++id) {
    Entry& e = entries_[static_cast<size_t>(id)];
    const std::string& text = parts_.vocabulary->text(id);
    e.bytes = token_text_to_bytes(parts_.decode, text);
    e.byte = parts_.decode.byte_fallback && fallback_byte_of(text).has_value();
  }
  for (const AddedToken& token : parts_.added)
    if (token.special) entries_[static_cast<size_t>(token.id)].special = true;

  std::vector<int32_t>& stop = parts_.stop_ids;
  for (std::string_view text : kEndTokens) {
    const auto id = parts_.vocabulary->find(text);
    if (id && is_special(*id)) stop.push_back(*id);
  }
  std::sort(stop.begin(), stop.end());
  stop.erase(std::unique(stop.begin(), stop.end()), stop.end());
}

const PipelineTokenizer::Entry* PipelineTokenizer::entry(int32_t id) const {
  return id >= 0 && id < vocab_size() ? &entries_[static_cast<size_t>(id)] : nullptr;
}

std::vector<int32_t> PipelineTokenizer::encode(std::string_view text,
                                               const EncodeOptions& options) const {
  std::string repaired;
  if (!base::utf8_valid(text)) {
    repaired = base::utf8_repair(text);
    text = repaired;
  }
  std::vector<int32_t> ids;
  if (options.add_special) ids = parts_.before;
  for (const Section& section : raw_matcher_.split(text, options.parse_special)) {
    if (section.id >= 0)
      ids.push_back(section.id);
    else
      encode_section(section.text, section.text.data() == text.data(), options.parse_special, ids);
  }
  if (options.add_special) ids.insert(ids.end(), parts_.after.begin(), parts_.after.end());
  return ids;
}

void PipelineTokenizer::encode_section(std::string_view text, bool at_start, bool parse_special,
                                       std::vector<int32_t>& ids) const {
  const std::string normalized = parts_.normalizer.apply(text);
  for (const Section& section : normalized_matcher_.split(normalized, parse_special)) {
    if (section.id >= 0) {
      ids.push_back(section.id);
      continue;
    }
    const bool first = at_start && section.text.data() == normalized.data();
    for (const std::string& word : parts_.pre_tokenizer.split(section.text, first))
      parts_.model->encode_word(word, ids);
  }
}

std::string PipelineTokenizer::token_bytes(int32_t id, bool skip_special) const {
  const Entry* e = entry(id);
  return e == nullptr || (skip_special && e->special) ? std::string() : e->bytes;
}

std::string PipelineTokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  StreamDecoder stream(*this, skip_special);
  std::string text;
  for (int32_t id : ids) text += stream.push(id);
  return text + stream.finish();
}

bool PipelineTokenizer::is_special(int32_t id) const {
  const Entry* e = entry(id);
  return e != nullptr && e->special;
}

std::optional<int32_t> PipelineTokenizer::id_of(std::string_view token_text) const {
  return parts_.vocabulary->find(token_text);
}

bool PipelineTokenizer::is_byte_token(int32_t id) const {
  const Entry* e = entry(id);
  return e != nullptr && e->byte;
}

}  // namespace evalrun::engine
