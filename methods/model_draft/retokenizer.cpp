#include "methods/model_draft/retokenizer.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/utf8.h"

namespace evalrun::methods {
namespace {

constexpr int32_t kNone = -1;

// Of an ASCII character, or a byte of any other.
bool is_visible(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte > 0x20 && byte != 0x7F;
}
bool begins_word(std::string_view text, size_t i) {
  return text[i] == ' ' && i > 0 && i + 1 < text.size() && is_visible(text[i - 1]) &&
         is_visible(text[i + 1]);
}
bool puts_space(const engine::Tokenizer& tokenizer) {
  const engine::DecodeRules rules = tokenizer.decode_rules();
  return rules.strip_leading_spaces > 0 || rules.strip_first_token;
}

}  // namespace

size_t last_word(std::string_view text) {
  for (size_t i = text.size(); i-- > 1;)
    if (begins_word(text, i)) return i;
  return 0;
}

PieceTokenizer::PieceTokenizer(const engine::Tokenizer& tokenizer)
    : tokenizer_(tokenizer), adds_space_(puts_space(tokenizer)) {
  bytes_.fill(kNone);
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_special(id)) continue;
    const std::string bytes = tokenizer.token_bytes(id);
    if (bytes.size() != 1) continue;
    int32_t& known = bytes_[static_cast<unsigned char>(bytes[0])];
    if (known == kNone || tokenizer.is_byte_token(known)) known = id;
  }
}

void PieceTokenizer::append(std::string_view piece, bool at_start,
                            std::vector<int32_t>& ids) const {
  if (!at_start && adds_space_ && !piece.empty() && piece.front() == ' ') piece.remove_prefix(1);
  if (piece.empty()) return;
  const std::vector<int32_t> added =
      tokenizer_.encode(piece, {.parse_special = false, .add_special = false});
  ids.insert(ids.end(), added.begin(), added.end());
}

std::optional<int32_t> PieceTokenizer::of_byte(char byte) const {
  const int32_t id = bytes_[static_cast<unsigned char>(byte)];
  return id == kNone ? std::nullopt : std::optional<int32_t>(id);
}

void Retokenizer::start() {
  seen_ = closed_ = 0;
  open_.clear();
  ids_.clear();
  fresh_ = whole_ = true;
  // What the other model begins its texts with, also where this one has no token for that.
  const engine::Tokenizer& to = how_.to->tokenizer();
  const std::vector<int32_t> frame = to.encode("", {.parse_special = false, .add_special = true});
  if (!frame.empty() && to.bos_id() && frame.front() == *to.bos_id()) ids_.push_back(*to.bos_id());
  closed_ = ids_.size();
}

std::span<const int32_t> Retokenizer::follow(std::span<const int32_t> text) {
  EVALRUN_CHECK(text.size() >= seen_, "a text of {} tokens after one of {}", text.size(), seen_);
  ids_.resize(closed_);
  for (const int32_t id : text.subspan(seen_)) {
    if (how_.from->is_special(id)) {
      add_special(id);
      continue;
    }
    std::string bytes = how_.from->token_bytes(id);
    // The space that its own tokenizer has put before the text.
    if (fresh_ && open_.empty() && puts_space(*how_.from) && bytes.starts_with(' '))
      bytes.erase(0, 1);
    open_ += bytes;
  }
  seen_ = text.size();
  close_words();
  add_open();
  return ids_;
}

void Retokenizer::add_special(int32_t id) {
  close_words();
  add_open();
  open_.clear();
  fresh_ = true;
  const auto at = static_cast<size_t>(id);
  const int32_t partner = at < how_.special.size() ? how_.special[at] : kNone;
  const auto begin = how_.from->bos_id();
  const bool begins = begin && id == *begin;
  if (partner != kNone) {
    if (!(begins && ids_.size() == 1 && ids_.front() == partner)) ids_.push_back(partner);
  } else if (!begins) {
    how_.to->append(how_.from->token_bytes(id), false, ids_);
  }
  closed_ = ids_.size();
}

// Up to the last word, which may go on.
void Retokenizer::close_words() {
  for (size_t end = 1; end < open_.size();) {
    if (!begins_word(open_, end)) {
      ++end;
      continue;
    }
    how_.to->append(std::string_view(open_).substr(0, end), fresh_, ids_);
    open_.erase(0, end);
    fresh_ = false;
    closed_ = ids_.size();
    end = 1;
  }
}

void Retokenizer::add_open() {
  const size_t cut = base::utf8_incomplete_tail(open_);
  const std::string_view text = open_;
  how_.to->append(text.substr(0, text.size() - cut), fresh_, ids_);
  whole_ = true;
  for (const char byte : text.substr(text.size() - cut)) {
    const std::optional<int32_t> id = how_.to->of_byte(byte);
    whole_ = whole_ && id.has_value();
    if (id) ids_.push_back(*id);
  }
}

}  // namespace evalrun::methods
