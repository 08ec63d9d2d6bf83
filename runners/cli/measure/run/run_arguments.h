// What `evalrun run` is told on its command line.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evaluators/evaluator.h"
#include "runners/cli/cli.h"

namespace evalrun::cli {

// What the command line says on top of the suite; unset = as the suite says.
struct RunArguments {
  ModelLists model;
  std::string suite;
  std::vector<std::string> methods, tasks, evaluators, endpoints;
  std::optional<std::string> baseline;
  std::vector<int> max_new;
  std::vector<double> temperature;
  std::vector<int> batch;
  std::optional<std::string> batch_mode;
  std::optional<int> max_turns, repeats, samples, top_k, wave;
  std::optional<double> limit, top_p;
  std::optional<std::string> sampler;
  std::optional<uint64_t> seed;
  std::optional<std::string> warmup, order;
  std::optional<bool> aa, replay, ignore_eos, kv_cache;
  std::string data_root, label, nonce, shard, row_cost, format = "text";
  double max_time_s = 0;
  std::string copy_to, peers;
  std::vector<std::string> devices;
  bool mpi = false;
  bool shared() const { return mpi || !peers.empty(); }
  double copy_every_s = 300;
  int jobs = 0;
  evaluators::ScoringContext scoring;
  bool resume = true, plan = false, skip_long = false;
  bool energy = false;
  bool lock_step = false;
  std::string fault;  // of --lock-step=FAULT
};

// Registers all of them, and the examples of --help.
void add_run_options(CLI::App& run, RunArguments& o);

}  // namespace evalrun::cli
