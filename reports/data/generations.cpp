#include "reports/data/generations.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "reports/data/arm_tasks.h"
#include "reports/data/id_numbers.h"
#include "reports/data/outcome_sums.h"
#include "results/machines.h"
#include "results/queries.h"
#include "results/read_rows.h"
#include "results/repetition.h"
#include "results/tally.h"

namespace evalrun::reports {
namespace {

using results::Row;

// What a row of samples was before it was one: the repeat, its number in RunData::generations where
// it has no planted fault, and who measured it.
struct Origin {
  int32_t repeat = 0;
  uint32_t place = 0;
  int64_t machine = 0;  // row of the store
};

// Rows of an arm, from `begin` to `end`; there is room up to `limit`.
struct ArmRows {
  size_t begin = 0, end = 0, limit = 0;
};

// Numbers of a sample, in the order of a tally's sums.
constexpr double SampleRow::*kNumbers[] = {
    &SampleRow::n_tokens,    &SampleRow::n_decode,        &SampleRow::steps,
    &SampleRow::drafted,     &SampleRow::drafted_depth,   &SampleRow::accepted,
    &SampleRow::emitted,     &SampleRow::target_forwards, &SampleRow::rows,
    &SampleRow::undrafted,   &SampleRow::draft_ns,        &SampleRow::verify_ns,
    &SampleRow::decode_ns,   &SampleRow::prefill_ns,      &SampleRow::draft_prefill_ns,
    &SampleRow::stop_tokens, &SampleRow::first_token_ns};
static_assert(std::size(kNumbers) == results::kTallySums);

// The machine, and the tally: NULL in files without.
constexpr const char* kGenerations =
    "SELECT id, run_id, arm_id, prompt_id, sample, repeat, status, fault, tokens_hash, steps_hash, "
    "distinct_share, cycle, {}, {} FROM generation WHERE {} ORDER BY id";
constexpr int kMachine = 12, kTally = 13;

// What a tally adds up, turn by turn.
constexpr double SampleRow::*kTurnNumbers[] = {
    &SampleRow::n_tokens,        &SampleRow::steps,
    &SampleRow::drafted,         &SampleRow::drafted_depth,
    &SampleRow::accepted,        &SampleRow::emitted,
    &SampleRow::target_forwards, &SampleRow::rows,
    &SampleRow::undrafted,       &SampleRow::draft_ns,
    &SampleRow::verify_ns,       &SampleRow::decode_ns,
    &SampleRow::prefill_ns,      &SampleRow::draft_prefill_ns};
constexpr std::string_view kTurnColumns =
    "generation_id, idx, stop, n_tokens, n_steps, drafted, drafted_depth, accepted, emitted, "
    "target_forwards, rows, undrafted, draft_ns, verify_ns, decode_ns, prefill_ns, "
    "draft_prefill_ns";

void add_turn_numbers(const Row& turn, SampleRow& sum) {
  int column = 3;
  for (double SampleRow::*number : kTurnNumbers) sum.*number += turn.number(column++);
  sum.n_decode += std::max(turn.number(3) - 1, 0.0);
  if (turn.view(2) == "stop_token") sum.stop_tokens += 1;
  if (turn.integer(1) == 0) sum.first_token_ns += turn.number(15);
}

// Every arm has its part of RunData::samples from the beginning. Rows are read and sorted there,
// and the repeats of a sample become one.
class GenerationReader {
 public:
  GenerationReader(RunData& data, Faults faults, bool step_detail)
      : data_(data),
        faults_(faults),
        places_(data.arms, data.prompts),
        counts_(places_.size()),
        identity_(places_.size()),
        identity_alone_(places_.size()),
        arms_(data.arms.size()) {
    if (step_detail) outcomes_.emplace(data.arms, places_);
  }

  // Prompts learn which machine measured them, where there are several.
  void name_machines(const results::ResultStore& store) {
    if (!measured_by_) return;
    const std::vector<int64_t> rows = measured_by_->machines();
    if (rows.size() < 2) return;
    data_.run.machines = machines_named(store, data_.run.id, rows);
    for (PromptInfo& p : data_.prompts) {
      const auto at = std::find(rows.begin(), rows.end(), measured_by_->of(prompts_.of(p.id)));
      // A prompt that nobody measured yet is in no figure.
      if (at != rows.end()) p.machine = static_cast<int>(at - rows.begin());
    }
    if (measured_by_->mixed())
      for (ArmRows& arm : arms_) keep_one_machine(arm);
  }

