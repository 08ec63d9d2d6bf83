#include "reports/claims/csv.h"

#include <algorithm>

#include "engine/base/error.h"

namespace evalrun::reports {

namespace {

class CsvParser {
 public:
  CsvParser(std::string_view text, const std::string& file) : text_(text), file_(file) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
  }

  std::vector<CsvRecord> parse() {
    std::vector<CsvRecord> records;
    while (at_ < text_.size()) {
      CsvRecord record{line_, {}};
      do record.fields.push_back(field());
      while (take(","));
      if (at_ < text_.size() && !take_line_end())
        fail(line_, "text after a closing quote", "double the quotes inside a quoted field");
      records.push_back(std::move(record));
    }
    return records;
  }

 private:
  bool take(std::string_view expected) {
    if (!text_.substr(at_).starts_with(expected)) return false;
    at_ += expected.size();
    return true;
  }
  bool take_line_end() {
    if (!take("\n") && !take("\r\n")) return false;
    ++line_;
    return true;
  }

  std::string field() {
    if (take("\"")) return quoted();
    const size_t end = std::min(text_.find_first_of(",\n", at_), text_.size());
    std::string_view plain = text_.substr(at_, end - at_);
    if (end < text_.size() && text_[end] == '\n' && plain.ends_with('\r')) plain.remove_suffix(1);
    if (plain.find_first_of("\"\r") != std::string_view::npos)
      fail(line_, "a quote or a carriage return inside a field without quotes",
           "put the field in quotes and double those inside it");
    at_ += plain.size();
    return std::string(plain);
  }

  std::string quoted() {
    const size_t begun = line_;
    std::string out;
    for (;;) {
      const size_t quote = text_.find('"', at_);
      if (quote == std::string_view::npos)
        fail(begun, "a quoted field is not closed", "add the closing quote");
      const std::string_view part = text_.substr(at_, quote - at_);
      line_ += static_cast<size_t>(std::count(part.begin(), part.end(), '\n'));
      out += part;
      at_ = quote + 1;
      if (!take("\"")) return out;
      out += '"';
    }
  }

  [[noreturn]] void fail(size_t line, const char* what, const char* hint) const {
    throw base::data_error(file_, fmt::format("line {}", line), what, hint);
  }

  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0, line_ = 1;
};

}  // namespace

std::vector<CsvRecord> parse_csv(std::string_view text, const std::string& file) {
  return CsvParser(text, file).parse();
}

}  // namespace evalrun::reports
