// Text for a terminal. Where the terminal is narrow, columns of words are wrapped, and columns that
// explain others are left out; nothing is cut short.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "reports/document/escape.h"
#include "reports/document/writers.h"

namespace evalrun::reports {
namespace {

constexpr size_t kGap = 2;              // between columns
constexpr size_t kNarrowestWords = 24;  // a column of words is not wrapped to less

// Lines of at most `width` columns, broken at spaces and after commas; a longer word stays whole.
std::vector<std::string> wrapped(const std::string& text, size_t width) {
  if (width == 0 || display_width(text) <= width) return {text};
  std::vector<std::string> lines(1);
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find_first_of(" ,", at);
    end = end == std::string::npos ? text.size() : end + 1;
    const std::string word = text.substr(at, end - at);
    const std::string_view shown = base::trim(word);
    if (!lines.back().empty() && display_width(lines.back()) + display_width(shown) > width)
      lines.emplace_back();
    lines.back() += word;
    at = end;
  }
  for (std::string& line : lines) line.erase(line.find_last_not_of(' ') + 1);
  return lines;
}

std::string in_style(const std::string& text, Style style) {
  const char* codes = style == Style::kGood   ? "1;32"
                      : style == Style::kBad  ? "1;31"
                      : style == Style::kWarn ? "1;33"
                                              : "1";
  return fmt::format("\033[{}m{}\033[0m", codes, text);
}

// The columns of a table that are shown, and how wide each is.
class TextTable {
 public:
  TextTable(const Table& table, const Layout& layout) : table_(table), layout_(layout) {
    natural_.resize(table.columns.size());
    for (size_t c = 0; c < natural_.size(); ++c) {
      natural_[c] = display_width(table.columns[c].name);
      for (const auto& row : table.rows) {
        EVALRUN_CHECK(row.size() == natural_.size(), "ragged table");
        natural_[c] = std::max(natural_[c], display_width(row[c].plain()));
      }
    }
    shown_.resize(natural_.size());
    std::iota(shown_.begin(), shown_.end(), size_t{0});
    widths_ = natural_;
    fit();
  }

  std::string write() const {
    std::vector<Cell> header;
    for (const Column& column : table_.columns) header.emplace_back(column.name);
    std::string out;
    line(header, out);
    for (size_t r = 0; r < table_.rows.size(); ++r) {
      if (const auto part = table_.parts.find(r);
          part != table_.parts.end() && !part->second.empty())
        for (const std::string& l : wrapped(part->second, layout_.width)) out += l + "\n";
      line(table_.rows[r], out);
    }
    if (!left_out_.empty())
      for (const std::string& l : wrapped(
               fmt::format("(no room for: {}; COLUMNS=0 shows all)", fmt::join(left_out_, ", ")),
               layout_.width))
        out += l + "\n";
    return out;
  }

 private:
  size_t total() const {
    size_t sum = 0;
    for (const size_t c : shown_) sum += widths_[c] + kGap;
    return sum == 0 ? 0 : sum - kGap;
  }

  // Columns are left out, those that explain first and from the right, until the rest fits with its
  // words wrapped as far as they may be; then words get what room there is.
  void fit() {
    if (layout_.width == 0) return;
    for (size_t c = 1; c < widths_.size(); ++c)
      if (table_.columns[c].words) widths_[c] = std::min(natural_[c], kNarrowestWords);
    for (const Room room : {Room::kWide, Room::kPage})
      for (size_t i = shown_.size(); i-- > 0 && total() > layout_.width;)
        if (const Column& column = table_.columns[shown_[i]]; column.room == room) {
          left_out_.insert(left_out_.begin(), column.name);
          shown_.erase(shown_.begin() + static_cast<std::ptrdiff_t>(i));
        }
    for (auto c = shown_.rbegin(); c != shown_.rend() && total() < layout_.width; ++c)
      if (table_.columns[*c].words)
        widths_[*c] = std::min(natural_[*c], widths_[*c] + layout_.width - total());
  }

  void line(const std::vector<Cell>& cells, std::string& out) const {
    std::vector<std::vector<std::string>> lines;  // of each column shown
    size_t height = 1;
    for (const size_t c : shown_) {
      lines.push_back(wrapped(cells[c].plain(), table_.columns[c].words && c > 0 ? widths_[c] : 0));
      height = std::max(height, lines.back().size());
    }
    for (size_t l = 0; l < height; ++l) {
      std::string text;
      for (size_t i = 0; i < shown_.size(); ++i) {
        const size_t c = shown_[i];
        const std::string piece = l < lines[i].size() ? lines[i][l] : "";
        const std::string fill(widths_[c] - std::min(widths_[c], display_width(piece)), ' ');
        const std::string styled = layout_.colour && cells[c].style != Style::kPlain
                                       ? in_style(piece, cells[c].style)
                                       : piece;
        text += (i > 0 ? std::string(kGap, ' ') : "") +
                (table_.columns[c].words ? styled + fill : fill + styled);
      }
      text.erase(text.find_last_not_of(' ') + 1);
      out += text + "\n";
    }
  }

  const Table& table_;
  const Layout& layout_;
  std::vector<size_t> natural_, widths_;
  std::vector<size_t> shown_;
  std::vector<std::string> left_out_;
};

}  // namespace

std::string text_of(const Table& table, const Layout& layout) {
  return TextTable(table, layout).write();
}

std::string write_text(const Document& document, const Layout& layout) {
  std::string out;
  const auto lines = [&](const std::string& text, const std::string& indent) {
    const size_t width = layout.width > indent.size() ? layout.width - indent.size() : 0;
    for (const std::string& line : wrapped(text, width)) out += indent + line + "\n";
  };
  for (const auto& block : document.blocks) {
    if (const Heading* heading = std::get_if<Heading>(&block)) {
      if (!out.empty() && !out.ends_with("\n\n")) out += "\n";
      out += fmt::format("{}\n{:-<{}}\n", heading->text, "", display_width(heading->text));
    } else if (const Paragraph* paragraph = std::get_if<Paragraph>(&block)) {
      lines(paragraph->text, "");
    } else if (const Note* note = std::get_if<Note>(&block)) {
      lines(note->link.empty() ? note->text : fmt::format("{}: {}", note->text, note->link), "  ");
    } else {
      out += text_of(std::get<Table>(block), layout) + "\n";
    }
  }
  return out;
}

}  // namespace evalrun::reports
