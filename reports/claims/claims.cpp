#include "reports/claims/claims.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/base/utf8.h"
#include "reports/claims/csv.h"

namespace evalrun::reports {

namespace {

struct ClaimField {
  const char* name;
  std::string Claim::*text;
  bool in_key;
};
constexpr std::array<ClaimField, 11> kTextColumns = {{
    {"paper", &Claim::paper, true},
    {"place", &Claim::place, true},
    {"model", &Claim::model, true},
    {"dataset", &Claim::dataset, true},
    {"category", &Claim::category, true},
    {"method", &Claim::method, true},
    {"config", &Claim::config, true},
    {"metric", &Claim::metric, true},
    {"unit", &Claim::unit, false},
    {"hardware", &Claim::hardware, true},
    {"note", &Claim::note, false},
}};

const std::vector<std::string>& column_names() {
  static const std::vector<std::string> names = {
      "paper",  "place", "model", "dataset", "category", "method", "config",
      "metric", "value", "sd",    "unit",    "hardware", "note"};
  return names;
}

constexpr const char* kFormat = "docs/claims.md describes the columns";

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  Claims read(std::string_view text) {
    const std::vector<CsvRecord> records = parse_csv(text, file_);
    if (records.empty())
      throw base::data_error(file_, "line 1", "empty, expected a line of column names", kFormat);
    read_header(records.front());
    Claims claims{file_, {}};
    for (size_t i = 1; i < records.size(); ++i) claims.rows.push_back(row(records[i]));
    return claims;
  }

 private:
  [[noreturn]] void fail(size_t line, const std::string& column, const std::string& what,
                         const std::string& hint = kFormat) const {
    throw base::data_error(file_,
                           column.empty() ? fmt::format("line {}", line)
                                          : fmt::format("line {}, column {}", line, column),
                           what, hint);
  }

  void read_header(const CsvRecord& header) {
    for (size_t c = 0; c < header.fields.size(); ++c) {
      const std::string& name = header.fields[c];
      const auto& known = column_names();
      if (std::find(known.begin(), known.end(), name) == known.end())
        fail(header.line, "", fmt::format("unknown column '{}'", name), base::suggest(name, known));
      if (!column_.emplace(name, c).second)
        fail(header.line, name, "named twice", "keep one column of that name");
    }
    for (const std::string& name : column_names())
      if (!column_.contains(name)) fail(header.line, name, "missing", kFormat);
  }

  Claim row(const CsvRecord& record) {
    if (record.fields.size() != column_.size())
      fail(record.line, "",
           fmt::format("{} fields, expected {}", record.fields.size(), column_.size()),
           "quote fields that hold commas; every column needs its comma");
    for (const auto& [name, c] : column_)
      if (!base::utf8_valid(record.fields[c]))
        fail(record.line, name, "not UTF-8", "save it as UTF-8");
    Claim claim;
    claim.line = record.line;
    std::string key;
    for (const ClaimField& column : kTextColumns) {
      claim.*column.text = field(record, column.name);
      if (column.in_key) key += claim.*column.text + '\n';
    }
    for (const auto& [name, text] :
         {std::pair{"paper", &claim.paper}, {"place", &claim.place}, {"metric", &claim.metric}})
      if (text->empty())
        fail(record.line, name, "empty", "name it; only other columns may be empty");
    claim.value_text = field(record, "value");
    claim.value = number(record, "value");
    claim.sd = number(record, "sd");
    if (!claim.config.empty()) claim.flags = base::split(claim.config, ';');
    for (const std::string& piece : base::split(claim.note, ';')) {
      const std::string tag(base::trim(piece));
      for (const char* kind : {"doubt=", "caveat=", "unread=", "unverified="})
        if (tag.starts_with(kind)) claim.tags.push_back(tag);
    }
    const auto [first, added] = lines_.emplace(std::move(key), record.line);
    if (!added)
      fail(record.line, "",
           fmt::format("the same number as line {}: all columns but value, sd, unit and note agree",
                       first->second),
           "remove one of the two, or say in `config` what sets them apart");
    return claim;
  }

  const std::string& field(const CsvRecord& record, const char* name) const {
    return record.fields[column_.at(name)];
  }

  std::optional<double> number(const CsvRecord& record, const char* name) const {
    const std::string& text = field(record, name);
    if (text.empty()) return std::nullopt;
    double value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end || !std::isfinite(value))
      fail(record.line, name, fmt::format("'{}' is not a number", text),
           "plain digits as printed, without unit or thousands separators; empty = not stated");
    return value;
  }

  std::string file_;
  std::map<std::string, size_t> column_;  // name -> place
  std::map<std::string, size_t> lines_;   // key -> line
};

}  // namespace

std::optional<std::string> Claim::option(std::string_view name) const {
  for (const std::string& flag : flags)
    if (flag.size() > name.size() && flag.starts_with(name) && flag[name.size()] == '=')
      return flag.substr(name.size() + 1);
  return std::nullopt;
}

std::optional<int> Claim::number(std::string_view name) const {
  const std::optional<std::string> text = option(name);
  if (!text) return std::nullopt;
  int number = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

bool Claim::measured() const { return !option("stat") && !option("versus"); }

std::string Claim::decoding() const {
  for (const std::string& flag : flags) {
    if (flag == "greedy" || flag == "temperature=0") return "greedy";
    for (const char* sampled : {"temperature=", "top_p=", "top_k=", "nucleus"})
      if (flag.starts_with(sampled)) return "sampled";
  }
  return "";
}

// 3.94 -> 0.005, 5e-5 -> 5e-6, 12 -> 0.5.
double Claim::rounding() const {
  const size_t exponent_at = std::min(value_text.find_first_of("eE"), value_text.size());
  const size_t point = value_text.find('.');
  int exponent = point < exponent_at ? -static_cast<int>(exponent_at - point - 1) : 0;
  if (exponent_at < value_text.size()) {
    int shift = 0;
    const char* begin = value_text.data() + exponent_at + 1;
    std::from_chars(*begin == '+' ? begin + 1 : begin, value_text.data() + value_text.size(),
                    shift);
    exponent += shift;
  }
  return 0.5 * std::pow(10, exponent);
}

std::string Claim::description() const {
  std::string out;
  for (const std::string* part : {&model, &dataset, &category, &method, &config})
    if (!part->empty()) out += (out.empty() ? "" : " ") + *part;
  return out;
}

std::vector<std::string> Claims::papers() const {
  std::vector<std::string> names;
  for (const Claim& claim : rows)
    if (std::find(names.begin(), names.end(), claim.paper) == names.end())
      names.push_back(claim.paper);
  return names;
}

Claims parse_claims(std::string_view text, const std::string& file) {
  return Reader(file).read(text);
}

Claims read_claims(const std::string& path) { return parse_claims(base::read_file(path), path); }

Claims select_papers(const Claims& claims, const std::vector<std::string>& papers) {
  if (papers.empty()) return claims;
  const std::vector<std::string> known = claims.papers();
  for (const std::string& paper : papers)
    if (std::find(known.begin(), known.end(), paper) == known.end())
      throw base::usage_error(fmt::format("--paper: {} has no paper '{}'", claims.file, paper),
                              base::suggest(paper, known));
  Claims selected{claims.file, {}};
  for (const Claim& claim : claims.rows)
    if (std::find(papers.begin(), papers.end(), claim.paper) != papers.end())
      selected.rows.push_back(claim);
  return selected;
}

}  // namespace evalrun::reports
