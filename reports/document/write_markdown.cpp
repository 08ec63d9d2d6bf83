#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"
#include "reports/document/escape.h"
#include "reports/document/writers.h"

namespace evalrun::reports {
namespace {

std::string markdown_cell(const std::string& text, size_t width, bool words) {
  const std::string fill(width - display_width(text), ' ');
  return words ? text + fill : fill + text;
}

// Columns are padded, so that the source can be read as well.
std::string markdown_of(const Table& table) {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : table.columns) {
    const std::string name = escape_markdown(column.name);
    lines[0].push_back(column.link.empty() ? name : fmt::format("[{}]({})", name, column.link));
  }
  for (size_t r = 0; r < table.rows.size(); ++r) {
    EVALRUN_CHECK(table.rows[r].size() == table.columns.size(), "ragged table");
    if (const auto part = table.parts.find(r); part != table.parts.end() && !part->second.empty()) {
      lines.emplace_back(table.columns.size());
      lines.back()[0] = fmt::format("*{}*", escape_markdown(part->second));
    }
    lines.emplace_back();
    for (const Cell& cell : table.rows[r]) lines.back().push_back(escape_markdown(cell.plain()));
  }
  std::vector<size_t> widths(table.columns.size(), 3);
  for (const auto& line : lines)
    for (size_t c = 0; c < line.size(); ++c)
      widths[c] = std::max(widths[c], display_width(line[c]));
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    for (size_t c = 0; c < widths.size(); ++c)
      out += fmt::format("| {} ", markdown_cell(lines[i][c], widths[c], table.columns[c].words));
    out += "|\n";
    if (i > 0) continue;
    for (size_t c = 0; c < widths.size(); ++c)
      out += table.columns[c].words ? fmt::format("|:{:-<{}}", "", widths[c] + 1)
                                    : fmt::format("|{:-<{}}:", "", widths[c] + 1);
    out += "|\n";
  }
  return out;
}

}  // namespace

std::string write_markdown(const Document& document) {
  std::string out;
  bool list = false;  // the block before was a note: an empty line ends the list
  for (const auto& block : document.blocks) {
    const Note* note = std::get_if<Note>(&block);
    if (list && note == nullptr) out += "\n";
    list = note != nullptr;
    if (note != nullptr && note->link.empty())
      out += fmt::format("- {}\n", escape_markdown(note->text));
    else if (note != nullptr)
      out += fmt::format("- [{}]({})\n", escape_markdown(note->text), note->link);
    else if (const Heading* heading = std::get_if<Heading>(&block))
      out += fmt::format("### {}\n\n", escape_markdown(heading->text));
    else if (const Paragraph* paragraph = std::get_if<Paragraph>(&block))
      out += escape_markdown(paragraph->text) + "\n\n";
    else
      out += markdown_of(std::get<Table>(block)) + "\n";
  }
  return out;
}

}  // namespace evalrun::reports
