// Methods that `evalrun tune method` chose, in a file beside the tables of row costs: what the
// method name `auto` stands for (runners/plan/auto_method.h).
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/session_options.h"

namespace evalrun::engine {
class Model;
}

namespace evalrun::runners {

// Everything a choice holds for, by name, readable: "model", "draft model", "weight format",
// "device", "instruction set", "threads", "KV cache", "machine", "variables", "build", "prompts".
using ChoiceKey = std::map<std::string, std::string>;

struct MethodChoice {
  ChoiceKey key;
  std::string method;                        // as on the command line; "ar" = nothing pays
  std::map<std::string, std::string> files;  // that the method reads, name -> content hash
  // What was confirmed last, which `method` is unless it is "ar"; "" = nothing got so far.
  std::string confirmed;
  double speedup = 0, lo = 0, hi = 0;  // of it over plain decoding, with its 95 % interval
  int prompts = 0;                     // that confirmed it
  std::string chosen;                  // when: UTC, ISO 8601
};

// All but "prompts", which is "NAME SHA-256, ..." of the data sets. `session`: as asked for.
// `draft` may be null. usage_error for a model without a hash: nothing tells two apart.
ChoiceKey choice_key(const engine::Model& target, const engine::Model* draft,
                     const engine::SessionOptions& session, const std::string& prompts);

// method-choices.json in $EVALRUN_HOME; "" when there is no such folder.
std::string method_choices_path();
// Empty when there is no such file. data_error for one that is broken or of another version.
std::vector<MethodChoice> load_choices(const std::string& file);
// In the place of the one with the same key; the oldest go when there are more than 256. A broken
// file is written anew. Two writers at once: the last one wins.
void store_choice(const std::string& file, const MethodChoice& choice);

// The choice with this key, or why there is none: where the nearest one differs.
struct FoundChoice {
  std::optional<MethodChoice> choice;
  std::string why;
};
FoundChoice find_choice(const std::vector<MethodChoice>& choices, const ChoiceKey& key);

}  // namespace evalrun::runners
