#include "engine/tokenizer/jinja/values/python_text.h"

#include <fmt/format.h>
#include <string.h>
#include <utf8proc.h>

#include <algorithm>

#include "engine/base/utf8.h"

namespace evalrun::engine::python {
namespace {

struct Character {
  std::string_view bytes;
  char32_t code;
};

Character first_of(std::string_view text) {
  const base::Utf8Step step = base::utf8_step(text);
  return {text.substr(0, step.length), step.valid ? step.code : char32_t{0xFFFD}};
}

// The last character: a step back to what may be its first byte.
Character last_of(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(4, text.size()); ++back) {
    const std::string_view tail = text.substr(text.size() - back);
    const base::Utf8Step step = base::utf8_step(tail);
    if (step.valid && step.length == back) return {tail, step.code};
  }
  return {text.substr(text.size() - 1), 0xFFFD};
}

template <typename Strips>
std::string_view strip_if(std::string_view text, Side side, Strips strips) {
  while (side != Side::kRight && !text.empty()) {
    const Character c = first_of(text);
    if (!strips(c)) break;
    text.remove_prefix(c.bytes.size());
  }
  while (side != Side::kLeft && !text.empty()) {
    const Character c = last_of(text);
    if (!strips(c)) break;
    text.remove_suffix(c.bytes.size());
  }
  return text;
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool is_cased_letter(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT;
}

bool is_letter(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return is_cased_letter(c) || category == UTF8PROC_CATEGORY_LM || category == UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND || c == 0xB2 ||
         c == 0xB3 || c == 0xB9 || (c >= 0x2070 && c <= 0x2089 && c != 0x2071);
}

bool is_printable(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

char32_t to_upper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
char32_t to_lower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

void append_upper(std::string& out, const Character& c) {
  constexpr char32_t kSharpS = 0xDF;  // the one letter in common use whose capital is two
  if (c.code == kSharpS)
    out += "SS";
  else if (const char32_t upper = to_upper(c.code); upper != c.code)
    base::utf8_append(out, upper);
  else
    out += c.bytes;
}
void append_lower(std::string& out, const Character& c) {
  if (const char32_t lower = to_lower(c.code); lower != c.code)
    base::utf8_append(out, lower);
  else
    out += c.bytes;
}

template <typename Visit>
void each(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const Character c = first_of(text);
    visit(c);
    text.remove_prefix(c.bytes.size());
  }
}

}  // namespace

int64_t length(std::string_view text) {
  int64_t n = 0;
  each(text, [&](const Character&) { ++n; });
  return n;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  each(text, [&](const Character& c) { all.push_back(c.bytes); });
  return all;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

std::string_view strip(std::string_view text, Side side) {
  return strip_if(text, side, [](const Character& c) { return is_space(c.code); });
}

std::string_view strip(std::string_view text, std::string_view set, Side side) {
  const std::vector<std::string_view> all = characters(set);
  return strip_if(text, side, [&](const Character& c) {
    return std::find(all.begin(), all.end(), c.bytes) != all.end();
  });
}

std::vector<std::string_view> split(std::string_view text, int64_t max) {
  std::vector<std::string_view> parts;
  text = strip(text, Side::kLeft);
  while (!text.empty()) {
    if (max >= 0 && static_cast<int64_t>(parts.size()) == max) {
      parts.push_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      const Character c = first_of(text.substr(end));
      if (is_space(c.code)) break;
      end += c.bytes.size();
    }
    parts.push_back(text.substr(0, end));
    text = strip(text.substr(end), Side::kLeft);
  }
  return parts;
}

std::vector<std::string_view> split_right(std::string_view text, int64_t max) {
  if (max < 0) return split(text, max);
  std::vector<std::string_view> parts;
  text = strip(text, Side::kRight);
  while (!text.empty()) {
    if (static_cast<int64_t>(parts.size()) == max) {
      parts.push_back(text);
      break;
    }
    size_t begin = text.size();
    while (begin > 0) {
      const Character c = last_of(text.substr(0, begin));
      if (is_space(c.code)) break;
      begin -= c.bytes.size();
    }
    parts.push_back(text.substr(begin));
    text = strip(text.substr(0, begin), Side::kRight);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

size_t find(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  const void* at = ::memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return at == nullptr ? std::string_view::npos
                       : static_cast<size_t>(static_cast<const char*>(at) - text.data());
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    int64_t max) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  while (max < 0 || static_cast<int64_t>(parts.size()) < max) {
    const size_t at = find(text, separator, begin);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(begin, at - begin));
    begin = at + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<std::string_view> split_right(std::string_view text, std::string_view separator,
                                          int64_t max) {
  if (max < 0) return split(text, separator, max);
  std::vector<std::string_view> parts;
  while (static_cast<int64_t>(parts.size()) < max) {
    const size_t at = text.rfind(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Character c = first_of(text.substr(at));
    size_t next = at + c.bytes.size();
    if (is_line_end(c.code)) {
      if (c.code == '\r' && next < text.size() && text[next] == '\n') ++next;
      lines.push_back(text.substr(begin, (keep_ends ? next : at) - begin));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t max) {
  std::string out;
  if (from.empty()) {  // before every character, and after the last
    int64_t n = 0;
    const auto insert = [&] {
      if (max < 0 || n++ < max) out += to;
    };
    each(text, [&](const Character& c) {
      insert();
      out += c.bytes;
    });
    insert();
    return out;
  }
  size_t begin = 0;
  for (int64_t n = 0; max < 0 || n < max; ++n) {
    const size_t at = find(text, from, begin);
    if (at == std::string_view::npos) break;
    out += text.substr(begin, at - begin);
    out += to;
    begin = at + from.size();
  }
  return out += text.substr(begin);
}

std::string upper(std::string_view text) {
  std::string out;
  each(text, [&](const Character& c) { append_upper(out, c); });
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  each(text, [&](const Character& c) { append_lower(out, c); });
  return out;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  const Character c = first_of(text);
  std::string first;
  base::utf8_append(first,
                    static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c.code))));
  return first + lower(text.substr(c.bytes.size()));
}

std::string title(std::string_view text) {
  std::string out;
  bool in_word = false;
  each(text, [&](const Character& c) {
    const bool letter = is_cased_letter(c.code);
    if (letter && !in_word)
      append_upper(out, c);
    else
      append_lower(out, c);
    in_word = letter;
  });
  return out;
}

bool is_all(std::string_view text, Class what) {
  bool all = !text.empty(), any_cased = false;
  each(text, [&](const Character& c) {
    switch (what) {
      case Class::kAlpha:
        all = all && is_letter(c.code);
        break;
      case Class::kDigit:
        all = all && is_digit(c.code);
        break;
      case Class::kAlnum:
        all = all && (is_letter(c.code) || is_digit(c.code));
        break;
      case Class::kSpace:
        all = all && is_space(c.code);
        break;
      case Class::kUpper:
        any_cased = any_cased || is_cased_letter(c.code);
        all = all && (!is_cased_letter(c.code) || to_lower(c.code) != c.code);
        break;
      case Class::kLower:
        any_cased = any_cased || is_cased_letter(c.code);
        all = all && (!is_cased_letter(c.code) || to_lower(c.code) == c.code);
        break;
    }
  });
  return all && (any_cased || (what != Class::kUpper && what != Class::kLower));
}

std::string quoted(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  each(text, [&](const Character& c) {
    if (c.code == static_cast<unsigned char>(quote) || c.code == '\\')
      (out += '\\') += static_cast<char>(c.code);
    else if (c.code == '\n')
      out += "\\n";
    else if (c.code == '\r')
      out += "\\r";
    else if (c.code == '\t')
      out += "\\t";
    else if (is_printable(c.code))
      out += c.bytes;
    else if (c.code < 0x100)
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c.code));
    else if (c.code < 0x10000)
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c.code));
    else
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c.code));
  });
  return out += quote;
}

}  // namespace evalrun::engine::python
