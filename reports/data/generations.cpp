#include "reports/data/generations.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "reports/data/arm_tasks.h"
#include "reports/data/outcome_sums.h"
#include "results/queries.h"
#include "results/read_rows.h"
#include "results/repetition.h"
#include "results/tally.h"

namespace evalrun::reports {
namespace {

using results::Row;

// A finished generation; `place` is its number in RunData::generations where it has no planted
// fault.
struct Finished {
  SampleRow row;
  int64_t repeat = 0;
  size_t place = 0;
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

// The tally, NULL in files without, stands last.
constexpr const char* kGenerations =
    "SELECT id, run_id, arm_id, prompt_id, sample, repeat, status, fault, tokens_hash, steps_hash, "
    "distinct_share, cycle, {} FROM generation WHERE {} ORDER BY id";
constexpr int kTally = 12;

// What a tally adds up, turn by turn.
constexpr double SampleRow::*kTurnNumbers[] = {
    &SampleRow::n_tokens,   &SampleRow::steps,           &SampleRow::drafted,
    &SampleRow::drafted_depth, &SampleRow::accepted,     &SampleRow::emitted,
    &SampleRow::target_forwards, &SampleRow::rows,       &SampleRow::undrafted,
    &SampleRow::draft_ns,   &SampleRow::verify_ns,       &SampleRow::decode_ns,
    &SampleRow::prefill_ns, &SampleRow::draft_prefill_ns};
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

class GenerationReader {
 public:
  GenerationReader(RunData& data, Faults faults, bool step_detail)
      : data_(data),
        faults_(faults),
        places_(data.arms, data.prompts),
        counts_(places_.size()),
        identity_(places_.size()) {
    for (const ArmInfo& a : data.arms) finished_[a.id];
    if (step_detail) outcomes_.emplace(data.arms, places_);
  }

  void read(const results::ResultStore& store) {
    read_rows(store);
    read_turns(store);
    if (outcomes_ && untallied_.empty())
      data_.generations.outcomes = std::move(*outcomes_).by_name(places_);
    for (auto& [arm, rows] : finished_) sort(rows);
    for (const ArmInfo& a : data_.arms)
      if (const ArmInfo* reference = data_.reference(a); reference != nullptr)
        compare(finished_.at(a.id), finished_.at(reference->id));
    std::vector<int64_t> arms;
    for (const ArmInfo& a : data_.arms) arms.push_back(a.id);
    std::sort(arms.begin(), arms.end());
    data_.samples.reserve(data_.generations.finished.size());
    for (const int64_t arm : arms) take_medians(finished_.at(arm));
    data_.generations.counts = places_.by_name(std::move(counts_));
    data_.generations.identity = places_.by_name(std::move(identity_));
  }

 private:
  // A finished generation whose turns must be read.
  struct Untallied {
    int64_t id;
    std::vector<Finished>* rows;
    size_t at;
  };

