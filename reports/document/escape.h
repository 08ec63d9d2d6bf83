// Text made safe for the formats that a Document is written in.
#pragma once
#include <string>
#include <string_view>

namespace evalrun::reports {

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
size_t display_width(std::string_view s);

}  // namespace evalrun::reports
