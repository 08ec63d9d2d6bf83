#include "methods/model_draft/foreign_vocabulary.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/utf8.h"

namespace evalrun::methods {
namespace {

// Words are shorter than this many tokens, almost always; where they are not, a draft may start in
// the middle of one.
constexpr size_t kLongestTail = 32;

const engine::Tokenizer* tokenizer_of(const engine::Model& model) {
  if (model.tokenizer() == nullptr)
    throw base::usage_error(
        fmt::format("sps: {} has no tokenizer, so its tokens have no text", model.path()),
        "vocab=intersect and vocab=text need the tokenizers of both models");
  return model.tokenizer();
}

}  // namespace

// The last word of a text and its tokens.
struct ForeignVocabulary::Tail {
  std::string text;
  bool at_start = true;  // of the text, or after a special token
};

ForeignVocabulary::ForeignVocabulary(VocabularyRule rule,
                                     std::shared_ptr<const engine::Model> target,
                                     std::shared_ptr<const engine::Model> draft)
    : rule_(rule),
      target_(std::move(target)),
      draft_(std::move(draft)),
      target_tokenizer_(tokenizer_of(*target_)),
      draft_tokenizer_(tokenizer_of(*draft_)),
      map_(map_vocabularies(*target_tokenizer_, target_->config().n_logits(), *draft_tokenizer_,
                            std::min(draft_->config().n_logits(), draft_->config().vocab_size))),
      target_pieces_(*target_tokenizer_),
      draft_pieces_(*draft_tokenizer_) {
  if (map_.text_tokens == 0)
    throw base::usage_error(
        fmt::format("sps: no token of the draft model's vocabulary stands for a text that is a "
                    "token of the target's: {}\n  target: {}\n  draft:  {}",
                    to_text(map_), target_->path(), draft_->path()),
        "take a draft model of the same language and script with --draft, or draft=layers:N");
}

ForeignVocabulary::Tail ForeignVocabulary::tail_of(std::span<const int32_t> context) const {
  Tail tail;
  size_t begin = context.size();
  while (begin > 0 && context.size() - begin < kLongestTail) {
    const int32_t id = context[begin - 1];
    if (target_tokenizer_->is_special(id)) return tail;
    const std::string bytes = target_tokenizer_->token_bytes(id);
    tail.text.insert(0, bytes);
    --begin;
    // A word's first token, with something visible before it.
    if (bytes.size() < 2 || bytes[0] != ' ' || bytes[1] == ' ' || begin == 0) continue;
    if (target_tokenizer_->is_special(context[begin - 1])) continue;
    tail.at_start = false;
    return tail;
  }
  tail.at_start = begin == 0;
  return tail;
}

// False where the tokens do not give the text back, or where one of them is partly context.
bool ForeignVocabulary::tokenize_after(const Tail& tail, const std::string& text,
                                       std::vector<int32_t>& tokens) const {
  std::string whole = tail.text + text;
  tokens.clear();
  std::string_view piece = whole;
  // The space that the target's tokenizer puts before a text by itself.
  if (tail.at_start && target_pieces_.adds_space() && piece.starts_with(' '))
    piece.remove_prefix(1);
  target_pieces_.append(piece, tail.at_start, tokens);
  std::string given;
  size_t first = tokens.size();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (given.size() == tail.text.size()) first = std::min(first, i);
    given += target_tokenizer_->token_bytes(tokens[i]);
  }
  if (given != whole || first == tokens.size()) return false;
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(first));
  return true;
}

void ForeignVocabulary::cut_open_word(const std::string& text, std::vector<int32_t>& tokens) const {
  const size_t closed = last_word(text);
  size_t bytes = 0, kept = 0;
  for (; kept < tokens.size(); ++kept) {
    bytes += target_tokenizer_->token_bytes(tokens[kept]).size();
    if (bytes > closed) break;
  }
  if (kept == 0 && !tokens.empty()) kept = tokens.size() - 1;
  tokens.resize(std::min(kept, tokens.size()));
}

void ForeignVocabulary::retokenize(std::span<const int32_t> context,
                                   std::span<const int32_t> drafted, size_t most,
                                   std::vector<int32_t>& tokens) const {
  tokens.clear();
  const bool ended = !drafted.empty() && ends_draft(drafted.back());
  std::string text;
  for (const int32_t id : drafted)
    if (!ends_draft(id)) text += draft_tokenizer_->token_bytes(id);
  text.resize(text.size() - base::utf8_incomplete_tail(text));
  if (!text.empty() && !tokenize_after(tail_of(context), text, tokens)) {
    tokens.clear();
    if (target_pieces_.can_go_on(text)) target_pieces_.append(text, false, tokens);
  }
  if (!ended) {
    cut_open_word(text, tokens);
  } else if (text.empty() || !tokens.empty()) {
    const int32_t end = map_.to_target[static_cast<size_t>(drafted.back())];
    if (end >= 0) tokens.push_back(end);
  }
  tokens.resize(std::min(tokens.size(), most));
  // Past the target's logits there is nothing to verify by.
  const auto known = [this](int32_t id) { return id >= 0 && id < target_->config().n_logits(); };
  tokens.erase(std::find_if_not(tokens.begin(), tokens.end(), known), tokens.end());
}

}  // namespace evalrun::methods
