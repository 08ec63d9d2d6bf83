#include "reports/load/load_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "reports/data/bootstrap.h"

namespace evalrun::reports {
namespace {

using results::LoadArrival;
using results::LoadBlock;
using results::LoadRequest;

double load_ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }
double load_s(int64_t ns) { return static_cast<double>(ns) / 1e9; }

// Whether the server says how many tokens each piece has. The stop token may come in none.
bool is_counted(const LoadRequest& r) {
  int64_t sum = 0;
  for (const LoadArrival& a : r.arrivals) sum += a.tokens;
  return sum > 0 && sum + 1 >= r.tokens;
}

// From the first token to the last, where there is such a time.
struct DecodeTime {
  double tokens = 0, ns = 0;
};
std::optional<DecodeTime> decode_time(const LoadRequest& r) {
  if (!r.ok() || r.tokens < 2 || r.arrivals.size() < 2) return std::nullopt;
  const int64_t ns = r.arrivals.back().ns - r.arrivals.front().ns;
  if (ns <= 0) return std::nullopt;
  return DecodeTime{static_cast<double>(r.tokens - 1), static_cast<double>(ns)};
}

// The times of one server at one level.
struct LoadTimes {
  std::vector<PromptTime> ttft, tpot, itl, gap, stall, latency;
};

// A piece of k tokens: in `itl` its gap is spread over them, in `gap` it is k - 1 gaps of 0 and
// one.
void add_gaps(const LoadRequest& r, int prompt, LoadTimes& times) {
  double longest = 0;
  std::optional<int64_t> before;
  const bool counted = is_counted(r);
  for (const LoadArrival& a : r.arrivals) {
    if (counted && a.tokens == 0) continue;
    const double ms = before ? load_ms(a.ns - *before) : 0;
    longest = std::max(longest, ms);
    if (counted && before) {
      times.itl.push_back({ms / static_cast<double>(a.tokens), a.tokens, prompt});
      times.gap.push_back({ms, 1, prompt});
    }
    if (counted) {
      times.gap.push_back({0, a.tokens - 1, prompt});
      if (!before) times.itl.push_back({0, a.tokens - 1, prompt});
    }
    before = a.ns;
  }
  if (r.arrivals.size() > 1) times.stall.push_back({longest, 1, prompt});
}

void add_request(const LoadRequest& r, int prompt, LoadTimes& times) {
  if (!r.ok()) return;
  times.latency.push_back({load_ms(r.end_ns - r.scheduled_ns), 1, prompt});
  if (!r.arrivals.empty()) times.ttft.push_back({load_ms(r.first_ns - r.scheduled_ns), 1, prompt});
  if (const auto t = decode_time(r)) times.tpot.push_back({t->ns / 1e6 / t->tokens, 1, prompt});
  add_gaps(r, prompt, times);
}

int64_t tokens_of_block(const LoadBlock& block) {
  int64_t sum = 0;
  for (const LoadRequest& r : block.requests) sum += r.ok() ? r.tokens : 0;
  return sum;
}

// Tokens until the first client of a closed loop had nothing left to ask, and that time.
std::optional<RatioTerm> full_time(const LoadBlock& block, int clients) {
  std::vector<int64_t> ends;
  for (const LoadRequest& r : block.requests) {
    if (!r.ok() || !is_counted(r)) return std::nullopt;
    ends.push_back(r.end_ns);
  }
  if (ends.empty()) return std::nullopt;
  std::sort(ends.begin(), ends.end());
  const size_t busy = std::min(static_cast<size_t>(std::max(clients, 1)), ends.size());
  const int64_t until = ends[ends.size() - busy];
  RatioTerm term{0, load_s(until)};
  for (const LoadRequest& r : block.requests)
    for (const LoadArrival& a : r.arrivals)
      if (a.ns <= until) term.numerator += static_cast<double>(a.tokens);
  return term.denominator > 0 ? std::optional(term) : std::nullopt;
}

// What arrived and what ended in the second halves of open blocks, when the first requests no
// longer count as the start.
struct LoadQueue {
  double arrived = 0, ended = 0, seconds = 0;
  bool too_short = false;
  void add(const LoadBlock& block) {
    int64_t last = 0, shortest = 0;
    for (const LoadRequest& r : block.requests) {
      last = std::max(last, r.scheduled_ns);
      const int64_t served = r.end_ns - r.sent_ns;
      if (r.ok() && (shortest == 0 || served < shortest)) shortest = served;
    }
    const int64_t half = last / 2;
    too_short = too_short || last - half < 2 * shortest;
    for (const LoadRequest& r : block.requests) {
      arrived += r.scheduled_ns > half ? 1 : 0;
      ended += r.ok() && r.end_ns > half && r.end_ns <= last ? 1 : 0;
    }
    seconds += load_s(last - half);
  }
  // More came than went, by a tenth, and by twice what Poisson arrivals do by chance.
  std::optional<bool> saturated() const {
    if (too_short || arrived == 0) return std::nullopt;
    return ended < 0.9 * arrived && arrived - ended > 2 * std::sqrt(arrived);
  }
};

bool is_good(const LoadRequest& r, const LoadObjective& slo) {
  if (!r.ok() || r.arrivals.empty()) return false;
  if (slo.ttft_ms && load_ms(r.first_ns - r.scheduled_ns) > *slo.ttft_ms) return false;
  const auto t = decode_time(r);
  // An answer of one piece has no time between tokens to be too long.
  return !slo.tpot_ms || !t || t->ns / 1e6 / t->tokens <= *slo.tpot_ms;
}

// All blocks of a run, and which are whose.
class LoadBuilder {
 public:
  LoadBuilder(const results::LoadRun& run, const LoadObjective& slo) : run_(run), slo_(slo) {
    for (const LoadBlock& block : run.blocks) {
      blocks_[{block.place.level, block.place.server}].push_back(&block);
      for (const LoadRequest& r : block.requests) prompts_.emplace(r.prompt, 0);
    }
    int n = 0;
    for (auto& [id, number] : prompts_) number = n++;
  }