  void read_rows(const results::ResultStore& store) {
    const int64_t run = data_.run.id;
    const auto edge = [&](const char* sql) { return results::one<int64_t>(store, sql, {run}); };
    // The last first, and none behind it: what the run stores meanwhile is not half there.
    const auto last = edge("SELECT max(id) FROM generation WHERE run_id = ?");
    const auto first = edge("SELECT min(id) FROM generation WHERE run_id = ?");
    if (!first || !last) return;
    const int64_t n = edge("SELECT count(*) FROM generation WHERE run_id = ?").value_or(0);
    for (auto& [arm, rows] : finished_)
      rows.reserve(static_cast<size_t>(n) / finished_.size() + 1);
    data_.generations.finished.reserve(static_cast<size_t>(n));
    // Else others were measured meanwhile.
    const bool together = *last - *first + 1 == n;
    store.query(fmt::format(kGenerations, results::has_tallies(store) ? "tally" : "NULL",
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
    std::string fault = r.text(7);
    const size_t place = places_.of(arm, prompt);
    if (fault.empty()) {
      auto& [count, failed] = counts_[place];
      ++count, failed += !ok;
    } else {
      ++all.hidden_faults;
    }
    if (!ok || (!fault.empty() && faults_ == Faults::kLeaveOut)) return;
    std::vector<Finished>& rows = finished_.at(arm);
    Finished& f = rows.emplace_back();
    f.row.arm_id = arm, f.row.prompt_id = prompt;
    f.row.sample = static_cast<int>(r.integer(4));
    f.repeat = r.integer(5);
    f.place = all.finished.size();
    if (fault.empty())
      all.finished.push_back({.id = id, .arm_id = arm, .prompt_id = prompt, .sample = f.row.sample});
    f.row.fault = std::move(fault);
    f.row.tokens_hash = r.text(8), f.row.steps_hash = r.text(9);
    f.row.degenerate = (!r.is_null(10) && r.number(10) < results::kLeastDistinctShare) ||
                       r.integer(11) >= results::kLongestCycle;
    if (!take_tally(r.view(kTally), place, f.row)) untallied_.push_back({id, &rows, rows.size() - 1});
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
      if (at->id == id) add_turn_numbers(turn, (*at->rows)[at->at].row);
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

  // By cell; its repeats by decode time.
  static void sort(std::vector<Finished>& rows) {
    const auto before = [](const Finished& a, const Finished& b) {
      if (a.row.prompt_id != b.row.prompt_id) return a.row.prompt_id < b.row.prompt_id;
      return std::tuple_cat(cell(a.row), std::tie(a.row.decode_ns, a.repeat)) <
             std::tuple_cat(cell(b.row), std::tie(b.row.decode_ns, b.repeat));
    };
    if (!std::is_sorted(rows.begin(), rows.end(), before))
      std::sort(rows.begin(), rows.end(), before);
  }

  // Generations that the reference arm has, too: the same prompt, sample and repeat. Rows of a
  // sample that no planted fault touched come first.
  void compare(const std::vector<Finished>& own, const std::vector<Finished>& reference) {
    const auto sample = [](const Finished& f) { return std::tie(f.row.prompt_id, f.row.sample); };
    auto begin = reference.begin();
    for (const Finished& f : own) {
      if (!f.row.fault.empty()) continue;
      while (begin != reference.end() && sample(*begin) < sample(f)) ++begin;
      for (auto r = begin; r != reference.end() && sample(*r) == sample(f); ++r) {
        if (r->repeat != f.repeat || !r->row.fault.empty()) continue;
        auto& [compared, identical] = identity_[places_.of(f.row.arm_id, f.row.prompt_id)];
        ++compared, identical += r->row.tokens_hash == f.row.tokens_hash;
        break;
      }
    }
  }

  // The repeats of one sample, ordered by decode time, as one row: the middle one or the mean of
  // the middle two.
  static SampleRow median_of(std::span<Finished> repeats) {
    const size_t n = repeats.size();
    SampleRow& low = repeats[(n - 1) / 2].row;
    const SampleRow& high = repeats[n / 2].row;
    const bool stable = std::all_of(repeats.begin(), repeats.end(), [&](const Finished& f) {
      return f.row.tokens_hash == low.tokens_hash && f.row.steps_hash == low.steps_hash;
    });
    const double fastest_ns = repeats.front().row.decode_ns;
    if (n % 2 == 0) {
      low.degenerate = low.degenerate || high.degenerate;
      for (double SampleRow::*number : kNumbers) low.*number = (low.*number + high.*number) / 2;
      low.tokens_hash = std::min(low.tokens_hash, high.tokens_hash);
      low.steps_hash = std::min(low.steps_hash, high.steps_hash);
    }
    low.fastest_ns = fastest_ns, low.n_repeats = static_cast<int>(n), low.stable = stable;
    return std::move(low);
  }

  // Empties `rows`: an arm's are not needed once they are samples.
  void take_medians(std::vector<Finished>& rows) {
    for (auto begin = rows.begin(); begin != rows.end();) {
      const auto end = std::find_if(
          begin, rows.end(), [&](const Finished& f) { return cell(f.row) != cell(begin->row); });
      if (begin->row.fault.empty()) {  // judged is the answer of the first finished repeat
        const auto first = std::min_element(
            begin, end, [](const Finished& a, const Finished& b) { return a.repeat < b.repeat; });
        data_.generations.finished[first->place].judged = true;
      }
      data_.samples.push_back(median_of({begin, end}));
      begin = end;
    }
    rows = {};
  }

  RunData& data_;
  Faults faults_;
  ArmTasks places_;
  std::vector<std::pair<int64_t, int64_t>> counts_, identity_;
  std::optional<OutcomeSums> outcomes_;                          // where they are asked for
  std::unordered_map<int64_t, std::vector<Finished>> finished_;  // by arm
  std::vector<Untallied> untallied_;                             // by id
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
  // together. CROSS JOIN: SQLite keeps the order of the tables.
  if (all.last - all.first + 1 == all.n)
    store.query(fmt::format("SELECT {} FROM {} WHERE generation_id BETWEEN ? AND ? "
                            "ORDER BY generation_id",
                            columns, table),
                {all.first, all.last}, row);
  else
    store.query(fmt::format("SELECT {} FROM generation g CROSS JOIN {} ON generation_id = g.id "
                            "WHERE g.run_id = ? ORDER BY g.id",
                            columns, table),
                {data.run.id}, row);
}

}  // namespace evalrun::reports
