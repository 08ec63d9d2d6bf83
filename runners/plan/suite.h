// What a run measures, as one JSON file: methods, tasks, lengths, repeats, sampling, order. Keys
// are strict: an unknown or mistyped one is a usage error that names file and field. Every field
// can also be set on the command line of `evalrun run`, with or without a suite.
//
//   {"name": "mine", "methods": ["ar", "pld:k=10"], "aa": true, "max_new": 128, "repeats": 3,
//    "tasks": ["gsm8k", {"task": "mt_bench", "limit": 20, "max_new": 256,
//                        "chat_template": "vicuna"}]}
//
// Field by field: docs/suites.md.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/sampling.h"
#include "methods/registration.h"
#include "runners/endpoints/endpoint.h"
#include "runners/plan/batches.h"

namespace evalrun::runners {

// kInterleaved: arms back to back per prompt, each arm in each slot equally often (the default).
// kRandom: the same, arm order drawn anew for each visit. kSequential: one arm after the other over
// the whole set; drift of the machine then looks like a difference between arms.
enum class Order { kInterleaved, kRandom, kSequential };
const char* to_string(Order order);
Order parse_order(std::string_view text, const std::string& where);  // usage_error

// One data set of a suite. 0 means "as the suite says".
struct TaskSpec {
  std::string task;  // see datasets::load_dataset
  double limit = 0;  // >= 1: that many prompts, 0 < f < 1: that share, < 0: all
  int max_new = 0;
  std::string chat_template = {};  // a named one; "" = the model's, or that of the command line
  bool operator==(const TaskSpec&) const = default;
};

struct Suite {
  std::string name = "custom";
  std::string summary;
  // Paths or names of models (docs/suites.md); empty: the one of the command line. A run is of one
  // model: of several, one_per_model() makes as many suites.
  std::vector<std::string> models;
  // "pld:k=10"; "ar" is put first when it is missing. Beside endpoints just those named, if any.
  std::vector<std::string> methods;
  // Measured when what they need (a draft model, a corpus) exists, else left out with a warning.
  std::vector<std::string> optional_methods;
  std::vector<EndpointSpec> endpoints;  // servers, measured as further arms
  // The arm that others are compared with: an endpoint's name or a method's label; "" = the first
  // endpoint. Without endpoints plain decoding, and nothing else.
  std::string baseline;
  bool aa = true;  // the baseline a second time: the noise floor of the session
  std::vector<TaskSpec> tasks;
  int max_new = 0;    // 0 = each data set's default
  double limit = -1;  // per task; < 0 = all
  int max_turns = 0;  // 0 = all turns of a conversation
  int repeats = 1;
  int samples = 1;  // seeded generations per prompt
  engine::SamplingParams sampling;
  // More than one: as many runs (`evalrun run`), `sampling` has the first.
  std::vector<double> temperatures;
  uint64_t seed = 1;
  int warmup = -1;             // generations per arm; -1 = until step times settle
  double warmup_limit_s = 10;  // longest warm-up when it is automatic
  Order order = Order::kInterleaved;
  Batches batches;  // fields "batch", "batch_mode", "wave"
  // Every arm is made to follow plain decoding's text while it really drafts and verifies.
  bool replay = false;
  bool ignore_eos = false;
  bool kv_cache = true;
  bool evaluate = true;  // false = "evaluators": "none"
  // Empty = those of each data set. Among names these are kOwnEvaluators.
  std::vector<std::string> evaluators;
};
inline constexpr std::string_view kOwnEvaluators = "auto";
// Among methods: the choice of `evalrun tune method` (runners/plan/auto_method.h).
inline constexpr std::string_view kAutoMethod = methods::kChosenMethod;

// Reads and checks one suite; `file` is its name in messages. Throws usage_error.
Suite parse_suite(std::string_view json_text, const std::string& file);
// A built-in name or the path of a JSON file. Throws usage_error with the known names.
Suite load_suite(const std::string& name_or_path);

// Checks the values, the methods and the data sets against their registries; gives methods and data
// sets their one spelling; puts AR first, unless endpoints are measured.
// `where` starts the messages ("suite.json", "command line"). Throws usage_error.
void complete_suite(Suite& suite, const std::string& where);

// As many suites as there are models, each with one of them; the suite itself where it names none.
std::vector<Suite> one_per_model(const Suite& suite);

// The effective configuration: every field with its value, as stored with the run and hashed.
// It has `models`, `endpoints`, `baseline`, `batch`, `batch_mode` and `wave` only where the suite
// names some, so that other suites keep their keys.
nlohmann::json to_json(const Suite& suite);

struct BuiltinSuite {
  std::string name;
  std::string text;  // JSON
  bool paper;        // reproduces figures of one
};
// Those of papers come last.
const std::vector<BuiltinSuite>& builtin_suites();

}  // namespace evalrun::runners