  // Leaves out what another machine measured than its prompt's plain decoding.
  void keep_one_machine(ArmRows& arm) {
    size_t to = arm.begin;
    for (size_t i = arm.begin; i < arm.end; ++i) {
      if (origins_[i].machine != measured_by_->of(prompts_.of(data_.samples[i].prompt_id))) {
        ++data_.generations.other_machine;
        continue;
      }
      if (to != i) data_.samples[to] = std::move(data_.samples[i]), origins_[to] = origins_[i];
      ++to;
    }
    arm.end = to;
  }

  void read(const results::ResultStore& store) {
    read_rows(store);
    read_turns(store);
    if (outcomes_ && untallied_.empty())
      data_.generations.outcomes = std::move(*outcomes_).by_name(places_);
    name_machines(store);
    for (const ArmRows& arm : arms_) sort(arm);
    for (size_t a = 0; a < arms_.size(); ++a) {
      const ArmInfo& arm = data_.arms[a];
      if (const ArmInfo* reference = data_.reference(arm); reference != nullptr)
        compare(arms_[a], rows_of(*reference), identity_);
      if (arm.batch == 1) continue;
      if (const ArmInfo* alone = data_.reference_alone(arm); alone != nullptr)
        compare(arms_[a], rows_of(*alone), identity_alone_);
    }
    size_t end = 0;
    for (const ArmRows& arm : arms_) end = take_medians(arm, end);
    data_.samples.erase(data_.samples.begin() + static_cast<std::ptrdiff_t>(end),
                        data_.samples.end());
    data_.generations.counts = places_.by_name(std::move(counts_));
    data_.generations.identity = places_.by_name(std::move(identity_));
    data_.generations.identity_alone = places_.by_name(std::move(identity_alone_));
  }

 private:
  // A finished generation whose turns must be read.
  struct Untallied {
    int64_t id;
    size_t row;
  };

  void read_rows(const results::ResultStore& store) {
    const int64_t run = data_.run.id;
    if (results::machines(store, run).size() > 1) {
      prompts_ = PromptNumbers(data_.prompts);
      measured_by_.emplace(prompts_.size());
      if (data_.baseline() != nullptr) plain_ = data_.baseline()->id;
    }
    const auto number = [&](const char* sql, int64_t of) {
      return results::one<int64_t>(store, sql, {of});
    };
    // The last first, and none behind it: what the run stores meanwhile is not half there.
    const auto last = number("SELECT max(id) FROM generation WHERE run_id = ?", run);
    const auto first = number("SELECT min(id) FROM generation WHERE run_id = ?", run);
    if (!first || !last) return;
    int64_t n = 0;
    for (size_t a = 0; a < arms_.size(); ++a) {
      arms_[a].begin = arms_[a].end = static_cast<size_t>(n);
      n += number("SELECT count(*) FROM generation WHERE arm_id = ?", data_.arms[a].id).value_or(0);
      arms_[a].limit = static_cast<size_t>(n);
    }
    data_.samples.resize(static_cast<size_t>(n));
    origins_.resize(static_cast<size_t>(n));
    data_.generations.finished.reserve(static_cast<size_t>(n));
    // Else others were measured meanwhile.
    const bool together = *last - *first + 1 == n;
    store.query(fmt::format(kGenerations, measured_by_ ? "coalesce(machine_id, 0)" : "NULL",
                            results::has_tallies(store) ? "tally" : "NULL",
                            together ? "id BETWEEN ? AND ?" : "run_id = ? AND id <= ?"),
                {together ? *first : run, *last}, [&](const Row& r) {
                  if (r.integer(1) == run) add(r);
                  return true;
                });
  }

  // Generations that no figure is made of are only counted.
  void add(const Row& r) {
    const int64_t id = r.integer(0), arm = r.integer(2), prompt = r.integer(3);
    Generations& all = data_.generations;
    if (all.first == 0) all.first = id;
    all.last = id, ++all.n;
    const bool ok = r.view(6) == "ok";
    const std::string_view fault = r.view(7);
    const size_t place = places_.of(arm, prompt);
    const int64_t machine = r.integer(kMachine);
    if (measured_by_) measured_by_->add(prompts_.of(prompt), machine, ok && arm == plain_);
    if (fault.empty()) {
      auto& [count, failed] = counts_[place];
      ++count, failed += !ok;
    } else {
      ++all.hidden_faults;
    }
    if (!ok || (!fault.empty() && faults_ == Faults::kLeaveOut)) return;
    ArmRows& rows = arms_[places_.arm_number(arm)];
    EVALRUN_CHECK(rows.end < rows.limit, "generation {} was stored while others were counted", id);
    const size_t at = rows.end++;
    origins_[at] = {static_cast<int32_t>(r.integer(5)), static_cast<uint32_t>(all.finished.size()),
                    machine};
    SampleRow& row = data_.samples[at];
    row.arm_id = arm, row.prompt_id = prompt;
    row.sample = static_cast<int>(r.integer(4));
    if (fault.empty())
      all.finished.push_back({.id = id, .arm_id = arm, .prompt_id = prompt, .sample = row.sample});
    else
      row.fault = fault;
    row.tokens_hash = HashText(r.view(8)), row.steps_hash = HashText(r.view(9));
    row.degenerate = (!r.is_null(10) && r.number(10) < results::kLeastDistinctShare) ||
                     r.integer(11) >= results::kLongestCycle;
    if (!take_tally(r.view(kTally), place, row)) untallied_.push_back({id, at});
  }

