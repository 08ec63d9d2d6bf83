#include "engine/tokenizer/jinja/syntax/lexer.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "engine/base/utf8.h"
#include "engine/tokenizer/jinja/values/fault.h"
#include "engine/tokenizer/jinja/values/python_text.h"

namespace evalrun::engine::jinja {
namespace {

using Type = Token::Type;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_hex(char c) { return python::is_ascii_digit(c) || (lower(c) >= 'a' && lower(c) <= 'f'); }

// One kind of line end, and none after the last line.
std::string with_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

// What a literal's escapes stand for. `line` is the literal's.
std::string unescape(std::string_view text, int line) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    const char c = text[++i];  // the lexer saw to it that one follows
    static constexpr std::string_view kNames = "\\'\"abfnrtv", kMeant = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t at = kNames.find(c); at != kNames.npos) {
      out += kMeant[at];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t n = c == 'x' ? 2 : (c == 'u' ? 4 : 8);
      uint32_t code = 0;
      const std::string_view digits = text.substr(i + 1, n);
      const bool whole = digits.size() == n && std::all_of(digits.begin(), digits.end(), is_hex);
      if (whole) std::from_chars(digits.data(), digits.data() + n, code, 16);
      if (!whole || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
        throw Fault(fmt::format("a text holds a bad \\{} escape", c), line);
      base::utf8_append(out, code);
      i += n;
    } else if (c >= '0' && c < '8') {
      uint32_t code = 0;
      size_t n = 0;
      for (; n < 3 && i + n < text.size() && text[i + n] >= '0' && text[i + n] < '8'; ++n)
        code = code * 8 + static_cast<uint32_t>(text[i + n] - '0');
      base::utf8_append(out, code);
      i += n - 1;
    } else if (c == 'N') {
      throw Fault("a text holds a \\N escape, which is not supported", line);
    } else if (c != '\n') {
      (out += '\\') += c;
    }
  }
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_newlines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_data();
    add(Type::kEnd, "");
    return std::move(tokens_);
  }

 private:
  bool is_at(std::string_view text, size_t at) const {
    return std::string_view(source_).substr(at).starts_with(text);
  }
  char at(size_t i) const { return i < source_.size() ? source_[i] : '\0'; }
  // The line of a place; places are asked for in rising order.
  int line_of(size_t place) {
    for (; counted_ < place; ++counted_) line_ += source_[counted_] == '\n' ? 1 : 0;
    return line_;
  }
  [[noreturn]] void fail(const std::string& why, size_t place) {
    throw Fault(why, line_of(std::min(place, source_.size())));
  }
  void add(Type type, std::string text) {
    tokens_.push_back({type, line_of(at_), std::move(text), 0, 0});
  }
  size_t skip_blanks(size_t place) const {
    while (place < source_.size() && is_blank(source_[place])) ++place;
    return place;
  }

  // Text up to the next tag, the tag's opening, and what is inside of it.
  void read_data() {
    size_t open = at_;
    while (open + 1 < source_.size() &&
           !(source_[open] == '{' &&
             (source_[open + 1] == '{' || source_[open + 1] == '%' || source_[open + 1] == '#')))
      ++open;
    if (open + 1 >= source_.size()) {
      add(Type::kData, source_.substr(at_));
      at_ = source_.size();
      return;
    }
    const char kind = source_[open + 1];
    const char sign = at(open + 2) == '-' || at(open + 2) == '+' ? at(open + 2) : '\0';
    add_data(at_, open, sign, kind != '{');
    at_ = open;
    const size_t inside = open + 2 + (sign != '\0' ? 1 : 0);
    if (kind == '#') {
      skip_comment(inside);
      return;
    }
    if (kind == '%' && read_raw(inside)) return;
    add(kind == '{' ? Type::kVariableBegin : Type::kBlockBegin, "");
    at_ = inside;
    read_tag(kind == '%');
  }

  void add_data(size_t begin, size_t end, char sign, bool lstrips) {
    std::string_view text = std::string_view(source_).substr(begin, end - begin);
    if (sign == '-') {
      text = python::strip(text, python::Side::kRight);
    } else if (sign != '+' && lstrips) {
      const size_t line = text.rfind('\n') + 1;  // npos + 1 = 0
      const std::string_view blanks = text.substr(line);
      if ((line > 0 || line_starting_) && python::strip(blanks).empty())
        text = text.substr(0, line);
    }
    if (!text.empty()) add(Type::kData, std::string(text));
  }

  // The length of a closing at `place`, and of the white space that goes with it; 0 = none.
  size_t closing(size_t place, std::string_view bracket, bool trims) const {
    if (is_at(bracket, place))
      return bracket.size() + (trims && at(place + bracket.size()) == '\n' ? 1 : 0);
    if (at(place) == '-' && is_at(bracket, place + 1)) {
      const std::string_view rest = std::string_view(source_).substr(place + 1 + bracket.size());
      return 1 + bracket.size() + rest.size() - python::strip(rest, python::Side::kLeft).size();
    }
    if (trims && at(place) == '+' && is_at(bracket, place + 1)) return 1 + bracket.size();
    return 0;
  }
  void leave(size_t place, size_t n) {
    at_ = place + n;
    line_starting_ = n > 0 && source_[at_ - 1] == '\n';
  }

  void skip_comment(size_t inside) {
    for (size_t place = inside; place < source_.size(); ++place)
      if (const size_t n = closing(place, "#}", true)) {
        leave(place, n);
        return;
      }
    fail("a comment has no end", at_);
  }

  // {% raw %}: text until {% endraw %}, whatever it holds.
  bool read_raw(size_t inside) {
    size_t place = skip_blanks(inside);
    if (!is_at("raw", place)) return false;
    place = skip_blanks(place + 3);
    const size_t n = closing(place, "%}", false);
    if (n == 0) return false;
    line_starting_ = source_[place + n - 1] == '\n';
    const size_t begin = place + n;
    for (size_t open = begin; open + 1 < source_.size(); ++open) {
      if (!is_at("{%", open)) continue;
      const char sign = at(open + 2) == '-' || at(open + 2) == '+' ? at(open + 2) : '\0';
      size_t end = skip_blanks(open + 2 + (sign != '\0' ? 1 : 0));
      if (!is_at("endraw", end)) continue;
      end = skip_blanks(end + 6);
      if (const size_t closes = closing(end, "%}", true)) {
        add_data(begin, open, sign, true);
        leave(end, closes);
        return true;
      }
    }
    fail("a raw block has no end", at_);
  }

  void read_tag(bool block) {
    std::vector<char> brackets;
    while (at_ < source_.size()) {
      if (brackets.empty())
        if (const size_t n = closing(at_, block ? "%}" : "}}", block)) {
          add(block ? Type::kBlockEnd : Type::kVariableEnd, "");
          leave(at_, n);
          return;
        }
      const char c = source_[at_];
      if (is_blank(c))
        ++at_;
      else if (python::is_ascii_digit(c))
        read_number();
      else if (is_letter(c))
        read_name();
      else if (c == '\'' || c == '"')
        read_text(c);
      else
        read_operator(brackets);
    }
  }

  void read_name() {
    size_t end = at_;
    while (is_letter(at(end)) || python::is_ascii_digit(at(end))) ++end;
    add(Type::kName, source_.substr(at_, end - at_));
    at_ = end;
  }

  void read_text(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("a text has no end", at_);
    const int line = line_of(at_);
    add(Type::kText, unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1), line));
    at_ = end + 1;
  }

  // Digits of a base, with single "_" between them. Gives the place after them.
  template <typename Digit>
  size_t skip_digits(size_t place, Digit digit) const {
    while (digit(at(place)) || (at(place) == '_' && digit(at(place + 1)))) ++place;
    return place;
  }

  void read_number() {
    const size_t end = skip_digits(at_, python::is_ascii_digit);
    size_t real_end = end;
    if (at(end) == '.' && python::is_ascii_digit(at(end + 1)))
      real_end = skip_digits(end + 1, python::is_ascii_digit);
    if (lower(at(real_end)) == 'e') {
      const size_t sign = at(real_end + 1) == '+' || at(real_end + 1) == '-' ? 1 : 0;
      if (python::is_ascii_digit(at(real_end + 1 + sign)))
        real_end = skip_digits(real_end + 1 + sign, python::is_ascii_digit);
    }
    // After a dot (messages.0.1) digits are an index.
    if (real_end > end && (at_ == 0 || source_[at_ - 1] != '.')) {
      add_number(Type::kFloat, real_end, 10, 0);
      return;
    }
    if (source_[at_] == '0' &&
        std::string_view("box").find(lower(at(at_ + 1))) != std::string_view::npos &&
        at(at_ + 1) != '\0') {
      const int base = lower(at(at_ + 1)) == 'x' ? 16 : (lower(at(at_ + 1)) == 'o' ? 8 : 2);
      const size_t stop = skip_digits(
          at_ + 2, [base](char c) { return base == 16 ? is_hex(c) : c >= '0' && c < '0' + base; });
      if (stop > at_ + 2) {
        add_number(Type::kInteger, stop, base, 2);
        return;
      }
    }
    // A number that begins with 0 has no further digits but zeros.
    const bool zero = source_[at_] == '0';
    add_number(Type::kInteger, zero ? skip_digits(at_, [](char c) { return c == '0'; }) : end, 10,
               0);
  }

  void add_number(Type type, size_t end, int base, size_t skip) {
    std::string digits = source_.substr(at_ + skip, end - at_ - skip);
    std::erase(digits, '_');
    Token token{type, line_of(at_), source_.substr(at_, end - at_), 0, 0};
    const char* last = digits.data() + digits.size();
    if (type == Type::kFloat) {
      if (std::from_chars(digits.data(), last, token.number).ec != std::errc())
        fail(fmt::format("the number {} is out of range", token.text), at_);
    } else if (std::from_chars(digits.data(), last, token.integer, base).ec != std::errc()) {
      fail(fmt::format("the number {} does not fit 64 bits", token.text), at_);
    }
    tokens_.push_back(std::move(token));
    at_ = end;
  }

  void read_operator(std::vector<char>& brackets) {
    static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
    std::string text(1, source_[at_]);
    for (const std::string_view two : kTwo)
      if (is_at(two, at_)) text = two;
    if (text.size() == 1 && kOne.find(text[0]) == std::string_view::npos)
      fail(text[0] > ' ' && text[0] < '\x7f'
               ? fmt::format("unexpected character '{}'", text)
               : std::string("unexpected character outside of a text"),
           at_);
    const char c = text[0];
    if (c == '(' || c == '[' || c == '{')
      brackets.push_back(c == '(' ? ')' : (c == '[' ? ']' : '}'));
    if (c == ')' || c == ']' || c == '}') {
      if (brackets.empty() || brackets.back() != c) fail(fmt::format("unexpected '{}'", c), at_);
      brackets.pop_back();
    }
    add(Type::kOperator, text);
    at_ += text.size();
  }

  std::string source_;
  size_t at_ = 0, counted_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace evalrun::engine::jinja
