#include "engine/cost/row_cost.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/stats.h"
#include "engine/cost/machine_probes.h"
#include "engine/cpu/caches.h"
#include "engine/devices.h"

namespace evalrun::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLeastRounds = 3;
// Drafts are mostly short, so their prices must be right, and forwards of few rows are cheap:
// several of each in a round.
constexpr int kFewRows = 8, kRepeats = 3;
constexpr int kPrefillRounds = 3;
// Of larger models a part is enough to read, if the caches hold little of it: a probe as large as
// the model would need its memory a second time.
constexpr int64_t kEnoughToRead = int64_t{1} << 30;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Ids all over the vocabulary: a cost does not depend on them, but caches should see no pattern.
int32_t token_at(int i, int vocab) {
  return static_cast<int32_t>((static_cast<uint32_t>(i) * 2654435761u >> 8) %
                              static_cast<uint32_t>(vocab));
}

std::vector<int32_t> tokens_of(int n, int vocab) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) tokens[static_cast<size_t>(i)] = token_at(i, vocab);
  return tokens;
}

// Linear interpolation between order statistics, as most programs define quartiles.
double quantile(std::vector<double> x, double p) {
  std::sort(x.begin(), x.end());
  const double at = p * static_cast<double>(x.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, x.size() - 1);
  return x[below] + (at - static_cast<double>(below)) * (x[above] - x[below]);
}

constexpr double PhaseTimes::*kPhases[] = {&PhaseTimes::weights, &PhaseTimes::attention,
                                           &PhaseTimes::norms, &PhaseTimes::head,
                                           &PhaseTimes::waits};

// All forwards of one session and one row count.
struct Samples {
  std::vector<double> ms;
  std::vector<PhaseTimes> phases;

  RowCost summary(int rows) const {
    RowCost cost;
    cost.rows = rows;
    cost.ms = base::median(ms);
    cost.q1_ms = quantile(ms, 0.25);
    cost.q3_ms = quantile(ms, 0.75);
    std::vector<double> values(phases.size());
    for (const auto phase : kPhases) {
      std::transform(phases.begin(), phases.end(), values.begin(),
                     [&](const PhaseTimes& p) { return p.*phase; });
      cost.phases.*phase = base::median(values);
    }
    return cost;
  }
};

class Measurement {
 public:
  Measurement(std::span<const std::unique_ptr<Session>> sessions, const RowCostOptions& options)
      : sessions_(sessions), o_(options), rows_(options.rows) {
    rows_.push_back(1);
    std::sort(rows_.begin(), rows_.end());
    rows_.erase(std::unique(rows_.begin(), rows_.end()), rows_.end());
    EVALRUN_CHECK(!sessions.empty() && rows_.front() == 1 && o_.sequences >= 1 &&
                      rows_.back() <= kMaxRows / o_.sequences && o_.context >= 1,
                  "{} sessions, rows {} to {} of {} sequences, context {}", sessions.size(),
                  rows_.front(), rows_.back(), o_.sequences, o_.context);
    for (const auto& s : sessions)
      EVALRUN_CHECK(
          s->capacity() >= row_cost_capacity(o_) && s->options().n_sequences >= o_.sequences,
          "a session of {} sequences of {} tokens for {} of {}", s->options().n_sequences,
          s->capacity(), o_.sequences, row_cost_capacity(o_));
    chains_.resize(static_cast<size_t>(rows_.back() * o_.sequences));
  }

  std::vector<RowCostTable> run() {
    tables_.resize(sessions_.size());
    for (size_t s = 0; s < sessions_.size(); ++s) {
      tables_[s].context = o_.context;
      tables_[s].sequences = o_.sequences;
      tables_[s].bytes = sessions_[s]->bytes_per_forward(o_.context * o_.sequences);
      commit_context(*sessions_[s]);
    }
    make_probes();
    warm_up();
    samples_.assign(sessions_.size(), std::vector<Samples>(rows_.size()));
    measure_rounds();
    for (size_t s = 0; s < sessions_.size(); ++s) {
      tables_[s].rounds = rounds_;
      for (size_t i = 0; i < rows_.size(); ++i)
        tables_[s].rows.push_back(samples_[s][i].summary(rows_[i]));
      if (probe_of_[s] != nullptr) tables_[s].set_floor(floor_rounds_[s]);
    }
    probes_.clear();
    measure_prefill();
    for (const auto& session : sessions_) session->reset();
    return std::move(tables_);
  }

