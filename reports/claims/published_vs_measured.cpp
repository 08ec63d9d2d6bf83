#include "reports/claims/published_vs_measured.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/base/text.h"
#include "reports/claims/audit.h"

namespace evalrun::reports {

// What reports may include ends at results/, so data set names are taken apart here once more.
PublishedData published_data(std::string name) {
  PublishedData out;
  if (const size_t slash = name.rfind(" / "); slash != std::string::npos) {
    out.part = name.substr(slash + 3);
    name.resize(slash);
  }
  if (name.starts_with("jsonl:")) {  // a file of the user's: all of its name
    out.dataset = name;
    return out;
  }
  if (const size_t open = name.find('['); open != std::string::npos && out.part.empty()) {
    out.part = name.substr(open + 1, name.find(']', open) - open - 1);
    out.single = out.part.find(',') == std::string::npos;
  }
  out.dataset = name.substr(0, name.find_first_of("[:"));
  if (out.dataset == "gsm_100") out.dataset = "gsm8k_100";
  return out;
}

FindingsByLine findings_by_line(const Claims& claims) {
  FindingsByLine rules;
  for (const Finding& finding : audit_claims(claims).findings)
    for (const Claim& claim : finding.flagged) {
      std::vector<std::string>& of_line = rules[claim.line];
      if (std::find(of_line.begin(), of_line.end(), finding.rule) == of_line.end())
        of_line.push_back(finding.rule);
    }
  return rules;
}

namespace {

bool same_data(const Claim& claim, const PublishedData& data) {
  if (!data.single || claim.dataset != data.dataset) return false;
  if (data.part.empty()) return claim.category.empty() || claim.category == "overall";
  return claim.category == data.part;
}

// Claims in the terms of one report row, each with what was measured.
class Converter {
 public:
  explicit Converter(const ReportRow& row) : row_(row) {}

  // Nothing where the row has no such metric; several where quality was scored by several
  // conventions.
  std::vector<PublishedFigure> convert(const Claim& claim) {
    figure_ = PublishedFigure{};
    figure_.claim = claim;
    figure_.published = *claim.value;
    figure_.rounding = claim.rounding();
    figures_.clear();
    if (claim.metric == "speedup" || claim.metric == "throughput_ratio") {
      speedup();
    } else if (claim.metric == "throughput_gain") {
      from_percent();
      figure_.published += 1;
      figure_.conversion += " gain";
      speedup();
    } else if (claim.metric == "tau_with_bonus") {
      add("tau(+bonus)", row_.acceptance.tau);
    } else if (claim.metric == "tau_without_bonus") {
      figure_.published += 1;
      figure_.conversion = claim.value_text + " + the bonus token";
      add("tau(+bonus)", row_.acceptance.tau);
    } else if (claim.metric == "decoding_efficiency") {
      add("DE", row_.acceptance.de);
    } else if (claim.metric == "alpha_share") {
      from_percent();
      add("alpha_share", row_.acceptance.alpha_share);
    } else if (claim.metric == "rouge_l") {
      from_percent();
      for (const auto& [name, q] : row_.quality)
        if (q.n > 0 && name.starts_with("rougeL@")) add(name, q.value, q.interval);
    } else if (claim.metric.starts_with(kPass)) {
      pass_at();
    }
    return std::move(figures_);
  }

 private:
  static constexpr std::string_view kPass = "pass_at_";

  void add(const std::string& metric, const std::optional<double>& measured,
           const std::optional<base::Interval>& interval = std::nullopt) {
    if (!measured) return;
    figure_.metric = metric;
    figure_.measured = *measured;
    figure_.interval = interval;
    figures_.push_back(figure_);
  }

  void from_percent() {
    figure_.published /= 100;
    figure_.rounding /= 100;
    figure_.conversion = figure_.claim.value_text + " %";
  }

  // What is its own reference has a speedup of 1 by definition.
  void speedup() {
    if (!row_.reference.empty()) add("speedup", row_.speed.speedup, row_.speed.interval);
  }

  void pass_at() {
    from_percent();
    // One greedy answer per problem gives pass@1, whatever it is called.
    const std::string printed = figure_.claim.metric.substr(kPass.size());
    const std::string k = figure_.claim.decoding() == "greedy" ? "1" : printed;
    if (k != printed) figure_.conversion += ", greedy pass@" + printed;
    for (const auto& [name, q] : row_.quality)
      for (const auto& [samples, share] : q.pass_at)
        if (std::to_string(samples) == k)
          add(fmt::format("pass@{} ({})", k, q.version), share,
              samples == 1 ? q.interval : std::nullopt);
  }