  std::vector<LoadRow> rows() const {
    std::vector<LoadRow> rows;
    for (const auto& [place, blocks] : blocks_) rows.push_back(row(place, blocks));
    return rows;
  }

 private:
  using Place = std::pair<int, int>;  // level, server
  using Blocks = std::vector<const LoadBlock*>;

  LoadRow row(const Place& place, const Blocks& blocks) const {
    LoadRow row;
    row.level = place.first, row.server = place.second;
    row.blocks = static_cast<int64_t>(blocks.size());
    count(blocks, row);
    add_speeds(blocks, row);
    add_times(blocks, row);
    add_goodput(blocks, row);
    if (run_.setup.levels[static_cast<size_t>(row.level)].open()) add_queue(blocks, row);
    // A/A is a server like any other.
    if (const auto base = blocks_.find({row.level, 0}); base != blocks_.end() && row.server != 0)
      compare(blocks, base->second, row);
    return row;
  }

  void count(const Blocks& blocks, LoadRow& row) const {
    double cpu = 0, busy = 0, drafted = 0, accepted = 0;
    for (const LoadBlock* block : blocks) {
      row.wall_s += load_s(block->wall_ns);
      cpu += load_s(block->cpu_ns);
      for (const LoadRequest& r : block->requests) {
        ++row.requests;
        row.late += r.late ? 1 : 0;
        row.retried += r.attempts > 1 ? 1 : 0;
        busy += load_s(r.end_ns - r.sent_ns);
        if (!r.ok()) {
          if (row.failed++ == 0) row.problem = r.problem.empty() ? r.fault : r.problem;
          continue;
        }
        row.uncounted += is_counted(r) ? 0 : 1;
        drafted += static_cast<double>(r.drafted.value_or(0));
        accepted += static_cast<double>(r.accepted.value_or(0));
      }
    }
    if (row.wall_s > 0) row.client_cpu = cpu / row.wall_s, row.in_flight = busy / row.wall_s;
    if (drafted > 0) row.alpha = accepted / drafted;
  }

