// --shard I/N of commands that go through a list: each machine takes every N-th element, and their
// outputs together are that of the whole. (`run` divides a plan: runners/plan/shards.h.)
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "results/records.h"

namespace evalrun::cli {

class ShardOption {
 public:
  // `what`: "prompts"; `merge`: how the outputs are put together.
  void add(CLI::App& app, const std::string& what, const std::string& merge);
  bool given() const { return !text_.empty(); }
  // Whether the element of this index, from 0, is in it; all are where it was not given.
  bool takes(int64_t index) const;

 private:
  std::string text_;
};

}  // namespace evalrun::cli
