// Tables (booktabs) to be pasted into a paper. Text beside them becomes comments, which say what
// was measured without being set.
#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"
#include "reports/document/escape.h"
#include "reports/document/writers.h"

namespace evalrun::reports {
namespace {

// More columns with intervals than this: the intervals go into a line of their own.
constexpr size_t kRangesBeside = 2;
constexpr size_t kLongWords = 40;  // characters; longer cells are set as paragraphs

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// A figure or word; a percent sign close to its figure.
std::string latex_text(const std::string& text) {
  if (text == "-") return "--";
  std::string out = escape_latex(text);
  replace_all(out, " \\%", "\\,\\%");
  return out;
}

// May be broken after a comma: a method with many parameters has no space.
std::string breakable_latex(const std::string& latex) {
  std::string out;
  for (size_t i = 0; i < latex.size(); ++i) {
    out += latex[i];
    const bool is_thin_space = i > 0 && latex[i - 1] == '\\';
    if (latex[i] == ',' && !is_thin_space) out += "\\allowbreak{}";
  }
  return out;
}

// Metrics as papers write them.
std::string latex_header(const std::string& name) {
  std::string out = latex_text(name);
  replace_all(out, "tau(+bonus)", "$\\tau$ (+bonus)");
  replace_all(out, "= tau", "= $\\tau$");
  for (const char* index : {"draft", "share", "cond"})
    replace_all(out, fmt::format("alpha\\_{}", index),
                fmt::format("$\\alpha_{{\\mathrm{{{}}}}}$", index));
  return out;
}

std::string range_text(const Cell& cell) {
  return escape_latex(cell.range) + (cell.indicative ? "$^{*}$" : "");
}

class LatexTable {
 public:
  LatexTable(const Table& table, std::string& out) : table_(table), out_(out) {
    for (size_t c = 0; c < table.columns.size(); ++c) {
      if (table.columns[c].room == Room::kPage || table.columns[c].room == Room::kWide) continue;
      shown_.push_back(c);
      ranges_.push_back(std::any_of(table.rows.begin(), table.rows.end(),
                                    [&](const auto& row) { return !row[c].range.empty(); }));
      n_ranges_ += ranges_.back() ? 1 : 0;
    }
    beside_ = n_ranges_ <= kRangesBeside;
  }

  void write(const std::string& caption, const std::string& label) {
    line("");
    line("\\begin{table}");
    line("  \\centering");
    line(fmt::format("  \\caption{{{}}}", escape_latex(caption)));
    line(fmt::format("  \\label{{tab:evalrun-{}}}", latex_label(label)));
    line(shown_.size() > 7 ? "  \\scriptsize\\setlength{\\tabcolsep}{3pt}"
                           : "  \\footnotesize\\setlength{\\tabcolsep}{4pt}");
    begin();
    for (size_t r = 0; r < table_.rows.size(); ++r) {
      part(r);
      row(table_.rows[r]);
    }
    line("    \\bottomrule");
    line("  \\end{tabular}");
    line("\\end{table}");
  }

 private:
  void line(const std::string& text) { out_ += text + "\n"; }
  bool splits(size_t i) const { return beside_ && ranges_[i]; }
  size_t n_cells() const { return shown_.size() + (beside_ ? n_ranges_ : 0); }

  void begin() {
    std::string columns, header;
    for (size_t i = 0; i < shown_.size(); ++i) {
      const Column& column = table_.columns[shown_[i]];
      const bool is_long = std::any_of(
          table_.rows.begin(), table_.rows.end(),
          [&](const auto& row) { return display_width(row[shown_[i]].text) > kLongWords; });
      paragraph_.push_back(!splits(i) && is_long && column.words);
      columns += splits(i)           ? "r@{ }l"
                 : !column.words     ? "r"
                 : paragraph_.back() ? "p{0.3\\textwidth}"
                                     : "l";
      const std::string name = latex_header(column.name);
      header += (i > 0 ? " & " : "") +
                (splits(i) ? fmt::format("\\multicolumn{{2}}{{c}}{{{}}}", name) : name);
    }
    line(fmt::format("  \\begin{{tabular}}{{{}}}", columns));
    line("    \\toprule");
    line(fmt::format("    {} \\\\", header));
  }

  void part(size_t r) {
    const auto part = table_.parts.find(r);
    if (r == 0 || part != table_.parts.end()) line("    \\midrule");
    if (part != table_.parts.end() && !part->second.empty())
      line(fmt::format("    \\multicolumn{{{}}}{{l}}{{\\emph{{{}}}}} \\\\", n_cells(),
                       escape_latex(part->second)));
  }

  void row(const std::vector<Cell>& cells) {
    EVALRUN_CHECK(cells.size() == table_.columns.size(), "ragged table");
    std::string figures, below;
    bool any = false;
    for (size_t i = 0; i < shown_.size(); ++i) {
      const Cell& cell = cells[shown_[i]];
      const std::string text = latex_text(cell.text);
      figures += (i > 0 ? " & " : "") + (paragraph_[i] ? breakable_latex(text) : text);
      if (splits(i)) figures += " & " + range_text(cell);
      below += i > 0 ? " & " : "";
      if (beside_ || cell.range.empty()) continue;
      below += fmt::format("{{\\scriptsize {}}}", range_text(cell));
      any = true;
    }
    line(fmt::format("    {} \\\\", figures));
    if (any) line(fmt::format("    {} \\\\", below));
  }

  const Table& table_;
  std::string& out_;
  std::vector<size_t> shown_;
  std::vector<bool> ranges_, paragraph_;  // by place among the columns shown
  size_t n_ranges_ = 0;
  bool beside_ = true;
};

}  // namespace

std::string write_latex(const Document& document) {
  std::string out;
  const auto comment = [&](const std::string& text) { out += "% " + latex_comment(text) + "\n"; };
  comment("Needs \\usepackage{booktabs}. In a paper of two columns, write table* for table.");
  std::string heading = document.name;
  int n = 0;
  for (const auto& block : document.blocks) {
    if (const Heading* h = std::get_if<Heading>(&block)) {
      heading = h->text;
    } else if (const Paragraph* paragraph = std::get_if<Paragraph>(&block)) {
      comment(paragraph->text);
    } else if (const Note* note = std::get_if<Note>(&block)) {
      comment(note->link.empty() ? note->text : fmt::format("{}: {}", note->text, note->link));
    } else {
      const Table& table = std::get<Table>(block);
      ++n;
      LatexTable(table, out)
          .write(table.caption.empty() ? heading : table.caption,
                 !table.label.empty() ? table.label : fmt::format("{}-{}", document.name, n));
    }
  }
  return out;
}

}  // namespace evalrun::reports
