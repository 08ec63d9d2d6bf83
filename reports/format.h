// Numbers and tables as text. A Table renders as Markdown or as aligned columns from the same
// cells.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/stats.h"

namespace evalrun::reports {

// "-" for absent values.
std::string number(const std::optional<double>& v, int decimals);
std::string percent(const std::optional<double>& v, int decimals);  // 0.25 -> "25.0 %"
std::string count(double v);                                        // 12345 -> "12,345"
// "1.42 [1.31, 1.54]", a star behind it when the interval is from fewer than kIndicativeBelow
// prompts.
inline constexpr int kIndicativeBelow = 30;
std::string with_interval(const std::optional<double>& v, const std::optional<base::Interval>& i,
                          int64_t n_prompts, int decimals = 2);

// Of a cell on a terminal. kGood and kBad: green and red, and bold for readers without colours.
enum class Style { kBold, kGood, kBad };

struct Table {
  std::vector<std::string> header;             // first column is text, the others are numbers
  std::vector<std::vector<std::string>> rows;  // each as long as the header
  size_t text_to = 1;                          // columns in front of this one are text
  size_t text_from = static_cast<size_t>(-1);  // from this column on they are text again
  std::vector<std::string> links;  // of the header's cells in Markdown; "" or missing = none
  std::map<std::pair<size_t, size_t>, Style> styles;  // of cells, by row and column
  bool is_text(size_t column) const { return column < text_to || column >= text_from; }
  std::string markdown() const;
  // With `colour`, cells in `styles` are wrapped in escape sequences of ECMA-48.
  std::string text(bool colour = false) const;
};
std::string styled(const std::string& text, Style style);

// A cell or a sentence must not end a table cell early or start an emphasis.
std::string escape_markdown(const std::string& s);
// RFC 4180: quoted when needed.
std::string escape_csv(const std::string& s);

// Text of HTML elements and of quoted attributes; bytes that are not UTF-8 become U+FFFD.
std::string escape_html(std::string_view s);
// The same for XML 1.0, without the characters it cannot hold; line ends survive in attributes.
std::string escape_xml(std::string_view s);
// Text of a LaTeX paragraph or table cell, for every engine without further packages: characters
// that pdfLaTeX has no glyph for become [U+4E2D]. Control characters become spaces.
std::string escape_latex(std::string_view s);
// Of a \label: letters and digits as they are, everything else a hyphen.
std::string latex_label(std::string_view name);
// Of a comment: a line break in it would set the rest in the text. Without the percent sign.
std::string latex_comment(std::string text);

// Columns on a terminal that UTF-8 text takes, one per code point.
size_t display_width(const std::string& s);

}  // namespace evalrun::reports
