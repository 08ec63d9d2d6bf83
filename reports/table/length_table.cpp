#include "reports/table/length_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "reports/format.h"

namespace evalrun::reports {

namespace {

using ByBatch = std::map<int64_t, const LengthsAt*>;

// A drafter at the batch sizes it was measured at, by context; all prompts come first.
struct DrafterLengths {
  std::string drafter;
  std::map<std::optional<ContextRange>, ByBatch> at;
};

std::vector<DrafterLengths> drafters_of(const std::vector<const ReportRow*>& rows) {
  std::vector<DrafterLengths> list;
  for (const ReportRow* r : rows) {
    if (!r->batch->lengths) continue;
    const DraftLengths& lengths = *r->batch->lengths;
    auto found = std::find_if(list.begin(), list.end(), [&](const DrafterLengths& of) {
      return of.drafter == lengths.drafter;
    });
    if (found == list.end())
      found = list.insert(list.end(), {.drafter = lengths.drafter, .at = {}});
    for (const LengthsAt& at : lengths.at) found->at[at.context][r->arm.batch] = &at;
  }
  return list;
}

// "4 (1.32)"
Cell length_cell(const std::vector<LengthSpeed>& lengths) {
  const LengthSpeed* best = best_length(lengths);
  if (best == nullptr) return "-";
  return fmt::format("{} ({})", best->k, number(best->speedup.value, 2));
}

std::vector<Cell> length_row(const std::string& context, const std::string& what,
                             const ByBatch& by_batch, const std::set<int64_t>& sizes,
                             std::vector<LengthSpeed> LengthsAt::*of, size_t least) {
  std::vector<Cell> row = {"", context, what};
  for (const int64_t size : sizes) {
    const auto at = by_batch.find(size);
    const bool has = at != by_batch.end() && (at->second->*of).size() >= least;
    row.push_back(has ? length_cell(at->second->*of) : Cell("-"));
  }
  return row;
}

// "2, 4, 8": all that were measured at some batch.
std::string measured_lengths(const DrafterLengths& drafter) {
  std::set<int> lengths;
  for (const auto& [context, by_batch] : drafter.at)
    for (const auto& [size, at] : by_batch)
      for (const LengthSpeed& of : at->measured) lengths.insert(of.k);
  return fmt::format("{}", fmt::join(lengths, ", "));
}

// Best of one length says nothing.
constexpr size_t kLeastMeasured = 2;

bool has_variants(const ByBatch& by_batch) {
  return std::any_of(by_batch.begin(), by_batch.end(),
                     [](const auto& of) { return of.second->measured.size() >= kLeastMeasured; });
}

Table length_table(const std::vector<DrafterLengths>& drafters) {
  Table t{.columns = {{.name = "method", .words = true},
                      {.name = "context", .words = true},
                      {.name = "best k (speedup)", .words = true}}};
  std::set<int64_t> sizes;
  for (const DrafterLengths& drafter : drafters)
    for (const auto& [context, by_batch] : drafter.at)
      for (const auto& [size, at] : by_batch) sizes.insert(size);
  for (const int64_t size : sizes)
    t.columns.push_back(
        {.name = fmt::format("batch {}", size), .link = "docs/measurement.md#batches-in-reports"});
  for (const DrafterLengths& drafter : drafters) {
    if (!t.rows.empty()) t.parts[t.rows.size()] = "";
    for (const auto& [range, by_batch] : drafter.at) {
      const std::string context = range ? range->text() : "all";
      t.rows.push_back(length_row(context, "predicted", by_batch, sizes, &LengthsAt::predicted, 1));
      t.rows.back()[0] = drafter.drafter;
      if (!has_variants(by_batch)) continue;
      t.rows.push_back(length_row(context, "measured, of " + measured_lengths(drafter), by_batch,
                                  sizes, &LengthsAt::measured, kLeastMeasured));
      t.rows.back()[0] = drafter.drafter;
    }
  }
  t.caption =
      "Best draft length k by batch size and context, and its speedup over plain decoding of the "
      "same batch: predicted from stored steps, and measured.";
  return t;
}

// What stands behind the prediction, and what the contexts say.
std::string length_text(const std::vector<DrafterLengths>& drafters, int table_context) {
  const bool resolved = std::any_of(drafters.begin(), drafters.end(),
                                    [](const DrafterLengths& of) { return of.at.size() > 1; });
  const std::string at =
      table_context > 0 ? fmt::format("at {} tokens", table_context) : "at one context";
  std::string text =
      "Best draft length k. predicted: the chain of k tokens with the largest predicted speedup, "
      "from the drafter's longest chains at that batch and T(Bn)/T(B) of the run, without a step "
      "of "
      "that length. measured: the best of the arms of the run that differ in their length alone. "
      "Where a speedup is below 1, plain decoding is faster. ";
  if (resolved)
    text += fmt::format(
        "context: prompts by the mean tokens of context of their steps in plain decoding; "
        "acceptance and the times of measured steps are theirs, while T(Bn)/T(B) was measured {}: "
        "how it changes with the context is not resolved.",
        at);
  else
    text += fmt::format(
        "The context is not resolved: prompts have similar ones, and T(Bn)/T(B) was measured {}.",
        at);
  return text;
}

}  // namespace

void add_draft_lengths(const std::vector<const ReportRow*>& rows, const std::string& dataset,
                       Document& d) {
  const std::vector<DrafterLengths> drafters = drafters_of(rows);
  if (drafters.empty()) return;
  int table_context = 0;
  for (const ReportRow* r : rows)
    if (r->batch->lengths) table_context = r->batch->lengths->table_context;
  Table t = length_table(drafters);
  t.label = dataset + "-draft-lengths";
  d.table(std::move(t));
  d.paragraph(length_text(drafters, table_context));
}

}  // namespace evalrun::reports
