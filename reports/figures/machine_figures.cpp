#include "reports/figures/machine_figures.h"

#include <unordered_map>

namespace evalrun::reports {

namespace {

std::optional<double> own_tok_s(const Counters& c, double time_scale) {
  if (c.decode_ns <= 0) return std::nullopt;
  return 1e9 * c.n_decode / (c.decode_ns / time_scale);
}

}  // namespace

std::optional<MachineFigures> machine_figures(const RunData& data, const ArmCells& method,
                                              const ArmCells& base, const PairColumns& pairs,
                                              bool against_itself, const Design& design) {
  const std::vector<MachineInfo>& machines = data.run.machines;
  if (machines.empty()) return std::nullopt;
  std::unordered_map<int64_t, int> machine_of;
  for (const PromptInfo& p : data.prompts) machine_of[p.id] = p.machine;
  std::vector<int> by_pair;
  std::vector<int64_t> prompts(machines.size());
  for (const int64_t id : pairs.prompts) {
    by_pair.push_back(machine_of.at(id));
    ++prompts[static_cast<size_t>(by_pair.back())];
  }
  JoinedSpeed joined;
  joined.machines.resize(machines.size());
  if (!against_itself)
    joined = join_machines(pairs.headline(), by_pair, static_cast<int>(machines.size()),
                           pairs.estimator, design);
  MachineFigures f;
  f.spread = joined.spread;
  f.like_these = joined.like_these;
  std::vector<Counters> own(machines.size()), plain(machines.size());
  auto b = base.begin();
  for (const auto& [cell, m] : method) {
    while (b != base.end() && b->first < cell) ++b;
    if (b == base.end() || b->first != cell) continue;
    const auto machine = static_cast<size_t>(machine_of.at(cell.first));
    own[machine].add(*m);
    plain[machine].add(*b->second);
  }
  for (size_t m = 0; m < machines.size(); ++m) {
    if (prompts[m] == 0) continue;
    const double scale = machines[m].time_scale;
    MachineFigure figure{.machine = static_cast<int>(m),
                         .prompts = prompts[m],
                         .tok_s = own_tok_s(own[m], scale),
                         .base_tok_s = own_tok_s(plain[m], scale),
                         .speedup = joined.machines[m],
                         .t_ratio = {}};
    if (against_itself && figure.tok_s)
      figure.speedup = Estimate{.value = 1, .interval = {}, .n = static_cast<int>(prompts[m])};
    if (const auto why = explain(own[m], plain[m])) figure.t_ratio = why->t_ratio;
    f.each.push_back(std::move(figure));
  }
  return f;
}

}  // namespace evalrun::reports
