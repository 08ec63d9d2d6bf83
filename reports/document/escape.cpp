#include "reports/document/escape.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "engine/base/utf8.h"

namespace evalrun::reports {

size_t display_width(std::string_view s) {
  return static_cast<size_t>(std::count_if(
      s.begin(), s.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string escape_markdown(const std::string& s) {
  std::string out;
  for (const char c : s) {
    if (c == '|' || c == '*' || c == '_' || c == '`' || c == '<' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

namespace {

constexpr char32_t kReplacement = 0xFFFD;

// The code point at `at`, which moves to the next; U+FFFD where it is not UTF-8.
char32_t next_code_point(std::string_view s, size_t& at) {
  const base::Utf8Step step = base::utf8_step(s.substr(at));
  at += step.length;
  return step.valid ? step.code : kReplacement;
}

// What stands for a character in LaTeX; nothing for one that stands for itself.
std::optional<std::string_view> latex_of(char32_t c) {
  switch (c) {
    case '&':
      return "\\&";
    case '%':
      return "\\%";
    case '$':
      return "\\$";
    case '#':
      return "\\#";
    case '_':
      return "\\_";
    case '{':
      return "\\{";
    case '}':
      return "\\}";
    case '~':
      return "\\textasciitilde{}";
    case '^':
      return "\\textasciicircum{}";
    case '\\':
      return "\\textbackslash{}";
    case '<':
      return "$<$";
    case '>':
      return "$>$";
    case '|':
      return "$|$";
    case '"':
      return "\'\'";
    case '[':
      return "{[}";  // after a line break it would be its optional argument
    case '*':
      return "{*}";  // likewise
    case 0xA0:
      return "~";
    case 0xB0:
      return "$^{\\circ}$";
    case 0xB1:
      return "$\\pm$";
    case 0xB5:
    case 0x3BC:
      return "$\\mu$";
    case 0xB7:
      return "$\\cdot$";
    case 0xD7:
      return "$\\times$";
    case 0x3B1:
      return "$\\alpha$";
    case 0x3C4:
      return "$\\tau$";
    case 0x2013:
      return "--";
    case 0x2014:
      return "---";
    case 0x2018:
      return "`";
    case 0x2019:
      return "\'";
    case 0x201C:
      return "``";
    case 0x201D:
      return "\'\'";
    case 0x2020:
      return "$^{\\dagger}$";
    case 0x2021:
      return "$^{\\ddagger}$";
    case 0x2026:
      return "\\ldots{}";
    case 0x2264:
      return "$\\leq$";
    case 0x2265:
      return "$\\geq$";
    default:
      return std::nullopt;
  }
}

// Accented Latin letters, which every encoding can compose; Icelandic and others need T1.
bool latex_composes(char32_t c) {
  constexpr std::u32string_view kNot = U"\u00D0\u00DE\u00F0\u00FE\u00D7\u00F7";
  return c >= 0xC0 && c <= 0xFF && kNot.find(c) == std::u32string_view::npos;
}

}  // namespace

std::string escape_html(std::string_view s) {
  std::string out;
  for (size_t at = 0; at < s.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(s, at);
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case kReplacement:
        out += "\uFFFD";
        break;
      default:
        out += c == 0 ? std::string_view("\uFFFD") : s.substr(begin, at - begin);
    }
  }
  return out;
}

std::string escape_xml(std::string_view s) {
  std::string out;
  for (size_t at = 0; at < s.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(s, at);
    if (c == '\t' || c == '\n' || c == '\r')
      out += fmt::format("&#{};", static_cast<int>(c));
    else if (c >= 0x20 && c != 0xFFFE && c != 0xFFFF)
      out += escape_html(s.substr(begin, at - begin));
  }
  return out;
}

std::string escape_latex(std::string_view s) {
  std::string out;
  for (size_t at = 0; at < s.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(s, at);
    if (const auto replaced = latex_of(c))
      out += *replaced;
    else if (c < 0x20 || c == 0x7F)
      out += ' ';
    else if (c < 0x80 || latex_composes(c))
      out += s.substr(begin, at - begin);
    else
      out += fmt::format("{{[}}U+{:04X}]", static_cast<uint32_t>(c));
  }
  return out;
}

std::string escape_csv(const std::string& s) {
  if (s.find_first_of(",\"\r\n") == std::string::npos) return s;
  std::string out = "\"";
  for (const char c : s) out.append(c == '"' ? 2 : 1, c);
  out += '"';
  return out;
}

std::string latex_label(std::string_view name) {
  std::string out;
  for (const char c : name)
    out += (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ? c : '-';
  return out;
}

std::string latex_comment(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  return text;
}

}  // namespace evalrun::reports