 private:
  void commit_context(Session& session) const {
    session.reset();
    session.prefill(tokens_of(o_.context, session.model().config().vocab_size));
    // Copies, each in memory of its own: they cost less than a prefill and are read like one.
    for (int s = 1; s < o_.sequences; ++s) session.fork(0, s);
  }

  double forward(Session& session, int n) {
    const int vocab = session.model().config().vocab_size;
    const int rows = n * o_.sequences;
    for (int i = 0; i < rows; ++i) {
      Row& row = chains_[static_cast<size_t>(i)];
      row = Row{};
      row.token = token_at(o_.context + i, vocab);
      row.parent = i % n == 0 ? -1 : i - 1;
      row.sequence = i / n;
      row.logits = false;
      row.top = true;
    }
    ForwardRequest request;
    request.rows = std::span<const Row>(chains_).first(static_cast<size_t>(rows));
    const Clock::time_point begin = Clock::now();
    session.forward(request);
    return ms_since(begin);
  }

  // Once through everything in ascending order: allocations and first touches happen here. On a GPU
  // once more: graphs that were captured before a buffer moved are gone.
  void warm_up() {
    double spent = 0;
    for (size_t i = 0; i < rows_.size(); ++i) {
      for (const auto& session : sessions_) spent += forward(*session, rows_[i]);
      // `spent` is the price of a round so far.
      if (o_.limit_seconds > 0 && kLeastRounds * spent > 1e3 * o_.limit_seconds) {
        rows_.resize(i + 1);
        break;
      }
    }
    for (const auto& session : sessions_)
      if (is_gpu(session->options().device))
        for (const int n : rows_) forward(*session, n);
  }

  void measure_rounds() {
    std::vector<size_t> order;
    for (int repeat = 0; repeat < kRepeats; ++repeat)
      for (size_t i = 0; i < rows_.size(); ++i)
        if (rows_[i] <= kFewRows || repeat + 1 == kRepeats) order.push_back(i);
    const Clock::time_point begin = Clock::now();
    for (int round = 0; round < o_.most_rounds; ++round) {
      const double elapsed = ms_since(begin);
      if (o_.rounds > 0 ? round >= o_.rounds : round >= kLeastRounds && elapsed >= 1e3 * o_.seconds)
        break;
      ++rounds_;
      if (o_.progress) o_.progress(round + 1, expected_rounds(round, elapsed));
      for (size_t s = 0; s < sessions_.size(); ++s) {
        FloorRound floor;
        floor.before = look(s);
        std::vector<double> alone;
        forward(*sessions_[s], 1);  // wakes the session's threads, which may have gone to sleep
        for (size_t i = 0; i < order.size(); ++i) {
          // Every other round goes down: no row count always follows the same neighbour.
          const size_t at = order[round % 2 == 0 ? i : order.size() - 1 - i];
          samples_[s][at].ms.push_back(forward(*sessions_[s], rows_[at]));
          samples_[s][at].phases.push_back(sessions_[s]->phases());
          if (at == 0) alone.push_back(samples_[s][at].ms.back());
        }
        floor.after = look(s);
        floor.ms = base::median(alone);
        floor_rounds_[s].push_back(floor);
      }
    }
  }

  int expected_rounds(int done, double elapsed_ms) const {
    if (o_.rounds > 0) return std::min(o_.rounds, o_.most_rounds);
    if (done == 0) return kLeastRounds;
    const double fit = 1e3 * o_.seconds * done / std::max(elapsed_ms, 1e-6);
    return std::clamp(static_cast<int>(std::min(fit, 1e6)), std::max(kLeastRounds, done),
                      o_.most_rounds);
  }

  // Sessions that read as much with as many threads share one.
  void make_probes() {
    floor_rounds_.resize(sessions_.size());
    probe_of_.assign(sessions_.size(), nullptr);
    if (o_.bandwidth_seconds <= 0) return;
    const auto most =
        static_cast<size_t>(std::max(kEnoughToRead, cpu::kTimesTheCaches * cpu::cache_bytes()));
    for (size_t s = 0; s < sessions_.size(); ++s) {
      if (is_gpu(sessions_[s]->options().device)) continue;  // its memory is not what is read
      const std::pair key(std::min(tables_[s].bytes, most), sessions_[s]->n_threads());
      probe_of_[s] = &probes_.try_emplace(key, key.first, key.second).first->second;
    }
  }

