#include "reports/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"

namespace evalrun::reports {

std::string number(const std::optional<double>& v, int decimals) {
  if (!v || !std::isfinite(*v)) return "-";
  // "-0.00" says nothing that "0.00" does not.
  const double rounded = std::round(*v * std::pow(10, decimals)) == 0 ? 0 : *v;
  return fmt::format("{:.{}f}", rounded, decimals);
}

std::string percent(const std::optional<double>& v, int decimals) {
  return v && std::isfinite(*v) ? fmt::format("{} %", number(100 * *v, decimals)) : "-";
}

std::string count(double v) {
  std::string digits = fmt::format("{:.0f}", v);
  for (int at = static_cast<int>(digits.size()) - 3; at > (v < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<size_t>(at), 1, ',');
  return digits;
}

std::string with_interval(const std::optional<double>& v, const std::optional<base::Interval>& i,
                          int64_t n_prompts, int decimals) {
  if (!v || !i) return number(v, decimals);
  return fmt::format("{} [{}, {}]{}", number(v, decimals), number(i->lo, decimals),
                     number(i->hi, decimals), n_prompts < kIndicativeBelow ? "*" : "");
}

size_t display_width(const std::string& s) {
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

// The code point at `at`, which moves behind it; U+FFFD and one byte on where it is not UTF-8.
char32_t next_code_point(std::string_view s, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned first = byte(at++);
  if (first < 0x80) return first;
  const size_t more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
  if (first < 0xC2 || first > 0xF4 || at + more > s.size()) return kReplacement;
  char32_t c = first & (0x3F >> more);
  for (size_t i = 0; i < more; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return kReplacement;
    c = c << 6 | (byte(at + i) & 0x3F);
  }
  constexpr char32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  if (c < kLeast[more] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return kReplacement;
  at += more;
  return c;
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
      return "{[}";  // behind a line break it would be its optional argument
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

namespace {

std::string padded(const std::string& s, size_t width, bool left) {
  const size_t fill = width - std::min(width, display_width(s));
  return left ? fmt::format("{}{:{}}", s, "", fill) : fmt::format("{:{}}{}", "", fill, s);
}

std::vector<size_t> widths_of(const std::vector<std::vector<std::string>>& lines) {
  std::vector<size_t> widths;
  for (const auto& line : lines) {
    EVALRUN_CHECK(widths.empty() || line.size() == widths.size(), "ragged table");
    widths.resize(line.size());
    for (size_t c = 0; c < line.size(); ++c)
      widths[c] = std::max(widths[c], display_width(line[c]));
  }
  return widths;
}

}  // namespace

std::string Table::markdown() const {
  std::vector<std::vector<std::string>> lines = {header};
  lines.insert(lines.end(), rows.begin(), rows.end());
  for (auto& line : lines)
    for (std::string& cell : line) cell = escape_markdown(cell);
  for (size_t c = 0; c < std::min(links.size(), header.size()); ++c)
    if (!links[c].empty()) lines[0][c] = fmt::format("[{}]({})", lines[0][c], links[c]);
  std::vector<size_t> widths = widths_of(lines);
  for (size_t& w : widths) w = std::max<size_t>(w, 3);
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    for (size_t c = 0; c < widths.size(); ++c)
      out += fmt::format("| {} ", padded(lines[i][c], widths[c], is_text(c)));
    out += "|\n";
    if (i > 0) continue;
    for (size_t c = 0; c < widths.size(); ++c)
      out += is_text(c) ? fmt::format("|:{:-<{}}", "", widths[c] + 1)
                        : fmt::format("|{:-<{}}:", "", widths[c] + 1);
    out += "|\n";
  }
  return out;
}

std::string styled(const std::string& text, Style style) {
  const char* codes = style == Style::kGood ? "1;32" : style == Style::kBad ? "1;31" : "1";
  return fmt::format("\033[{}m{}\033[0m", codes, text);
}

std::string Table::text(bool colour) const {
  std::vector<std::vector<std::string>> lines = {header};
  lines.insert(lines.end(), rows.begin(), rows.end());
  const std::vector<size_t> widths = widths_of(lines);
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string row;
    for (size_t c = 0; c < widths.size(); ++c) {
      std::string cell = padded(lines[i][c], widths[c], is_text(c));
      if (const auto style = i > 0 && colour ? styles.find({i - 1, c}) : styles.end();
          style != styles.end())
        cell.replace(cell.find(lines[i][c]), lines[i][c].size(),
                     styled(lines[i][c], style->second));
      row += (c > 0 ? "  " : "") + cell;
    }
    row.erase(row.find_last_not_of(' ') + 1);
    out += row;
    out += '\n';
  }
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
