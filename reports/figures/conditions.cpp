#include "reports/figures/conditions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "engine/base/stats.h"
#include "reports/data/generations.h"
#include "reports/format.h"

namespace evalrun::reports {
namespace {

struct ArmClocks {
  std::string label;
  std::vector<double> mhz;
  int64_t batch = 1;
};

// `baselines`: plain decoding by its batch. Other arms of the batch are compared with it.
void judge_clocks(const std::map<int64_t, ArmClocks>& arms,
                  const std::map<int64_t, int64_t>& baselines, const std::vector<double>& in_order,
                  Conditions& c) {
  for (const auto& [batch, baseline] : baselines) {
    const auto base = arms.find(baseline);
    if (base == arms.end() || static_cast<int64_t>(base->second.mhz.size()) < kFewestClocks)
      continue;
    const double usual = base::median(base->second.mhz);
    for (const auto& [id, arm] : arms) {
      if (id == baseline || arm.batch != batch ||
          static_cast<int64_t>(arm.mhz.size()) < kFewestClocks)
        continue;
      const double change = base::median(arm.mhz) / usual - 1;
      if (std::abs(change) > kMostBetweenArms)
        c.throttling.push_back(fmt::format("{} ran at a clock {:+.1f} % off {}'s", arm.label,
                                           100 * change, base->second.label));
    }
  }
  const size_t third = in_order.size() / 3;
  if (static_cast<int64_t>(third) < kFewestClocks) return;
  const std::vector<double> first(in_order.begin(),
                                  in_order.begin() + static_cast<std::ptrdiff_t>(third));
  const std::vector<double> last(in_order.end() - static_cast<std::ptrdiff_t>(third),
                                 in_order.end());
  const double drift = base::median(last) / base::median(first) - 1;
  if (std::abs(drift) > kMostDrift)
    c.throttling.push_back(fmt::format("the clock moved by {:+.1f} % within the run", 100 * drift));
}

// The clocks of a run's generations, in the order of these. Machines have clocks of their own, and
// each is judged by itself.
class Clocks {
 public:
  Clocks() = default;
  // Of several machines.
  explicit Clocks(const std::vector<MachineInfo>& machines) {
    for (const MachineInfo& m : machines) names_.push_back(m.name);
  }
  void add_arm(int64_t id, const std::string& label, const std::string& role, int64_t batch) {
    labels_[id] = {label, batch};
    if (role == "baseline") baselines_.try_emplace(batch, id);
  }
  // The row has kColumns from `column` on.
  void add(int64_t arm, const results::Row& row, int column, int machine = 0) {
    const int64_t available = row.integer(column + 1), others = row.integer(column + 2);
    const int64_t steal = row.integer(column + 3);
    ++generations_, available_ += available, others_ += others, steal_ += steal;
    disturbed_ += static_cast<double>(others + steal) >
                  std::max(kMostOfOthers * static_cast<double>(available), kFewestNs);
    if (row.is_null(column)) return;
    MachineClocks& of = machines_[machine];
    of.arms[arm].mhz.push_back(row.number(column));
    of.in_order.push_back(row.number(column));
  }
  Conditions conditions() {
    Conditions c;
    c.generations = generations_, c.disturbed = disturbed_, c.steal_ns = steal_;
    if (generations_ == 0) return c;
    if (available_ > 0) {
      c.others_share = static_cast<double>(others_) / static_cast<double>(available_);
      c.steal_share = static_cast<double>(steal_) / static_cast<double>(available_);
    }
    std::vector<double> all;
    for (auto& [machine, of] : machines_) {
      for (auto& [id, arm] : of.arms) std::tie(arm.label, arm.batch) = labels_.at(id);
      all.insert(all.end(), of.in_order.begin(), of.in_order.end());
      const size_t before = c.throttling.size();
      judge_clocks(of.arms, baselines_, of.in_order, c);
      for (size_t i = before; i < c.throttling.size() && !names_.empty(); ++i)
        c.throttling[i] += fmt::format(" on {}", names_[static_cast<size_t>(machine)]);
    }
    if (!all.empty()) c.device_mhz = base::median(all);
    const double share = static_cast<double>(c.disturbed) / static_cast<double>(c.generations);
    if (share > kMostDisturbed)
      c.interference.push_back(fmt::format(
          "others had more than a tenth of the processor time during {} of {} generations",
          c.disturbed, c.generations));
    return c;
  }
  static constexpr const char* kColumns = "device_mhz, available_ns, others_ns, steal_ns";

