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

// `word` in pieces of at most `width` columns, where no space or comma breaks it.
std::vector<std::string> pieces(const std::string& word, size_t width) {
  std::vector<std::string> found(1);
  for (size_t at = 0; at < word.size();) {
    size_t end = at + 1;
    while (end < word.size() && (static_cast<unsigned char>(word[end]) & 0xC0) == 0x80) ++end;
    const std::string letter = word.substr(at, end - at);
    if (!found.back().empty() && display_width(found.back()) + display_width(letter) > width)
      found.emplace_back();
    found.back() += letter;
    at = end;
  }
  return found;
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
    for (const std::vector<size_t>& panel : panels()) {
      if (!out.empty()) out += "\n";
      line(header, panel, out);
      for (size_t r = 0; r < table_.rows.size(); ++r) {
        if (const auto part = table_.parts.find(r);
            part != table_.parts.end() && !part->second.empty())
          for (const std::string& l : wrapped(part->second, layout_.width)) out += l + "\n";
        line(table_.rows[r], panel, out);
      }
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

  // Columns that go beside each other: all, or as many as fit, the first of the table before each.
  std::vector<std::vector<size_t>> panels() const {
    if (layout_.width == 0 || total() <= layout_.width) return {shown_};
    std::vector<std::vector<size_t>> found;
    size_t width = 0;
    for (size_t i = 1; i < shown_.size(); ++i) {
      const size_t c = shown_[i];
      if (found.empty() || width + kGap + widths_[c] > layout_.width) {
        found.push_back({shown_[0]});
        width = widths_[shown_[0]];
      }
      found.back().push_back(c);
      width += kGap + widths_[c];
    }
    if (found.empty()) found.push_back(shown_);
    return found;
  }

  // From the right, until the rest fits.
  void leave_out(Room room) {
    for (size_t i = shown_.size(); i-- > 0 && total() > layout_.width;)
      if (const Column& column = table_.columns[shown_[i]]; column.room == room) {
        left_out_.insert(left_out_.begin(), column.name);
        shown_.erase(shown_.begin() + static_cast<std::ptrdiff_t>(i));
      }
  }

  // Columns are left out, those that explain first, until the rest fits with its words wrapped as
  // far as they may be; then words get what room there is. What names the rows is wrapped last.
  // Only then spare columns go, unless there are panels in any case, which have room for them.
  void fit() {
    if (layout_.width == 0 || total() <= layout_.width) return;
    // Headers of figures first: two words need not stand on one line.
    for (size_t c = 1; c < widths_.size(); ++c)
      if (!table_.columns[c].words) {
        size_t widest = 0;
        for (const std::string& word : base::split(table_.columns[c].name, ' '))
          widest = std::max(widest, display_width(word));
        for (const auto& row : table_.rows)
          widest = std::max(widest, display_width(row[c].plain()));
        widths_[c] = widest;
      }
    for (size_t c = 1; c < widths_.size(); ++c)
      if (table_.columns[c].words) widths_[c] = std::min(natural_[c], kNarrowestWords);
    leave_out(Room::kWide);
    leave_out(Room::kPage);
    if (total() > layout_.width) {
      if (table_.columns[0].words)
        widths_[0] = std::min(natural_[0], std::min(kNarrowestWords, layout_.width / 3));
      const size_t left = layout_.width - std::min(layout_.width - 1, widths_[0] + kGap);
      for (const size_t c : shown_)
        if (c > 0) widths_[c] = std::min(widths_[c], left);
      const std::vector<size_t> with_spare = shown_;
      const std::vector<std::string> named = left_out_;
      leave_out(Room::kSpare);
      if (total() > layout_.width) shown_ = with_spare, left_out_ = named;
    }
    for (auto c = shown_.rbegin(); c != shown_.rend() && total() < layout_.width; ++c)
      if (table_.columns[*c].words)
        widths_[*c] = std::min(natural_[*c], widths_[*c] + layout_.width - total());
  }

  void line(const std::vector<Cell>& cells, const std::vector<size_t>& panel,
            std::string& out) const {
    std::vector<std::vector<std::string>> lines;  // of each column
    size_t height = 1;
    for (const size_t c : panel) {
      lines.push_back(wrapped(cells[c].plain(), layout_.width == 0 ? 0 : widths_[c]));
      height = std::max(height, lines.back().size());
    }
    for (size_t l = 0; l < height; ++l) {
      std::string text;
      for (size_t i = 0; i < panel.size(); ++i) {
        const size_t c = panel[i];
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
    if (display_width(shown) > width) {
      for (const std::string& piece : pieces(word, width)) {
        if (!lines.back().empty()) lines.emplace_back();
        lines.back() = piece;
      }
    } else {
      lines.back() += word;
    }
    at = end;
  }
  for (std::string& line : lines) line.erase(line.find_last_not_of(' ') + 1);
  return lines;
}

std::string text_of(const Table& table, const Layout& layout) {
  return TextTable(table, layout).write();
}

std::string write_text(const Document& document, const Layout& layout) {
  std::string out;
  bool after_paragraph = false;
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
      if (paragraph->is_answer) out += "\n";
    } else if (const Note* note = std::get_if<Note>(&block)) {
      lines(note->link.empty() ? note->text : fmt::format("{}: {}", note->text, note->link), "  ");
    } else {
      if (after_paragraph && !out.ends_with("\n\n")) out += "\n";
      out += text_of(std::get<Table>(block), layout) + "\n";
    }
    after_paragraph = std::holds_alternative<Paragraph>(block);
  }
  return out;
}

}  // namespace evalrun::reports
