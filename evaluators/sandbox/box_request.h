// What is asked of a sandbox (box.h) and what it answers: one program, its limits, its end.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace evalrun::evaluators {

// 0 = no limit of this kind.
struct BoxLimits {
  double wall_s = 5;                       // from the program's start; CPU time: this + 1
  int64_t address_space = 0;               // bytes, per process
  int64_t data = int64_t{1} << 30;         // bytes, per process: heap and private mappings
  int64_t tree_memory = int64_t{1} << 30;  // bytes resident in all processes together
  int processes = 32;                      // threads count
  int64_t file_bytes = int64_t{16} << 20;
  int open_files = 64;
  int64_t tmp_bytes = int64_t{64} << 20;   // size of /tmp
  size_t output_bytes = size_t{64} << 10;  // of standard output and error each
};

struct BoxRequest {
  std::vector<std::string> command;  // absolute path first; paths as box_path() gives them
  std::string input;                 // standard input, through a pipe; at most kMaxInput
  std::vector<std::pair<std::string, std::string>> environment;  // besides PATH, HOME, LANG
  std::string tool_folder;     // host folder shown as "/tool", "" = none
  bool tool_writable = false;  // while it is being made
  bool job_writable = false;   // while compiling
  bool proc = false;           // a /proc: java and rustc need one, programs better have none
  // The program compiles first and then writes one byte to the control channel: up to there
  // `compile_wall_s` holds, from there limits.wall_s.
  bool compiles_first = false;
  double compile_wall_s = 0;
  BoxLimits limits;
};

struct BoxResult {
  enum class End { kExited, kSignalled, kTimeout, kMemory, kOutput, kControlFlood, kBroken };
  End end = End::kBroken;
  int exit_code = 0;  // kExited
  int signal = 0;     // kSignalled
  std::string out, err;
  std::string control;           // what arrived on descriptor 3
  double wall_ms = 0;            // of the program, without the box around it
  double compile_ms = 0;         // of wall_ms, up to the first control byte (compiles_first)
  std::optional<double> cpu_ms;  // unknown when it was killed
  double cpu_limit_s = 0;
  int64_t peak_rss = 0;  // bytes: largest process, or largest tree seen
  std::string problem;   // kBroken: why
};

constexpr size_t kMaxInput = size_t{1} << 20;

}  // namespace evalrun::evaluators