  // False: the tally is missing or damaged.
  bool take_tally(std::string_view bytes, size_t place, SampleRow& row) {
    results::TallySums sums = {};
    const auto step = [&](int64_t depth, int64_t outcome, int64_t n) {
      outcomes_->add_steps(place, depth, outcome, n);
    };
    const auto node = [&](int64_t depth, int64_t rank, int64_t tested, int64_t accepted) {
      outcomes_->add_node(place, depth, rank, tested, accepted);
    };
    const bool whole = outcomes_ && row.fault.empty() ? results::unpack(bytes, sums, step, node)
                                                      : results::unpack_sums(bytes, sums);
    if (!whole) return false;
    for (size_t i = 0; i < sums.size(); ++i) row.*kNumbers[i] = static_cast<double>(sums[i]);
    return true;
  }

  void read_turns(const results::ResultStore& store) {
    if (untallied_.empty()) return;
    auto at = untallied_.begin();
    const auto use = [&](const Row& turn) {
      const int64_t id = turn.integer(0);
      while (at != untallied_.end() && at->id < id) ++at;
      if (at == untallied_.end()) return false;
      if (at->id == id) add_turn_numbers(turn, data_.samples[at->row]);
      return true;
    };
    const Generations& all = data_.generations;
    if (all.last - all.first + 1 == all.n)
      store.query(fmt::format("SELECT {} FROM turn WHERE generation_id BETWEEN ? AND ? "
                              "ORDER BY generation_id, idx",
                              kTurnColumns),
                  {untallied_.front().id, untallied_.back().id}, use);
    else
      store.query(fmt::format("SELECT {} FROM generation g CROSS JOIN turn ON generation_id = g.id "
                              "WHERE g.run_id = ? ORDER BY g.id",
                              kTurnColumns),
                  {data_.run.id}, use);
  }

  static auto cell(const SampleRow& s) { return std::tie(s.prompt_id, s.sample, s.fault); }

  // By cell; its repeats by decode time. They mostly are in this order, and rows are large.
  void sort(const ArmRows& arm) {
    std::vector<SampleRow>& rows = data_.samples;
    const auto before = [&](size_t x, size_t y) {
      const SampleRow &a = rows[x], &b = rows[y];
      if (a.prompt_id != b.prompt_id) return a.prompt_id < b.prompt_id;
      return std::tuple_cat(cell(a), std::tie(a.decode_ns, origins_[x].repeat)) <
             std::tuple_cat(cell(b), std::tie(b.decode_ns, origins_[y].repeat));
    };
    std::vector<size_t> order(arm.end - arm.begin);
    std::iota(order.begin(), order.end(), arm.begin);
    if (std::is_sorted(order.begin(), order.end(), before)) return;
    std::sort(order.begin(), order.end(), before);
    std::vector<SampleRow> sorted;
    std::vector<Origin> sorted_origins;
    sorted.reserve(order.size()), sorted_origins.reserve(order.size());
    for (const size_t i : order) {
      sorted.push_back(std::move(rows[i]));
      sorted_origins.push_back(origins_[i]);
    }
    const auto begin = static_cast<std::ptrdiff_t>(arm.begin);
    std::move(sorted.begin(), sorted.end(), rows.begin() + begin);
    std::copy(sorted_origins.begin(), sorted_origins.end(), origins_.begin() + begin);
  }

  const ArmRows& rows_of(const ArmInfo& arm) const {
    return arms_[static_cast<size_t>(&arm - data_.arms.data())];
  }

  using Identity = std::vector<std::pair<int64_t, int64_t>>;  // by place: compared, identical

