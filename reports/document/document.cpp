#include "reports/document/document.h"

#include <algorithm>

#include "reports/format.h"

namespace evalrun::reports {

const std::vector<std::string>& format_names() {
  static const std::vector<std::string> names = {"text", "md", "csv", "json", "latex", "html"};
  return names;
}

std::optional<Format> format_named(std::string_view name) {
  const std::vector<std::string>& names = format_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Format>(found - names.begin());
}

std::optional<Format> format_of_file(std::string_view file) {
  const size_t dot = file.rfind('.');
  if (dot == std::string_view::npos || dot == 0 || file[dot - 1] == '/') return std::nullopt;
  const std::string_view ending = file.substr(dot + 1);
  if (ending == "txt") return Format::kText;
  if (ending == "tex") return Format::kLatex;
  if (ending == "htm") return Format::kHtml;
  return ending == "text" || ending == "latex" ? std::nullopt : format_named(ending);
}

std::string Cell::plain() const {
  std::string out = text;
  if (!range.empty()) out += " " + range;
  if (indicative) out += "*";
  if (!remark.empty()) out += " (" + remark + ")";
  return out;
}

Cell figure_cell(const std::optional<double>& v, const std::optional<base::Interval>& i,
                 double n_eff, int decimals) {
  Cell cell(number(v, decimals));
  if (!v || !i) return cell;
  cell.range = bracket(*i, decimals);
  cell.indicative = n_eff < kIndicativeBelow;
  return cell;
}

}  // namespace evalrun::reports