  void add_speeds(const Blocks& blocks, LoadRow& row) const {
    const results::LoadLevel& level = run_.setup.levels[static_cast<size_t>(row.level)];
    std::vector<RatioTerm> tokens, requests;
    RatioTerm full;
    bool all_full = !level.open();
    for (const LoadBlock* block : blocks) {
      const double seconds = load_s(block->wall_ns);
      const auto ok = std::count_if(block->requests.begin(), block->requests.end(),
                                    [](const LoadRequest& r) { return r.ok(); });
      tokens.push_back({static_cast<double>(tokens_of_block(*block)), seconds});
      requests.push_back({static_cast<double>(ok), seconds});
      if (!all_full) continue;
      const std::optional<RatioTerm> term = full_time(*block, level.clients);
      all_full = term.has_value();
      if (term) full.numerator += term->numerator, full.denominator += term->denominator;
    }
    if (row.failed == row.requests) return;
    row.tok_s = ratio_of_sums(tokens);
    row.req_s = ratio_of_sums(requests);
    if (all_full && full.denominator > 0) row.full_tok_s = full.numerator / full.denominator;
  }

  void add_times(const Blocks& blocks, LoadRow& row) const {
    LoadTimes times;
    for (const LoadBlock* block : blocks)
      for (const LoadRequest& r : block->requests) add_request(r, prompts_.at(r.prompt), times);
    if (!times.stall.empty())
      row.longest_stall_ms =
          std::max_element(times.stall.begin(), times.stall.end(),
                           [](const PromptTime& a, const PromptTime& b) { return a.ms < b.ms; })
              ->ms;
    // Equal prompts are drawn for all servers of a level.
    const uint64_t seed = seed_of(fmt::format("{} {}", run_.setup.prompts_hash, run_.setup.seed));
    row.ttft = percentiles_by_prompt(std::move(times.ttft), seed);
    row.tpot = percentiles_by_prompt(std::move(times.tpot), seed);
    row.itl = percentiles_by_prompt(std::move(times.itl), seed);
    row.gap = percentiles_by_prompt(std::move(times.gap), seed);
    row.stall = percentiles_by_prompt(std::move(times.stall), seed);
    row.latency = percentiles_by_prompt(std::move(times.latency), seed);
  }

  void add_goodput(const Blocks& blocks, LoadRow& row) const {
    if (slo_.empty() || row.requests == 0 || row.wall_s <= 0) return;
    double good = 0;
    std::set<std::string> prompts;
    for (const LoadBlock* block : blocks)
      for (const LoadRequest& r : block->requests) {
        good += is_good(r, slo_) ? 1 : 0;
        prompts.insert(r.prompt);
      }
    row.good_share = good / static_cast<double>(row.requests);
    row.good_rps = good / row.wall_s;
    // Repeats of a prompt say little that the first did not.
    row.good_interval = base::wilson_interval(*row.good_share, prompts.size(), 0.95);
  }

  void add_queue(const Blocks& blocks, LoadRow& row) const {
    LoadQueue queue;
    for (const LoadBlock* block : blocks) queue.add(*block);
    if (queue.seconds <= 0) return;
    row.offered_rps = queue.arrived / queue.seconds;
    row.served_rps = queue.ended / queue.seconds;
    row.saturated = queue.saturated();
  }

