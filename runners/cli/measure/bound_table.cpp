#include "runners/cli/measure/bound_table.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "engine/base/text.h"
#include "runners/cli/output.h"

namespace evalrun::cli {
namespace {

// "1.512 [1.423, 1.611]"; "-" where it is not known.
std::string figure_text(const nlohmann::ordered_json& bound, const std::string& name) {
  if (!bound.contains(name)) return "-";
  const std::string value = fmt::format("{:.3f}", bound[name].get<double>());
  const auto& low = bound[name + "_lo"];
  if (low.is_null()) return value;
  return fmt::format("{} [{:.3f}, {:.3f}]", value, low.get<double>(),
                     bound[name + "_hi"].get<double>());
}

}  // namespace

void print_bounds(const std::vector<nlohmann::ordered_json>& certificates) {
  const std::vector<std::string> head = {"method", "steps",    "tau [95 %]", "at most",
                                         "left",   "kept one", "at most",    "left"};
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> remarks;
  for (const auto& certificate : certificates) {
    if (!certificate.contains("bound")) continue;
    const auto& bound = certificate["bound"];
    const auto method = certificate["arm"]["method"].get<std::string>();
    std::vector<std::string> row = {method, base::with_commas(bound["steps"].get<int64_t>())};
    for (const char* name :
         {"tau", "most_tau", "tau_left", "first_kept", "most_first_kept", "first_kept_left"})
      row.push_back(figure_text(bound, name));
    rows.push_back(std::move(row));
    if (const auto why = bound.value("without_bound", std::string()); !why.empty())
      remarks.push_back(fmt::format("{}: no bound, {}.", method, why));
  }
  if (rows.empty()) return;
  print_line("");
  print_line(aligned_table(head, rows));
  print_line("");
  for (const std::string& remark : remarks) print_line(remark);
  print_line(
      "tau: tokens of a step, the target's own included. Kept one: share of steps that keep a\n"
      "draft token. At most: what no lossless rule of verification passes with the same drafts, "
      "on\n"
      "average; of trees it is known for the first token alone. Left: that less what was kept, on\n"
      "the same steps. Intervals are over prompts.");
}

}  // namespace evalrun::cli