  // 0 without a probe.
  double look(size_t s) {
    return probe_of_[s] == nullptr ? 0 : probe_of_[s]->bytes_per_second(o_.bandwidth_seconds);
  }

  void measure_prefill() {
    for (const int n : o_.prefill) {
      std::vector<std::vector<double>> ms(sessions_.size());
      for (int round = 0; round <= kPrefillRounds; ++round)
        for (size_t s = 0; s < sessions_.size(); ++s) {
          const auto tokens = tokens_of(n, sessions_[s]->model().config().vocab_size);
          sessions_[s]->reset();
          const Clock::time_point begin = Clock::now();
          sessions_[s]->prefill(tokens);
          if (round > 0) ms[s].push_back(ms_since(begin));  // the first one grows buffers
        }
      for (size_t s = 0; s < sessions_.size(); ++s)
        tables_[s].prefill.push_back({n, base::median(ms[s])});
    }
  }

  std::span<const std::unique_ptr<Session>> sessions_;
  const RowCostOptions& o_;
  std::vector<int> rows_;
  std::vector<Row> chains_;                    // one after the other
  std::vector<std::vector<Samples>> samples_;  // [session][row count]
  int rounds_ = 0;
  std::map<std::pair<size_t, int>, ReadProbe> probes_;  // by bytes and threads
  std::vector<ReadProbe*> probe_of_;                    // [session], null = none
  std::vector<std::vector<FloorRound>> floor_rounds_;   // [session][round]
  std::vector<RowCostTable> tables_;
};

}  // namespace

double RowCostTable::ms(int n) const {
  EVALRUN_CHECK(!rows.empty() && n >= 1, "{} rows of a table of {}", n, rows.size());
  const auto above = std::lower_bound(rows.begin(), rows.end(), n,
                                      [](const RowCost& r, int count) { return r.rows < count; });
  if (above == rows.begin()) return rows.front().ms;
  if (above != rows.end()) {
    const RowCost &a = *(above - 1), &b = *above;
    return a.ms + (b.ms - a.ms) * (n - a.rows) / (b.rows - a.rows);
  }
  if (rows.size() == 1) return rows.front().ms;
  const RowCost &a = rows[rows.size() - 2], &b = rows.back();
  return b.ms + std::max(0.0, b.ms - a.ms) * (n - b.rows) / (b.rows - a.rows);
}

void RowCostTable::set_floor(std::span<const FloorRound> floor_rounds) {
  EVALRUN_CHECK(!floor_rounds.empty(), "a floor of no rounds");
  std::vector<double> bandwidths, shares;
  for (const FloorRound& round : floor_rounds) {
    bandwidths.push_back(std::max(round.before, round.after));
    shares.push_back(1e3 * static_cast<double>(bytes) / bandwidths.back() / round.ms);
  }
  bandwidth = base::median(bandwidths);
  floor_share = base::median(shares);
}

// A row for every n up to the last measured count, and two beyond it: these lie on the line that
// this table goes on with.
RowCostTable RowCostTable::of_batch(int batch) const {
  EVALRUN_CHECK(batch >= 1 && sequences == 1, "a batch of {} from a table of {}", batch, sequences);
  if (batch == 1 || empty()) return *this;
  RowCostTable table;
  table.shape = shape;
  table.context = context;
  table.sequences = batch;
  table.rounds = rounds;
  const int last = rows.back().rows / batch + 2;
  for (int n = 1; n <= last; ++n) {
    RowCost cost;
    cost.rows = n;
    cost.ms = ms(n * batch);
    table.rows.push_back(cost);
  }
  return table;
}

int row_cost_capacity(const RowCostOptions& options) {
  int rows = 1, prompt = 0;
  for (const int n : options.rows) rows = std::max(rows, n);
  for (const int n : options.prefill) prompt = std::max(prompt, n);
  return std::max(options.context + rows, prompt);
}

std::vector<RowCostTable> measure_row_cost(std::span<const std::unique_ptr<Session>> sessions,
                                           const RowCostOptions& options) {
  return Measurement(sessions, options).run();
}

}  // namespace evalrun::engine
