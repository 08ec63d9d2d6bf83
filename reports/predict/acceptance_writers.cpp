#include <fmt/format.h>

#include <algorithm>

#include "reports/format.h"
#include "reports/predict/predict_report.h"

namespace evalrun::reports {
namespace {

std::optional<double> tau_of(const AnswerPart& p) {
  return p.steps > 0 ? std::optional(p.emitted / p.steps) : std::nullopt;
}

Table parts_table(const std::vector<ArmAcceptance>& arms) {
  Table t{.columns = {{.name = "along the answer", .words = true}, {.name = "prompts"}}};
  for (const char* part : {"first quarter", "second", "third", "last quarter"})
    t.columns.push_back({.name = part});
  for (const ArmAcceptance& a : arms) {
    std::vector<Cell> row = {a.arm, fmt::format("{}", a.n_prompts)};
    for (const AnswerPart& p : a.parts)
      row.emplace_back(
          p.steps > 0 ? fmt::format("{} ({})", number(tau_of(p), 2), number(p.tokens.share(), 2))
                      : "-");
    t.rows.push_back(std::move(row));
  }
  t.caption = "tau (and accepted share of the draft tokens that were decided on) along the answer.";
  return t;
}

Table depths_table(const ArmAcceptance& a) {
  Table t{.columns = {{.name = fmt::format("{}: depth", a.arm), .words = true},
                      {.name = "steps there"},
                      {.name = "accepted"},
                      {.name = "refused"},
                      {.name = "not drafted"},
                      {.name = "cut"},
                      {.name = "alpha_cond"}}};
  for (size_t d = 0; d < a.depths.size(); ++d) {
    const DepthOutcome& o = a.depths[d];
    const double decided = o.accepted + o.refused;
    t.rows.push_back({fmt::format("{}", d + 1), count(decided + o.not_drafted + o.cut),
                      count(o.accepted), count(o.refused), count(o.not_drafted), count(o.cut),
                      number(decided > 0 ? std::optional(o.accepted / decided) : std::nullopt, 3)});
  }
  t.caption = fmt::format("{}: what steps came to at each depth.", a.arm);
  return t;
}

Table starts_table(const std::vector<ArmAcceptance>& arms) {
  const bool shared = std::any_of(
      arms.begin(), arms.end(), [](const ArmAcceptance& a) { return a.first_shared.has_value(); });
  Table t{
      .columns = {{.name = "first draft token accepted", .words = true}, {.name = "all steps"}}};
  for (const char* before : {"first step", "after a refusal", "after a whole draft", "after none"})
    t.columns.push_back({.name = before, .room = Room::kPage});
  if (shared) t.columns.push_back({.name = "at shared places"});
  const auto cell = [](const Decided& d) {
    return d.tested > 0 ? fmt::format("{} ({})", number(d.share(), 3), count(d.tested)) : "-";
  };
  for (const ArmAcceptance& a : arms) {
    std::vector<Cell> row = {a.arm, cell(a.first)};
    for (const Decided& d : a.first_by_before) row.emplace_back(cell(d));
    if (shared) row.emplace_back(a.first_shared ? cell(*a.first_shared) : "-");
    t.rows.push_back(std::move(row));
  }
  t.caption = "Acceptance of the first draft token, by what came before the step.";
  return t;
}

Json decided_json(const Decided& d) {
  return {{"tested", d.tested}, {"accepted", d.accepted}, {"share", json_value(d.share())}};
}

}  // namespace

void add_acceptance(const std::vector<ArmAcceptance>& arms, Document& d) {
  d.table(parts_table(arms));
  d.paragraph(
      "tau, and in brackets the accepted share of the draft tokens that were decided on, of the "
      "steps that begin in each quarter of their answer.");
  for (const ArmAcceptance& a : arms) d.table(depths_table(a));
  d.paragraph(
      "Steps there: all drafts before that depth were accepted. Not drafted: the draft had ended, "
      "so nothing was asked. Cut: the stop rule ended the step. Only accepted and refused ones "
      "are in alpha_cond.");
  d.table(starts_table(arms));
  d.paragraph(
      "Longer drafts begin their steps elsewhere, and more often where a draft has just failed. So "
      "the first draft token is accepted less often although the drafter is the same. At shared "
      "places all arms of a method began a step: there the figure has no such selection.");
}

Json acceptance_json(const std::vector<ArmAcceptance>& arms) {
  Json rows = Json::array();
  for (const ArmAcceptance& a : arms) {
    Json parts = Json::array(), depths = Json::array(), starts = Json::array();
    for (const AnswerPart& p : a.parts)
      parts.push_back({{"steps", p.steps},
                       {"tau", json_value(tau_of(p))},
                       {"tested", p.tokens.tested},
                       {"accepted", p.tokens.accepted},
                       {"share", json_value(p.tokens.share())}});
    for (const DepthOutcome& o : a.depths)
      depths.push_back({{"accepted", o.accepted},
                        {"refused", o.refused},
                        {"not_drafted", o.not_drafted},
                        {"cut", o.cut}});
    for (int b = 0; b < kBefores; ++b) {
      Json start{{"after", to_string(static_cast<Before>(b))}};
      start.update(decided_json(a.first_by_before[static_cast<size_t>(b)]));
      starts.push_back(std::move(start));
    }
    rows.push_back({{"method", a.arm},
                    {"n_prompts", a.n_prompts},
                    {"quarters", parts},
                    {"depths", depths},
                    {"first", decided_json(a.first)},
                    {"first_after", starts},
                    {"first_shared", a.first_shared ? decided_json(*a.first_shared) : Json()}});
  }
  return rows;
}

}  // namespace evalrun::reports
