#include "reports/data/generations.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "reports/data/arm_tasks.h"
#include "results/repetition.h"

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

// Numbers of a sample, in the order of the query's columns.
constexpr double SampleRow::*kNumbers[] = {
    &SampleRow::n_tokens,    &SampleRow::n_decode,        &SampleRow::steps,
    &SampleRow::drafted,     &SampleRow::drafted_depth,   &SampleRow::accepted,
    &SampleRow::emitted,     &SampleRow::target_forwards, &SampleRow::rows,
    &SampleRow::undrafted,   &SampleRow::draft_ns,        &SampleRow::verify_ns,
    &SampleRow::decode_ns,   &SampleRow::prefill_ns,      &SampleRow::draft_prefill_ns,
    &SampleRow::stop_tokens, &SampleRow::first_token_ns};

// A row per turn, the turns of a generation in order; NULLs for one without turns.
constexpr const char* kTurns =
    "SELECT g.id, g.arm_id, g.prompt_id, g.sample, g.repeat, g.status = 'ok', g.fault, "
    "g.tokens_hash, g.steps_hash, coalesce(g.distinct_share < {}, 0) OR g.cycle >= {}, "
    "t.n_tokens, max(t.n_tokens - 1, 0), t.n_steps, t.drafted, t.drafted_depth, t.accepted, "
    "t.emitted, t.target_forwards, t.rows, t.undrafted, t.draft_ns, t.verify_ns, t.decode_ns, "
    "t.prefill_ns, t.draft_prefill_ns, t.stop = 'stop_token', (t.idx = 0) * t.prefill_ns "
    "FROM generation g LEFT JOIN turn t ON t.generation_id = g.id WHERE g.run_id = ? "
    "ORDER BY g.id";
constexpr int kFirstNumber = 10;

class Reader {
 public:
  Reader(RunData& data, Faults faults)
      : data_(data),
        faults_(faults),
        places_(data.arms, data.prompts),
        counts_(places_.size()),
        identity_(places_.size()) {
    for (const ArmInfo& a : data.arms) finished_[a.id];
  }

  void read(const results::ResultStore& store) {
    store.query("SELECT count(*) FROM generation WHERE run_id = ?", {data_.run.id},
                [&](const Row& r) {
                  const auto n = static_cast<size_t>(r.integer(0));
                  for (auto& [arm, rows] : finished_) rows.reserve(n / finished_.size() + 1);
                  data_.generations.finished.reserve(n);
                  return false;
                });
    store.query(fmt::format(kTurns, results::kLeastDistinctShare, results::kLongestCycle),
                {data_.run.id}, [&](const Row& r) {
                  if (r.integer(0) != id_) begin(r);
                  if (now_ != nullptr) {
                    int column = kFirstNumber;
                    for (double SampleRow::*number : kNumbers) now_->*number += r.number(column++);
                  }
                  return true;
                });
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
  // The first row of a generation. Those that no figure is made of are only counted.
  void begin(const Row& r) {
    now_ = nullptr;
    id_ = r.integer(0);
    Generations& all = data_.generations;
    if (all.first == 0) all.first = id_;
    all.last = id_, ++all.n;
    const int64_t arm = r.integer(1), prompt = r.integer(2);
    const bool ok = r.integer(5) != 0;
    std::string fault = r.text(6);
    if (fault.empty()) {
      auto& [count, failed] = counts_[places_.of(arm, prompt)];
      ++count, failed += !ok;
    } else {
      ++all.hidden_faults;
    }
    if (!ok || (!fault.empty() && faults_ == Faults::kLeaveOut)) return;
    Finished& f = finished_.at(arm).emplace_back();
    f.row.arm_id = arm, f.row.prompt_id = prompt;
    f.row.sample = static_cast<int>(r.integer(3));
    f.repeat = r.integer(4);
    f.place = all.finished.size();
    if (fault.empty())
      all.finished.push_back(
          {.id = id_, .arm_id = arm, .prompt_id = prompt, .sample = f.row.sample});
    f.row.fault = std::move(fault);
    f.row.tokens_hash = r.text(7), f.row.steps_hash = r.text(8);
    f.row.degenerate = r.integer(9) != 0;
    now_ = &f.row;
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
  std::unordered_map<int64_t, std::vector<Finished>> finished_;  // by arm
  int64_t id_ = 0;
  SampleRow* now_ = nullptr;  // the generation that is being read, where it counts
};

}  // namespace

void read_generations(const results::ResultStore& store, Faults faults, RunData& data) {
  Reader(data, faults).read(store);
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
