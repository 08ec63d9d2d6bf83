// By hand: a result file as large as years of measuring make it, and what reports of it ask of
// SQLite. docs/schema.md, "Size and speed", has the figures.
//
//   scale_study make FILE [RUNS [ARMS [PROMPTS [STEPS]]]]
//   scale_study shards FOLDER [MACHINES [ARMS [PROMPTS [STEPS [OWN]]]]]
//                                       a file of each machine, to be merged; PROMPTS of each. OWN
//                                       = 1: files without the others' prompts (docs/scale.md)
//   scale_study ask FILE RUN OTHER      a report of RUN and a comparison, statement by statement
//   scale_study parts FILE N            its only run as N machines would have measured it: FILE.1,
//                                       FILE.2, ...
//   scale_study merge OUT FILE...       time and memory of a merge
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "reports/compare/compare.h"
#include "reports/figures/report.h"
#include "results/merge/merge_runs.h"
#include "tests/reports/data/query_watch.h"
#include "tests/reports/data/scale_store.h"

namespace {

using namespace evalrun;

template <typename F>
double seconds(const F& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void make(const std::vector<std::string>& arguments) {
  tests::ScaleShape shape;
  int* numbers[] = {&shape.runs, &shape.arms, &shape.prompts, &shape.steps};
  for (size_t i = 2; i < arguments.size(); ++i) *numbers[i - 2] = std::atoi(arguments[i].c_str());
  results::ResultStore store(arguments[1]);
  const double s = seconds([&] { tests::fill_at_scale(store, shape); });
  fmt::print("{} runs, {} generations of {} steps in {:.1f} s\n", shape.runs,
             int64_t{shape.runs} * shape.arms * shape.prompts, shape.steps, s);
}

void make_shards(const std::vector<std::string>& arguments) {
  tests::ScaleShape shape;
  shape.prompts = 25;
  int machines = 1000, own_prompts = 0;
  int* numbers[] = {&machines, &shape.arms, &shape.prompts, &shape.steps, &own_prompts};
  for (size_t i = 2; i < arguments.size(); ++i) *numbers[i - 2] = std::atoi(arguments[i].c_str());
  std::filesystem::create_directories(arguments[1]);
  const double s = seconds([&] {
    for (int number = 1; number <= machines; ++number) {
      results::ResultStore store(fmt::format("{}/shard-{:04}.db", arguments[1], number));
      tests::fill_shard(store, shape, {number, machines}, own_prompts != 0);
    }
  });
  const int64_t generations = int64_t{machines} * shape.arms * shape.prompts;
  fmt::print("{} files, {} generations, {} steps in {:.1f} s\n", machines, generations,
             generations * shape.steps, s);
}

void ask(const std::vector<std::string>& arguments) {
  tests::QueryWatch watch;
  const results::ResultStore store(arguments[1], results::ResultStore::Mode::kReadOnly);
  const int64_t run = std::atoll(arguments[2].c_str()), other = std::atoll(arguments[3].c_str());
  watch.take();
  const auto show = [&](const char* what, double s) {
    fmt::print("\n{}: {:.3f} s\n", what, s);
    for (const tests::WatchedQuery& q : watch.take()) {
      if (q.seconds < 0.001) continue;
      fmt::print("{:8.3f} s  {}\n", q.seconds, q.sql);
      for (const std::string& line : tests::query_plan(store, q.sql))
        fmt::print("            {}\n", line);
    }
    watch.take();  // the plans
  };
  show("report", seconds([&] { reports::build_report(store, run); }));
  show("compare", seconds([&] { reports::compare_runs(store, run, store, other); }));
}

void parts(const std::vector<std::string>& arguments) {
  const int64_t n = std::atoll(arguments[2].c_str());
  for (int64_t i = 1; i <= n; ++i) {
    const std::string path = fmt::format("{}.{}", arguments[1], i);
    std::filesystem::copy_file(arguments[1], path);
    results::ResultStore store(path);
    const auto count = [&](const char* table) {
      int64_t rows = 0;
      store.query(fmt::format("SELECT count(*) FROM {}", table), {}, [&](const results::Row& row) {
        rows = row.integer(0);
        return false;
      });
      return rows;
    };
    store.add_plan(1, {"scale", count("arm"), count("prompt"), 1, 1});
    const int64_t machine =
        store.add_machine(1, {fmt::format("k{}", i), fmt::format("host-{}", i), {}});
    store.execute("DELETE FROM generation WHERE prompt_id % ? <> ?", {n, i - 1});
    store.execute("UPDATE generation SET machine_id = ?", {machine});
    store.execute("VACUUM");
  }
}

void merge(const std::vector<std::string>& arguments) {
  std::vector<results::MergeInput> inputs;
  for (size_t i = 2; i < arguments.size(); ++i) inputs.push_back({arguments[i]});
  results::MergeOutcome outcome;
  const double s = seconds([&] { outcome = results::merge_runs(arguments[1], inputs); });
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  fmt::print("{} of {} generations in {:.1f} s, {} MB at most\n", outcome.stored,
             outcome.plan.generations(), s, usage.ru_maxrss / 1024);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() >= 2 && arguments.size() <= 6 && arguments[0] == "make")
    make(arguments);
  else if (arguments.size() >= 2 && arguments.size() <= 7 && arguments[0] == "shards")
    make_shards(arguments);
  else if (arguments.size() == 4 && arguments[0] == "ask")
    ask(arguments);
  else if (arguments.size() == 3 && arguments[0] == "parts")
    parts(arguments);
  else if (arguments.size() >= 3 && arguments[0] == "merge")
    merge(arguments);
  else
    return std::fputs(
               "scale_study make FILE [RUNS [ARMS [PROMPTS [STEPS]]]] | shards FOLDER [MACHINES "
               "[ARMS [PROMPTS [STEPS [OWN]]]]] | ask FILE RUN OTHER | parts FILE N | merge OUT "
               "FILE...\n",
               stderr),
           2;
  return 0;
}
