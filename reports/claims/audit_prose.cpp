// A rule for figures in prose: ranges over a table's rows, and comparisons of two rows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/text.h"
#include "reports/claims/audit_rules.h"

namespace evalrun::reports {

namespace {

// "vicuna-7b/13b+llama-2-7b/13b-chat" means four models; "all" or nothing means any.
bool means_model(const std::string& prose, const std::string& model) {
  if (prose.empty() || prose == "all") return true;
  const std::vector<std::string> pieces = base::split(model, '-');
  for (const std::string& group : base::split(prose, '+')) {
    const std::vector<std::string> choices = base::split(group, '-');
    bool same = choices.size() == pieces.size();
    for (size_t i = 0; same && i < pieces.size(); ++i)
      same = contains(base::split(choices[i], '/'), pieces[i]);
    if (same) return true;
  }
  return false;
}

// The metrics of a table that a figure in prose speaks of: "alpha_share_difference" of alpha_share.
std::vector<std::string> metrics_meant(const Claim& prose) {
  if (!prose.option("versus")) return {prose.metric};
  for (const char* speed : {"speedup_over_method", "speedup_difference", "improvement"})
    if (prose.metric == speed) return {"speedup"};
  if (prose.metric == "alpha_share_difference") return {"alpha_share"};
  if (prose.metric == "tau_difference") return {"tau_without_bonus", "tau_with_bonus"};
  return {};
}

// What `stat=` can say.
const std::map<std::string, const char*> kStats = {{"min", "smallest value"},
                                                   {"max", "largest value"},
                                                   {"mean", "mean"},
                                                   {"lower_bound", "lower bound"},
                                                   {"upper_bound", "upper bound"}};

class ProseCheck {
 public:
  ProseCheck(const Claims& claims, const Claim& prose)
      : claims_(claims),
        prose_(prose),
        stat_(prose.option("stat").value_or("")),
        versus_(prose.option("versus").value_or("")),
        metrics_(metrics_meant(prose)),
        datasets_(base::split(prose.dataset, '+')) {
    for (const std::string& flag : prose.flags)
      if (!flag.starts_with("stat=") && !flag.starts_with("versus=")) flags_.push_back(flag);
  }

  void run(AuditLog& log) {
    for (const Claim& c : claims_.rows)
      if (in_scope(c)) add(c);
    if (tables_.empty()) return;
    log.compared("prose_table", prose_, {});
    std::vector<std::string> said;
    std::optional<double> nearest;
    for (const auto& [place, figures] : tables_) {
      const std::vector<Figure> candidates = stat_.empty() ? figures : extreme(figures);
      std::vector<std::string> values;
      for (const Figure& f : candidates) {
        if (fits(f)) return;
        values.push_back(fmt::format("{:.3g}", f.value));
        if (!nearest || std::abs(f.value - *prose_.value) < std::abs(*nearest - *prose_.value))
          nearest = f.value;
      }
      said.push_back(fmt::format("{} gives {}", place, fmt::join(values, " or ")));
    }
    const std::string what = stat_.empty() ? "value" : kStats.at(stat_);
    log.flag({"prose_table",
              {prose_},
              {lines_.begin(), lines_.end()},
              nearest,
              stat_ == "lower_bound"   ? "<="
              : stat_ == "upper_bound" ? ">="
                                       : "=",
              fmt::format("{} is printed as the {}{}; no table of the paper agrees: {}.",
                          prose_.value_text, what,
                          versus_.empty() ? "" : fmt::format(" against {}", versus_),
                          fmt::join(said, ", "))});
  }

 private:
  bool in_scope(const Claim& c) const {
    if (!c.value || !c.measured() || !in_table(c) || c.paper != prose_.paper ||
        c.method != prose_.method || !contains(metrics_, c.metric) ||
        !contains(datasets_, c.dataset) || !means_model(prose_.model, c.model))
      return false;
    // Without a category the whole set is meant, not its parts.
    if (c.category != prose_.category &&
        (!prose_.category.empty() || contains(parts_of(c.dataset), c.category)))
      return false;
    return std::all_of(flags_.begin(), flags_.end(),
                       [&](const std::string& flag) { return contains(c.flags, flag); });
  }

