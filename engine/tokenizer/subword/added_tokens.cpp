#include "engine/tokenizer/subword/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>

#include "engine/base/utf8.h"

namespace evalrun::engine {
namespace {

bool is_space(char32_t c) {
  if ((c >= 9 && c <= 13) || c == 0x85) return true;
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

// \w of Unicode's regular expressions (UTS 18): letters, marks, decimal digits, connectors.
bool is_word(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return c == 0x200C || c == 0x200D;
  }
}

// The last character of a non-empty valid text: where it begins.
size_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

bool touches_word(std::string_view before, std::string_view after) {
  if (!before.empty() && is_word(base::utf8_step(before.substr(last_character(before))).code))
    return true;
  return !after.empty() && is_word(base::utf8_step(after).code);
}

size_t skip_space_left(std::string_view text, size_t begin, size_t limit) {
  while (begin > limit) {
    const size_t at = last_character(text.substr(0, begin));
    if (!is_space(base::utf8_step(text.substr(at)).code)) break;
    begin = at;
  }
  return std::max(begin, limit);
}

size_t skip_space_right(std::string_view text, size_t end) {
  while (end < text.size()) {
    const base::Utf8Step step = base::utf8_step(text.substr(end));
    if (!is_space(step.code)) break;
    end += step.length;
  }
  return end;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& content = tokens_[i].content;
    if (content.empty()) continue;
    first_bytes_.set(static_cast<uint8_t>(content[0]));
    uint32_t node = 0;
    for (char c : content) {
      const auto byte = static_cast<uint8_t>(c);
      uint32_t next = child(node, byte);
      if (next == 0) {
        next = static_cast<uint32_t>(nodes_.size());
        nodes_.emplace_back();
        nodes_[node].children.emplace_back(byte, next);
      }
      node = next;
    }
    nodes_[node].token = static_cast<int32_t>(i);
  }
}

uint32_t AddedTokenMatcher::child(uint32_t node, uint8_t byte) const {
  for (const auto& [b, next] : nodes_[node].children)
    if (b == byte) return next;
  return 0;
}

int32_t AddedTokenMatcher::longest_at(std::string_view text, size_t begin) const {
  int32_t found = -1;
  uint32_t node = 0;
  for (size_t at = begin; at < text.size(); ++at) {
    node = child(node, static_cast<uint8_t>(text[at]));
    if (node == 0) break;
    if (nodes_[node].token >= 0) found = nodes_[node].token;
  }
  return found;
}

std::vector<Section> AddedTokenMatcher::split(std::string_view text, bool parse_special) const {
  std::vector<Section> sections;
  size_t done = 0;  // end of the last section
  for (size_t at = 0; at < text.size();) {
    const int32_t index =
        first_bytes_.test(static_cast<uint8_t>(text[at])) ? longest_at(text, at) : -1;
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    size_t begin = at;
    size_t end = at + token.content.size();
    at = end;  // also where the match is not taken: matches do not overlap
    if (token.special && !parse_special) continue;
    if (token.single_word && touches_word(text.substr(0, begin), text.substr(end))) continue;
    if (token.lstrip) begin = skip_space_left(text, begin, std::min(begin, done));
    if (token.rstrip) end = skip_space_right(text, end);
    if (begin > done) sections.push_back({text.substr(done, begin - done), -1});
    sections.push_back({text.substr(begin, end - begin), token.id});
    done = std::max(done, end);
  }
  if (done < text.size()) sections.push_back({text.substr(done), -1});
  return sections;
}

}  // namespace evalrun::engine
