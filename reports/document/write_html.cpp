// A part of the page: headings of the third level, tables, notes.
#include <fmt/format.h>

#include "engine/base/text.h"
#include "reports/document/escape.h"
#include "reports/document/writers.h"
#include "reports/format.h"

namespace evalrun::reports {
namespace {

// The row's name, which a narrow column may break between the parameters of a method.
std::string breakable(const std::string& label) {
  std::string out;
  for (const std::string& piece : base::split(label, ','))
    out += (out.empty() ? "" : ",<wbr>") + escape_html(piece);
  if (const size_t colon = out.find(':'); colon != out.npos) out.insert(colon + 1, "<wbr>");
  return out;
}

std::string badge(Style style, const std::string& html) {
  const char* kind = style == Style::kGood   ? "good"
                     : style == Style::kWarn ? "warn"
                     : style == Style::kBad  ? "bad"
                                             : "";
  return fmt::format("<span class=\"badge {}\">{}</span>", kind, html);
}

std::string linked(const std::string& metric, const std::string& html) {
  return metric.empty() ? html : fmt::format("<a href=\"#def-{}\">{}</a>", metric, html);
}

std::string html_cell(const Cell& cell, bool names_row) {
  std::string out = names_row ? breakable(cell.text) : escape_html(cell.text);
  if (cell.style != Style::kPlain && cell.style != Style::kBold) out = badge(cell.style, out);
  if (!cell.range.empty())
    out += fmt::format(" <span class=\"range\">{}</span>", escape_html(cell.range));
  if (cell.indicative)
    out += fmt::format("<a href=\"#def-indicative\" title=\"{}\">*</a>", kIndicative);
  for (const Badge& b : cell.badges)
    out += " " + linked(b.metric, badge(b.style, escape_html(b.text)));
  if (!cell.remark.empty())
    out += fmt::format("<br><span class=\"range\">{}</span>", escape_html(cell.remark));
  return out;
}

std::string html_of(const Table& table) {
  std::vector<size_t> shown;
  for (size_t c = 0; c < table.columns.size(); ++c)
    if (table.columns[c].room != Room::kWide) shown.push_back(c);
  const auto words = [&](size_t c) {
    return c > 0 && table.columns[c].words ? " class=\"words\"" : "";
  };
  std::string out = "<div class=\"scroll\"><table class=\"comparison\">\n<thead><tr>";
  for (const size_t c : shown)
    out += fmt::format("<th scope=\"col\"{}>{}</th>", words(c),
                       linked(table.columns[c].metric, escape_html(table.columns[c].name)));
  out += "</tr></thead>\n<tbody>\n";
  for (size_t r = 0; r < table.rows.size(); ++r) {
    if (const auto part = table.parts.find(r); part != table.parts.end() && !part->second.empty())
      out += fmt::format(
          "<tr class=\"part\"><th scope=\"rowgroup\" colspan=\"{}\"><span>{}</span></th></tr>\n",
          shown.size(), escape_html(part->second));
    out += fmt::format("<tr><th scope=\"row\">{}</th>", html_cell(table.rows[r][0], true));
    for (const size_t c : shown)
      if (c > 0) out += fmt::format("<td{}>{}</td>", words(c), html_cell(table.rows[r][c], false));
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

}  // namespace

std::string write_html(const Document& document) {
  std::string out;
  for (const auto& block : document.blocks) {
    if (const Heading* heading = std::get_if<Heading>(&block))
      out += fmt::format("<h3>{}</h3>\n", escape_html(heading->text));
    else if (const Paragraph* paragraph = std::get_if<Paragraph>(&block))
      out += fmt::format("<p class=\"{}\">{}</p>\n", paragraph->is_answer ? "answer" : "note",
                         escape_html(paragraph->text));
    else if (const Note* note = std::get_if<Note>(&block))
      out += fmt::format("<p class=\"note\">{}</p>\n", escape_html(note->text));
    else
      out += html_of(std::get<Table>(block));
  }
  return out;
}

}  // namespace evalrun::reports