  const ReportRow& row_;
  PublishedFigure figure_;
  std::vector<PublishedFigure> figures_;
};

// The metrics in the order of the report's columns, quality last.
int metric_order(const PublishedFigure& f) {
  static const std::vector<std::string> columns = {"speedup", "tau(+bonus)", "DE", "alpha_share"};
  return static_cast<int>(std::find(columns.begin(), columns.end(), f.metric) - columns.begin());
}

// The same figure of the same measurement, printed once more.
bool printed_again(const Claim& a, const Claim& b) {
  return a.paper == b.paper && a.model == b.model && a.method == b.method && a.config == b.config &&
         a.metric == b.metric && a.category == b.category && a.hardware == b.hardware &&
         a.value_text == b.value_text;
}

}  // namespace

const std::vector<std::string>& published_names(const std::string& method) {
  // gated_lora, pad and pass are in no table of the file.
  static const std::map<std::string, std::vector<std::string>> names = {
      {"ar", {"ar"}},
      {"ar_tuned", {"ar"}},
      {"space", {"space"}},
      {"bita", {"bita"}},
      {"falcon", {"falcon"}},
      {"self_draft", {"self_draft"}},
      {"sps", {"sps", "hf_assisted"}},
      {"pld", {"pld"}},
      {"pia", {"pia"}},
      {"lookahead", {"lookahead"}},
      {"medusa", {"medusa", "medusa1", "medusa2"}},
      {"eagle", {"eagle1"}},
      {"eagle2", {"eagle2"}},
      {"eagle3", {"eagle3"}},
      {"rest", {"rest"}},
      {"self_spec", {"self_spec"}},
      {"recycling", {"token_recycling"}},
      {"sam", {"sam_decoding"}},
      {"stand", {"stand"}},
      {"suffix", {"suffix_decoding"}}};
  static const std::vector<std::string> none;
  const auto found = names.find(method);
  return found == names.end() ? none : found->second;
}

std::string PublishedFigure::position() const {
  if (!interval) return "";
  if (published + rounding < interval->lo) return "below";
  if (published - rounding > interval->hi) return "above";
  return "within";
}

PublishedVsMeasured compare_with_claims(const Report& report, const Claims& claims) {
  const FindingsByLine rules = findings_by_line(claims);
  PublishedVsMeasured claimed;
  claimed.file = claims.file;
  for (size_t r = 0; r < report.rows.size(); ++r) {
    const ReportRow& row = report.rows[r];
    if (row.arm.role == "aa" || row.arm.batch > 1) continue;  // published is batch 1
    const std::vector<std::string>& names = published_names(row.arm.method);
    const PublishedData data = published_data(row.dataset);
    Converter converter(row);
    std::vector<PublishedFigure> of_row;
    for (const Claim& claim : claims.rows) {
      if (!claim.value || !claim.measured() || !same_data(claim, data) ||
          std::find(names.begin(), names.end(), claim.method) == names.end())
        continue;
      std::vector<PublishedFigure> figures = converter.convert(claim);
      const std::string decoding = claim.decoding();
      if (!decoding.empty() && decoding != (row.arm.greedy() ? "greedy" : "sampled")) {
        claimed.other_decoding += figures.empty() ? 0 : 1;
        continue;
      }
      for (PublishedFigure& f : figures) {
        const auto known = std::find_if(of_row.begin(), of_row.end(), [&](const auto& other) {
          return other.metric == f.metric && printed_again(other.claim, claim);
        });
        if (known != of_row.end()) {
          known->places.push_back(claim.place);
          continue;
        }
        f.row = r;
        f.places = {claim.place};
        if (const auto found = rules.find(claim.line); found != rules.end())
          f.findings = found->second;
        of_row.push_back(std::move(f));
      }
    }
    std::stable_sort(of_row.begin(), of_row.end(), [](const auto& a, const auto& b) {
      return metric_order(a) < metric_order(b);
    });
    for (PublishedFigure& f : of_row) claimed.figures.push_back(std::move(f));
  }
  return claimed;
}

}  // namespace evalrun::reports