 private:
  static constexpr double kFewestNs = 50e6;  // view v_clock
  int64_t generations_ = 0, disturbed_ = 0, available_ = 0, others_ = 0, steal_ = 0;
  std::map<int64_t, std::pair<std::string, int64_t>> labels_;  // with the batch
  std::map<int64_t, int64_t> baselines_;                       // by batch
  struct MachineClocks {
    std::map<int64_t, ArmClocks> arms;
    std::vector<double> in_order;
  };
  std::map<int, MachineClocks> machines_;
  std::vector<std::string> names_;  // of the machines, where there are several
};

}  // namespace

Conditions read_conditions(const results::ResultStore& store, int64_t run_id) {
  Clocks clocks;
  store.query("SELECT id, label, role, batch FROM arm WHERE run_id = ? ORDER BY id", {run_id},
              [&](const results::Row& row) {
                clocks.add_arm(row.integer(0), row.text(1), row.text(2), row.integer(3));
                return true;
              });
  store.query(fmt::format("SELECT arm_id, {} FROM v_clock WHERE run_id = ? AND fault = '' "
                          "ORDER BY generation_id",
                          Clocks::kColumns),
              {run_id}, [&](const results::Row& row) {
                clocks.add(row.integer(0), row, 1);
                return true;
              });
  return clocks.conditions();
}

Conditions read_conditions(const results::ResultStore& store, const RunData& data) {
  Clocks clocks(data.run.machines);
  for (const ArmInfo& a : data.arms) clocks.add_arm(a.id, a.label, a.role, a.batch);
  std::unordered_map<int64_t, int> machine_of;  // by prompt, where there are several
  if (data.run.several_machines())
    for (const PromptInfo& p : data.prompts) machine_of[p.id] = p.machine;
  for_generation_rows(store, data, "clock", fmt::format("generation_id, {}", Clocks::kColumns),
                      [&](const Generation& g, const results::Row& row) {
                        clocks.add(g.arm_id, row, 1,
                                   machine_of.empty() ? 0 : machine_of.at(g.prompt_id));
                      });
  return clocks.conditions();
}

std::string conditions_text(const Conditions& c, const std::vector<std::string>& noise) {
  if (c.generations == 0) return "";
  std::string text = "Machine while measuring: ";
  if (c.device_mhz) text += fmt::format("{:.2f} GHz, ", *c.device_mhz / 1000);
  text += fmt::format("{} of the processor time to other processes, {} to other guests",
                      percent(c.others_share, 1), percent(c.steal_share, 1));
  std::vector<std::string> problems = noise;
  problems.insert(problems.end(), c.throttling.begin(), c.throttling.end());
  problems.insert(problems.end(), c.interference.begin(), c.interference.end());
  // Others may have had more than the share a generation may lose, and yet no generation lost it:
  // the machine was busy between them, or they are short.
  if (problems.empty() && c.others_share + c.steal_share > kMostOfOthers)
    return text + fmt::format(
                      ": quotable all the same, as others took both 50 ms and a tenth of the "
                      "processor time during {} of {} generations only.",
                      c.disturbed, c.generations);
  if (problems.empty()) return text + ": quotable.";
  return text + fmt::format(": NOT QUOTABLE, {}.", fmt::join(problems, "; "));
}

}  // namespace evalrun::reports
