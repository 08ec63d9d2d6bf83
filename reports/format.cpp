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
  std::vector<size_t> widths = widths_of(lines);
  for (size_t& w : widths) w = std::max<size_t>(w, 3);
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    for (size_t c = 0; c < widths.size(); ++c)
      out += fmt::format("| {} ", padded(lines[i][c], widths[c], c == 0));
    out += "|\n";
    if (i > 0) continue;
    for (size_t c = 0; c < widths.size(); ++c)
      out += c == 0 ? fmt::format("|:{:-<{}}", "", widths[c] + 1)
                    : fmt::format("|{:-<{}}:", "", widths[c] + 1);
    out += "|\n";
  }
  return out;
}

std::string Table::text() const {
  std::vector<std::vector<std::string>> lines = {header};
  lines.insert(lines.end(), rows.begin(), rows.end());
  const std::vector<size_t> widths = widths_of(lines);
  std::string out;
  for (const auto& line : lines) {
    std::string row;
    for (size_t c = 0; c < widths.size(); ++c)
      row += fmt::format("{}{}", c > 0 ? "  " : "", padded(line[c], widths[c], c == 0));
    row.erase(row.find_last_not_of(' ') + 1);
    out += row;
    out += '\n';
  }
  return out;
}

}  // namespace evalrun::reports