  void add(const Claim& c) {
    if (versus_.empty()) {
      tables_[c.place].push_back(figure(c));
      lines_.insert(c.line);
      return;
    }
    const Claim* other = compared_with(c);
    if (other == nullptr || *other->value == 0) return;
    lines_.insert({c.line, other->line});
    const Figure a = figure(c), b = figure(*other), quotient = ratio(a, b);
    Figure f = {a.value - b.value, a.rounding + b.rounding};
    if (prose_.metric == "speedup_over_method") f = quotient;
    if (prose_.metric == "improvement" || prose_.unit == "percent")
      f = {100 * (quotient.value - 1), 100 * quotient.rounding};
    tables_[c.place].push_back(f);
  }

  // What `versus=` names, in the same table: another method; or the same one with another value of
  // one flag, named by it ("chain8" for tree=chain8) or with the flag ("csgd_off" for csgd=off).
  const Claim* compared_with(const Claim& c) const {
    const Claim* found = nullptr;
    for (const Claim& o : claims_.rows) {
      if (!o.value || !o.measured() || o.paper != c.paper || o.place != c.place ||
          o.model != c.model || o.dataset != c.dataset || o.category != c.category ||
          o.metric != c.metric)
        continue;
      const bool meant = o.method == versus_ ? o.decoding() == c.decoding()
                                             : o.method == c.method && differs_by_versus(o, c);
      if (!meant || &o == &c) continue;
      if (found != nullptr) return nullptr;
      found = &o;
    }
    return found;
  }

  bool differs_by_versus(const Claim& o, const Claim& c) const {
    if (o.flags.size() != c.flags.size()) return false;
    std::string changed;
    for (size_t i = 0; i < o.flags.size(); ++i) {
      if (o.flags[i] == c.flags[i]) continue;
      if (!changed.empty()) return false;
      changed = o.flags[i];
    }
    const size_t equals = changed.find('=');
    if (equals == std::string::npos) return false;
    const std::string value = changed.substr(equals + 1);
    return versus_ == value || versus_ == changed.substr(0, equals) + "_" + value;
  }

  // The figure of a table that `stat=` speaks of.
  std::vector<Figure> extreme(const std::vector<Figure>& figures) const {
    const auto less = [](const Figure& a, const Figure& b) { return a.value < b.value; };
    if (stat_ == "min" || stat_ == "lower_bound")
      return {*std::min_element(figures.begin(), figures.end(), less)};
    if (stat_ == "max" || stat_ == "upper_bound")
      return {*std::max_element(figures.begin(), figures.end(), less)};
    Figure mean;
    for (const Figure& f : figures) {
      mean.value += f.value / static_cast<double>(figures.size());
      mean.rounding = std::max(mean.rounding, f.rounding);
    }
    return {mean};
  }

  bool fits(const Figure& f) const {
    const double gap = f.value - *prose_.value;
    const double allowed = f.rounding + prose_.rounding() + kTiny;
    if (stat_ == "lower_bound") return gap >= -allowed;
    if (stat_ == "upper_bound") return gap <= allowed;
    return std::abs(gap) <= allowed;
  }

  const Claims& claims_;
  const Claim& prose_;
  std::string stat_, versus_;
  std::vector<std::string> metrics_, datasets_, flags_;
  std::map<std::string, std::vector<Figure>> tables_;  // by place
  std::set<size_t> lines_;
};

}  // namespace

void check_prose_table(const Claims& claims, const ClaimCells&, AuditLog& log) {
  for (const Claim& prose : claims.rows) {
    if (!prose.value || prose.measured() || prose.dataset.empty()) continue;
    if (const auto stat = prose.option("stat"); stat && !kStats.contains(*stat)) continue;
    ProseCheck(claims, prose).run(log);
  }
}

}  // namespace evalrun::reports
