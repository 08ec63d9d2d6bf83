#include <fmt/format.h>

#include <algorithm>

#include "reports/format.h"
#include "reports/predict/predict_report.h"

namespace evalrun::reports {
namespace {

std::optional<double> tau_of(const AnswerPart& p) {
  return p.steps > 0 ? std::optional(p.emitted / p.steps) : std::nullopt;
}

// The share of `accepted` in `tested`, and in up to `unclear` more: "0.429 to 0.500".
std::string share_text(double accepted, double tested, double unclear, int decimals) {
  if (tested <= 0) return "-";
  const std::string most = number(accepted / tested, decimals);
  const std::string least = number(accepted / (tested + unclear), decimals);
  return least == most ? most : least + " to " + most;
}

const Decided& first_after(const ArmAcceptance& a, Before b) {
  return a.first_by_before[static_cast<size_t>(b)];
}

Table parts_table(const std::vector<ArmAcceptance>& arms) {
  Table t{.columns = {{.name = "along the answer", .words = true}, {.name = "prompts"}}};
  for (const char* part : {"first quarter", "second", "third", "last quarter"})
    t.columns.push_back({.name = part});
  for (const ArmAcceptance& a : arms) {
    std::vector<Cell> row = {a.arm, fmt::format("{}", a.n_prompts)};
    for (const AnswerPart& p : a.parts)
      row.emplace_back(
          p.steps > 0 ? fmt::format("{} ({})", number(tau_of(p), 2),
                                    share_text(p.tokens.accepted, p.tokens.tested, p.unclear, 2))
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
                      {.name = "not drafted"}}};
  const bool unclear = std::any_of(a.depths.begin(), a.depths.end(),
                                   [](const DepthOutcome& o) { return o.unclear > 0; });
  if (unclear) t.columns.push_back({.name = "refused or not drafted"});
  t.columns.push_back({.name = "cut"});
  t.columns.push_back({.name = "alpha_cond"});
  for (size_t d = 0; d < a.depths.size(); ++d) {
    const DepthOutcome& o = a.depths[d];
    const double decided = o.accepted + o.refused;
    std::vector<Cell> row = {fmt::format("{}", d + 1),
                             count(decided + o.not_drafted + o.unclear + o.cut), count(o.accepted),
                             count(o.refused), count(o.not_drafted)};
    if (unclear) row.emplace_back(count(o.unclear));
    row.emplace_back(count(o.cut));
    row.emplace_back(share_text(o.accepted, decided, o.unclear, 3));
    t.rows.push_back(std::move(row));
  }
  t.caption = fmt::format("{}: what steps came to at each depth.", a.arm);
  return t;
}

Table starts_table(const std::vector<ArmAcceptance>& arms) {
  const bool shared = std::any_of(
      arms.begin(), arms.end(), [](const ArmAcceptance& a) { return a.first_shared.has_value(); });
  Table t{
      .columns = {{.name = "first draft token accepted", .words = true}, {.name = "all steps"}}};
  const bool unclear = std::any_of(arms.begin(), arms.end(), [](const ArmAcceptance& a) {
    return first_after(a, Before::kUnclear).tested > 0;
  });
  for (const char* before : {"first step", "after a refusal", "after a whole draft", "after none"})
    t.columns.push_back({.name = before, .room = Room::kPage});
  if (unclear) t.columns.push_back({.name = "after a refusal or a leaf", .room = Room::kPage});
  if (shared) t.columns.push_back({.name = "at shared places"});
  const auto cell = [](const Decided& d) {
    return d.tested > 0 ? fmt::format("{} ({})", number(d.share(), 3), count(d.tested)) : "-";
  };
  for (const ArmAcceptance& a : arms) {
    std::vector<Cell> row = {a.arm, cell(a.first)};
    for (const Before b : {Before::kNothing, Before::kRefused, Before::kWhole, Before::kUndrafted})
      row.emplace_back(cell(first_after(a, b)));
    if (unclear) row.emplace_back(cell(first_after(a, Before::kUnclear)));
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
  const auto unclear = [](const ArmAcceptance& a) {
    return std::any_of(a.parts.begin(), a.parts.end(),
                       [](const AnswerPart& p) { return p.unclear > 0; });
  };
  if (std::any_of(arms.begin(), arms.end(), unclear))
    d.paragraph(
        "A walk that ended inside a tree was refused there, or had come to a leaf. Where nothing "
        "stored says which, a share has two figures: all of these refused, or none.");
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
                       {"share", json_value(p.tokens.share())},
                       {"unclear", p.unclear}});
    for (const DepthOutcome& o : a.depths)
      depths.push_back({{"accepted", o.accepted},
                        {"refused", o.refused},
                        {"not_drafted", o.not_drafted},
                        {"unclear", o.unclear},
                        {"cut", o.cut}});
    for (int b = 0; b < kBefores; ++b) {
      const auto before = static_cast<Before>(b);
      if (before == Before::kUnclear && first_after(a, before).tested <= 0) continue;
      Json start{{"after", to_string(before)}};
      start.update(decided_json(first_after(a, before)));
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