  // Generations that the reference arm has, too: the same prompt, sample and repeat. Rows of a
  // sample that no planted fault touched come first.
  void compare(const ArmRows& own, const ArmRows& reference, Identity& identity) {
    const std::vector<SampleRow>& rows = data_.samples;
    const auto sample = [&](size_t i) { return std::tie(rows[i].prompt_id, rows[i].sample); };
    size_t begin = reference.begin;
    for (size_t i = own.begin; i < own.end; ++i) {
      if (!rows[i].fault.empty()) continue;
      while (begin < reference.end && sample(begin) < sample(i)) ++begin;
      for (size_t r = begin; r < reference.end && sample(r) == sample(i); ++r) {
        if (origins_[r].repeat != origins_[i].repeat || !rows[r].fault.empty()) continue;
        auto& [compared, identical] = identity[places_.of(rows[i].arm_id, rows[i].prompt_id)];
        ++compared, identical += rows[r].tokens_hash == rows[i].tokens_hash;
        break;
      }
    }
  }

  // The repeats of one sample, ordered by decode time, as one row: the middle one or the mean of
  // the middle two.
  SampleRow& median_of(size_t begin, size_t end) {
    const size_t n = end - begin;
    SampleRow& low = data_.samples[begin + (n - 1) / 2];
    const SampleRow& high = data_.samples[begin + n / 2];
    low.fastest_ns = data_.samples[begin].decode_ns, low.n_repeats = static_cast<int>(n);
    if (n == 1) return low;
    for (size_t i = begin; i < end; ++i) {
      const SampleRow& s = data_.samples[i];
      low.stable = low.stable && s.tokens_hash == low.tokens_hash && s.steps_hash == low.steps_hash;
    }
    if (n % 2 == 0) {
      low.degenerate = low.degenerate || high.degenerate;
      for (double SampleRow::*number : kNumbers) low.*number = (low.*number + high.*number) / 2;
      low.tokens_hash = std::min(low.tokens_hash, high.tokens_hash);
      low.steps_hash = std::min(low.steps_hash, high.steps_hash);
    }
    return low;
  }

  // The samples of an arm, stored from `to` on, which is not after its first row. Returns where
  // they end.
  size_t take_medians(const ArmRows& arm, size_t to) {
    std::vector<SampleRow>& rows = data_.samples;
    for (size_t begin = arm.begin, end = begin; begin < arm.end; begin = end) {
      do ++end;
      while (end < arm.end && cell(rows[end]) == cell(rows[begin]));
      if (rows[begin].fault.empty()) {  // judged is the answer of the first finished repeat
        size_t first = begin;
        for (size_t i = begin; i < end; ++i)
          if (origins_[i].repeat < origins_[first].repeat) first = i;
        data_.generations.finished[origins_[first].place].judged = true;
      }
      SampleRow& median = median_of(begin, end);
      if (&median != &rows[to]) rows[to] = std::move(median);
      ++to;
    }
    return to;
  }

  RunData& data_;
  Faults faults_;
  ArmTasks places_;
  std::vector<std::pair<int64_t, int64_t>> counts_, identity_, identity_alone_;
  std::vector<ArmRows> arms_;            // as RunData::arms
  std::vector<Origin> origins_;          // as RunData::samples, while these are rows
  std::optional<OutcomeSums> outcomes_;  // where they are asked for
  std::vector<Untallied> untallied_;     // by id
  PromptNumbers prompts_;                // where several machines may have measured
  std::optional<MeasuredBy> measured_by_;
  int64_t plain_ = 0;  // the arm, then
};

}  // namespace

void read_generations(const results::ResultStore& store, Faults faults, bool step_detail,
                      RunData& data) {
  GenerationReader(data, faults, step_detail).read(store);
}

void for_generation_rows(const results::ResultStore& store, const RunData& data,
                         std::string_view table, std::string_view columns,
                         const std::function<void(const Generation&, const Row&)>& use) {
  const Generations& all = data.generations;
  auto at = all.finished.begin();
  const auto row = [&](const Row& r) {
    const int64_t id = r.integer(0);
    while (at != all.finished.end() && at->id < id) ++at;
    if (at != all.finished.end() && at->id == id) use(*at, r);
    return true;
  };
  // A run has its generations to itself unless others were measured meanwhile: then its rows lie
  // together. Otherwise they are looked up by generation, under a name that no table has: what a
  // generation and a score both have a column of, such as a status, stays the table's. CROSS JOIN:
  // SQLite keeps the order of the tables.
  if (all.last - all.first + 1 == all.n)
    store.query(fmt::format("SELECT {} FROM {} WHERE generation_id BETWEEN ? AND ? "
                            "ORDER BY generation_id",
                            columns, table),
                {all.first, all.last}, row);
  else
    store.query(fmt::format("SELECT {} FROM (SELECT id AS of_the_run FROM generation WHERE run_id "
                            "= ?) CROSS JOIN {} ON generation_id = of_the_run ORDER BY of_the_run",
                            columns, table),
                {data.run.id}, row);
}

}  // namespace evalrun::reports
