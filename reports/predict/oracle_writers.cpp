#include <fmt/format.h>

#include "reports/format.h"
#include "reports/predict/predict_report.h"

namespace evalrun::reports {
namespace {

constexpr const char* kChoice = "best of them at every step";

std::string bounds(const Bounds& b) {
  if (b.exact()) return fmt::format("= {}", number(b.least, 2));
  if (b.most) return fmt::format("{} to {}", number(b.least, 2), number(b.most, 2));
  return fmt::format(">= {}", number(b.least, 2));
}

Json bounds_json(const Bounds& b) {
  return {{"least", b.least}, {"most", json_value(b.most)}, {"exact", b.exact()}};
}

}  // namespace

void add_oracle(const OracleReport& r, Document& d) {
  Table t{.columns = {{.name = "perfect choice", .words = true},
                      {.name = "tau(+bonus)"},
                      {.name = "perfect tau"},
                      {.name = "rows"},
                      {.name = "rows needed"},
                      {.name = "speedup"},
                      {.name = "perfect speedup"},
                      {.name = "reached"}}};
  for (const OracleRow& row : r.rows)
    t.rows.push_back({row.arm.empty() ? kChoice : row.arm, number(row.tau, 3), bounds(row.best_tau),
                      number(row.rows, 2), number(row.rows_needed, 2), number(row.speedup, 2),
                      bounds(row.best_speedup), percent(row.reached(), 0)});
  t.caption = "What perfect choices would have given along the stored answers.";
  d.table(std::move(t));
  d.paragraph(fmt::format(
      "Over {} answers that all arms share ({} left out). An arm's row: the length of every draft "
      "chosen perfectly, up to the longest measured. Last row: the drafter as well, beside the "
      "fastest arm. Rows needed: those of accepted draft tokens; exact. =: exact. >=: a lower "
      "bound. a to b: bounds of draft tokens that no step compared. Speedups are in modelled "
      "times, the measured steps' as well. reached: speedup over the lower bound.",
      r.answers, r.left_out));
  for (const std::string& note : r.notes) d.note(note);
}

Json oracle_json(const OracleReport& r) {
  Json rows = Json::array();
  for (const OracleRow& row : r.rows)
    rows.push_back({{"method", row.arm.empty() ? Json() : Json(row.arm)},
                    {"n_prompts", row.n_prompts},
                    {"tau", row.tau},
                    {"best_tau", bounds_json(row.best_tau)},
                    {"rows", row.rows},
                    {"rows_needed", row.rows_needed},
                    {"speedup", row.speedup},
                    {"best_speedup", bounds_json(row.best_speedup)},
                    {"reached", row.reached()}});
  return {{"rows", rows}, {"answers", r.answers}, {"left_out", r.left_out}, {"notes", r.notes}};
}

}  // namespace evalrun::reports
