// A server under load (`evalrun load`): raw values of every request. Times are nanoseconds since
// the block began, by the client's clock.
#pragma once
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace evalrun::results {

// Closed loop: `clients` requests are in flight, each client asks again when its answer has ended.
// Open loop: `rate` requests a second arrive, and at most `clients` are in flight.
struct LoadLevel {
  int clients = 1;
  double rate = 0;  // 0 = closed loop
  bool open() const { return rate > 0; }
  bool operator==(const LoadLevel&) const = default;
};
std::string to_string(const LoadLevel& level);  // "4 clients", "0.5 requests/s"

// A block: one slice of the prompts, asked of one server at one level. Numbers count from 0.
struct LoadPlace {
  int repeat = 0, level = 0, slice = 0, server = 0;
  auto operator<=>(const LoadPlace&) const = default;
};

// A piece of the stream. 0 tokens: the server does not say how many it has.
struct LoadArrival {
  int64_t ns = 0;
  int64_t tokens = 0;
  bool operator==(const LoadArrival&) const = default;
};

struct LoadRequest {
  int index = 0;  // place in the slice
  std::string prompt;
  // Closed loop: scheduled is sent. Open loop: scheduled is when it arrived, whatever the clients
  // were doing. 0 for `first_ns` where nothing came.
  int64_t scheduled_ns = 0, sent_ns = 0, first_ns = 0, end_ns = 0;
  bool late = false;   // no client was free at its time
  int64_t tokens = 0;  // of the answer, by the server's own count; 0 where it has none
  std::vector<LoadArrival> arrivals = {};
  int attempts = 1;
  std::string fault = "none", problem;
  std::optional<int64_t> prompt_tokens, cached_tokens, drafted, accepted;
  bool ok() const { return fault == "none"; }
  bool operator==(const LoadRequest&) const = default;
};

struct LoadBlock {
  LoadPlace place;
  int64_t wall_ns = 0;                     // from the start to the end of the last answer
  int64_t cpu_ns = 0;                      // processor time of the client's process meanwhile
  std::vector<LoadRequest> requests = {};  // in the order of their ends
};

struct LoadServer {
  std::string name;
  std::string spec;       // as `--endpoint` reads it, never with a key
  std::string model;      // as the server names it
  std::string cache;      // off, declared-off, kept
  bool again = false;     // the baseline once more (A/A)
  bool verified = false;  // its API was run against the real server
  bool operator==(const LoadServer&) const = default;
};

// What was asked: equal setups go on in one file.
struct LoadSetup {
  std::vector<LoadServer> servers;  // the first one is the baseline
  std::vector<LoadLevel> levels;
  std::vector<int> slices;  // of each level: into how many the prompts are cut
  int repeats = 1;
  int prompts = 0;
  std::string tasks;         // "gsm8k"
  std::string prompts_hash;  // SHA-256 of the ids and the token ids
  int max_new = 0;
  bool ignore_eos = false;
  int retries = 0;
  double timeout_s = 0;
  uint64_t seed = 0;
  std::string client;  // version of evalrun
  bool operator==(const LoadSetup&) const = default;
};

struct LoadRun {
  LoadSetup setup;
  std::vector<LoadBlock> blocks;  // complete ones, in the order they were measured
  int64_t unfinished = 0;         // requests of blocks that did not end: in no figure
};

}  // namespace evalrun::results
