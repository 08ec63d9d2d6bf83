#include "reports/data/pairing.h"

#include <algorithm>

namespace evalrun::reports {

namespace {

// SampleRow and Counters have fields of the same names.
template <typename T>
void add_fields(const T& from, Counters& to) {
  to.n_decode += from.n_decode, to.steps += from.steps, to.drafted += from.drafted;
  to.drafted_depth += from.drafted_depth, to.accepted += from.accepted, to.emitted += from.emitted;
  to.target_forwards += from.target_forwards, to.rows += from.rows, to.undrafted += from.undrafted;
  to.draft_ns += from.draft_ns, to.verify_ns += from.verify_ns, to.decode_ns += from.decode_ns;
  to.fastest_ns += from.fastest_ns, to.first_token_ns += from.first_token_ns;
}

}  // namespace

void Counters::add(const SampleRow& s) {
  add_fields(s, *this);
  answers += 1;
}

void Counters::add(const Counters& c) {
  add_fields(c, *this);
  answers += c.answers;
}

std::optional<Explanation> explain(const Counters& m, const Counters& b) {
  if (m.steps <= 0 || b.steps <= 0 || b.verify_ns <= 0 || b.decode_ns <= 0 || m.decode_ns <= 0 ||
      b.n_decode <= 0 || m.n_decode <= 0)
    return std::nullopt;
  const double base_step_ns = b.decode_ns / b.steps;
  Explanation e;
  e.tau = m.emitted / m.steps;
  e.t_ratio = (m.verify_ns / m.steps) / (b.verify_ns / b.steps);
  e.draft_share = m.draft_ns / m.steps / base_step_ns;
  // Everything else in the decode time: commit, the loop itself, what no phase claimed.
  e.overhead = (m.decode_ns - m.draft_ns - m.verify_ns) / m.steps / base_step_ns;
  const double measured = (m.n_decode / m.decode_ns) / (b.n_decode / b.decode_ns);
  const double predicted = e.tau / (e.t_ratio + e.draft_share + e.overhead);
  e.residual = measured / predicted - 1;
  return e;
}

ArmCells cells_of(const RunData& data, int64_t arm_id) {
  struct ByArm {
    bool operator()(const SampleRow& s, int64_t arm) const { return s.arm_id < arm; }
    bool operator()(int64_t arm, const SampleRow& s) const { return arm < s.arm_id; }
  };
  const auto [begin, end] =
      std::equal_range(data.samples.begin(), data.samples.end(), arm_id, ByArm());
  ArmCells cells;
  cells.reserve(static_cast<size_t>(end - begin));
  for (auto s = begin; s != end; ++s) cells[{s->prompt_id, s->sample}] = &*s;
  return cells;
}

std::set<PromptSample> looping_cells(const ArmCells& method, const ArmCells& base) {
  std::set<PromptSample> found;
  for (const auto* cells : {&method, &base})
    for (const auto& [cell, s] : *cells)
      if (s->degenerate && method.contains(cell) && base.contains(cell)) found.insert(cell);
  return found;
}

int64_t common_cells(const ArmCells& a, const ArmCells& b) {
  int64_t n = 0;
  auto it = b.begin();
  for (const auto& [cell, s] : a) {
    while (it != b.end() && it->first < cell) ++it;
    n += it != b.end() && it->first == cell;
  }
  return n;
}

ArmCells without(ArmCells cells, const std::set<PromptSample>& left_out) {
  if (!left_out.empty())
    cells.erase_if([&](const auto& entry) { return left_out.contains(entry.first); });
  return cells;
}

Pairing pair_with_reference(const ArmCells& method, const ArmCells& base,
                            const std::function<bool(int64_t)>& keep) {
  Pairing p;
  // Both are in the order of their cells.
  auto it = base.begin();
  int64_t met = 0, of_base = 0;
  for (const auto& [cell, m] : method) {
    if (!keep(cell.first)) continue;
    while (it != base.end() && it->first < cell) ++it;
    if (it == base.end() || it->first != cell) {
      ++p.unpaired;
      continue;
    }
    ++met;
    const SampleRow& b = *it->second;
    p.method.add(*m);
    p.base.add(b);
    PromptPair& sum = p.prompts[cell.first];
    sum.base_tokens += b.n_decode, sum.base_ns += b.decode_ns;
    sum.tokens += m->n_decode, sum.ns += m->decode_ns;
    sum.base_fastest_ns += b.fastest_ns, sum.fastest_ns += m->fastest_ns;
  }
  for (const auto& [cell, b] : base) of_base += keep(cell.first);
  p.unpaired += of_base - met;
  return p;
}

std::vector<PromptPair> values_of(const PromptPairs& prompts) {
  std::vector<PromptPair> values;
  values.reserve(prompts.size());
  for (const auto& [id, pair] : prompts) values.push_back(pair);
  return values;
}

}  // namespace evalrun::reports