  // The same prompts at the same level and repeat, of the server and of the baseline.
  void compare(const Blocks& blocks, const Blocks& base, LoadRow& row) const {
    std::map<std::pair<int, int>, const LoadBlock*> of_base;  // by repeat and slice
    for (const LoadBlock* b : base) of_base[{b->place.repeat, b->place.slice}] = b;
    std::vector<PromptPair> by_block;
    std::map<std::string, PromptPair> by_prompt, idle;
    for (const LoadBlock* block : blocks) {
      const auto found = of_base.find({block->place.repeat, block->place.slice});
      if (found == of_base.end()) continue;
      by_block.push_back({.base_tokens = static_cast<double>(tokens_of_block(*found->second)),
                          .base_ns = static_cast<double>(found->second->wall_ns),
                          .tokens = static_cast<double>(tokens_of_block(*block)),
                          .ns = static_cast<double>(block->wall_ns)});
      add_pairs(*block, *found->second, by_prompt, idle);
    }
    row.tok_s_ratio = speedup_sum(by_block);
    row.tpot_ratio = inverse(by_prompt);
    row.idle_ratio = inverse(idle);
  }

  static void add_pairs(const LoadBlock& block, const LoadBlock& base,
                        std::map<std::string, PromptPair>& all,
                        std::map<std::string, PromptPair>& idle) {
    std::map<int, const LoadRequest*> of_base;
    for (const LoadRequest& r : base.requests) of_base[r.index] = &r;
    for (const LoadRequest& r : block.requests) {
      const auto found = of_base.find(r.index);
      if (found == of_base.end()) continue;
      const auto own = decode_time(r), other = decode_time(*found->second);
      if (!own || !other) continue;
      const auto add = [&](PromptPair& pair) {
        pair.tokens += own->tokens, pair.ns += own->ns;
        pair.base_tokens += other->tokens, pair.base_ns += other->ns;
      };
      add(all[r.prompt]);
      if (r.accepted && *r.accepted == 0) add(idle[r.prompt]);
    }
  }

  // Time over time, where speedup_sum() has speed over speed.
  static std::optional<Estimate> inverse(const std::map<std::string, PromptPair>& pairs) {
    std::vector<PromptPair> list;
    for (const auto& [prompt, pair] : pairs) list.push_back(pair);
    std::optional<Estimate> speed = speedup_sum(list);
    if (!speed || speed->value <= 0) return std::nullopt;
    speed->value = 1 / speed->value;
    if (speed->interval)
      speed->interval = base::Interval{1 / speed->interval->hi, 1 / speed->interval->lo};
    return speed;
  }

  const results::LoadRun& run_;
  const LoadObjective& slo_;
  std::map<Place, Blocks> blocks_;
  std::map<std::string, int> prompts_;  // numbers by id
};

// "500ms" or "0.5s" in milliseconds.
std::optional<double> objective_ms(std::string_view text) {
  const bool ms = text.ends_with("ms");
  if (!ms && !text.ends_with('s')) return std::nullopt;
  text.remove_suffix(ms ? 2 : 1);
  const auto value = base::parse_number<double>(text);
  if (!value || *value <= 0) return std::nullopt;
  return ms ? *value : *value * 1000;
}

}  // namespace

LoadObjective parse_objective(const std::string& text, const std::string& where) {
  LoadObjective slo;
  for (const std::string& part : base::split(text, ',')) {
    const size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    if (equals == part.npos || (name != "ttft" && name != "tpot"))
      throw base::usage_error(fmt::format("{}: '{}' is no latency bound", where, part),
                              fmt::format("for example {} ttft=500ms,tpot=50ms", where));
    const std::optional<double> ms = objective_ms(std::string_view(part).substr(equals + 1));
    if (!ms)
      throw base::usage_error(fmt::format("{}: '{}' is no time above 0", where, part),
                              "write ms or s after the number: 500ms, 0.5s");
    (name == "ttft" ? slo.ttft_ms : slo.tpot_ms) = ms;
  }
  return slo;
}

LoadReport load_report(const results::LoadRun& run, const LoadObjective& objective) {
  return {.setup = run.setup,
          .objective = objective,
          .rows = LoadBuilder(run, objective).rows(),
          .unfinished = run.unfinished};
}

bool all_failed(const LoadRow& row) { return row.requests > 0 && row.failed == row.requests; }

}  // namespace evalrun::reports
