// A report without its format. Every report builds one Document (and its JSON, whose keys are
// promised); the writers of this folder turn any Document into text, Markdown, CSV, LaTeX or HTML.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/stats.h"

namespace evalrun::reports {

enum class Format { kText, kMarkdown, kCsv, kJson, kLatex, kHtml };
// The names on the command line, in the order of the enum: text, md, csv, json, latex, html.
const std::vector<std::string>& format_names();
std::optional<Format> format_named(std::string_view name);
// By the ending of a file's name: .txt, .md, .csv, .json, .tex, .html or .htm.
std::optional<Format> format_of_file(std::string_view file);

// kGood and kBad: green and red on a terminal, and bold for readers without colours.
enum class Style { kPlain, kBold, kGood, kWarn, kBad };

// A word beside a cell, on the page only; it links to the definition of `metric` ("" = no link).
struct Badge {
  std::string text;
  Style style = Style::kPlain;
  std::string metric = {};
};

struct Cell {
  Cell(std::string t, Style s = Style::kPlain) : text(std::move(t)), style(s) {}  // NOLINT
  Cell(const char* t) : text(t) {}                                                // NOLINT
  std::string text;
  std::string range = {};   // "[1.31, 1.54]", after the figure
  bool indicative = false;  // a star after the range: it is from few prompts
  std::string remark = {};  // in brackets after all that; not in LaTeX, where there is no room
  Style style = Style::kPlain;
  std::vector<Badge> badges = {};
  std::string plain() const;  // all but the badges: "1.42 [1.31, 1.54]* (n=40)"
};
// "-" for an absent value. n_eff: as with_interval().
Cell figure_cell(const std::optional<double>& v, const std::optional<base::Interval>& i,
                 double n_eff, int decimals);

// Where a column is shown: everywhere; everywhere but in narrow text; not in LaTeX, whose page is
// narrow; neither there nor in HTML. Text leaves out kWide columns, then kPage ones, from the
// right, where the line is too long. It leaves out kSpare ones last, and only where the rest then
// fits.
enum class Room { kAlways, kSpare, kPage, kWide };

struct Column {
  std::string name;
  bool words = false;  // left-aligned, may be wrapped; others are figures, right-aligned
  Room room = Room::kAlways;
  std::string metric = {};  // of the page's list of definitions
  std::string link = {};    // of the header in Markdown
};

struct Table {
  std::vector<Column> columns;  // the first one names the row
  std::vector<std::vector<Cell>> rows = {};
  std::map<size_t, std::string> parts = {};  // title over a row; "" = a line over it, in LaTeX
  std::string caption = {}, label = {};      // of LaTeX; without: the heading's
};

struct Heading {
  std::string text;
};
struct Paragraph {
  std::string text;
  bool is_answer = false;  // the answer: an empty line after it in text, larger on the page
};
// One of a list of remarks.
struct Note {
  std::string text;
  std::string link = {};  // "" = none; Markdown only
};

struct Document {
  std::string name = {};  // "compare": of LaTeX labels
  std::vector<std::variant<Heading, Paragraph, Note, Table>> blocks = {};
  // For programs, in full precision: what CSV holds. Without: the tables, an empty line between.
  std::optional<Table> data = {};

  void heading(std::string text) { blocks.emplace_back(Heading{std::move(text)}); }
  void paragraph(std::string text, bool is_answer = false) {
    blocks.emplace_back(Paragraph{std::move(text), is_answer});
  }
  void note(std::string text, std::string link = {}) {
    blocks.emplace_back(Note{std::move(text), std::move(link)});
  }
  void table(Table table) { blocks.emplace_back(std::move(table)); }
};

struct Layout {
  size_t width = 0;     // columns of the terminal; 0 = lines may be of any length
  bool colour = false;  // escape sequences of ECMA-48
};

// Any format but JSON. HTML is a part of a page. `layout` is of text. Ends with a line break.
std::string render(const Document& document, Format format, const Layout& layout = {});
std::string text_of(const Table& table, const Layout& layout = {});
// Lines of at most `width` columns, broken at spaces and after commas, and else where they must be.
// 0 = of any length.
std::vector<std::string> wrapped(const std::string& text, size_t width);

// A report in any format: `document` and `to_json` are found by its type.
template <typename Report>
std::string rendered(const Report& report, Format format, const Layout& layout = {}) {
  if (format == Format::kJson) return to_json(report);
  return render(document(report), format, layout);
}

}  // namespace evalrun::reports
