// Prompts as plain data: named, versioned sets in fixed order.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/options.h"
#include "engine/base/registry.h"

namespace evalrun::datasets {

// A programming problem whose answers are run: the pieces programs are assembled from, as the data
// set has them. What a piece means in which language: evaluators/, where programs are assembled.
struct CodeProblem {
  enum class Set { kHumanEvalX, kHumanEval, kMbpp };
  Set set = Set::kHumanEvalX;
  std::string language;     // python, cpp, java, js, go, rust
  std::string task;         // official id: "CPP/0", "HumanEval/0", "11" in MBPP
  std::string declaration;  // imports and signature; HumanEval-X only. Rust programs need it
                            // before the prompt, in the others the prompt holds it
  std::string prompt;       // the official prompt, whatever is shown to the model; "" in MBPP
  std::string test;         // official tests; MBPP's asserts joined by newlines
  std::string test_setup;   // Go: package and imports of the tests; MBPP: code before them
  std::string imports;      // Go: the import block, which the prompt holds (but in Go/65)
  std::string entry_point;  // HumanEval: what check() is called with
  std::string canonical_solution;  // continues the prompt; a whole program in MBPP
};

// When text ends an answer. What completes a rule stays in the answer: cutting is the evaluator's.
struct StopRules {
  std::vector<std::string> strings;
  bool closing_brace = false;  // at the first '}' that no '{' of the answer opened
  bool empty() const { return strings.empty() && !closing_brace; }
};

struct Prompt {
  std::string id;        // unique inside its set, e.g. "gsm8k/17"
  std::string category;  // "" when the set has none
  std::string language;  // programming or natural language, "" when it does not matter
  // Prompts of a set with one group belong together and count as one in intervals: a problem in
  // several languages, say, or questions about one document. "" = on its own. A group that begins
  // with / is one of all sets: "/humaneval/3" is a problem of HumanEval and of HumanEval-X.
  std::string group = {};
  std::vector<std::string> turns;  // user messages; later ones follow the model's own answers
  // What evaluators compare with, in the set's own convention; each set's source says which.
  std::optional<std::string> reference;
  // Evaluators of its set that apply to it; empty = all of them.
  std::vector<std::string> evaluators;
  bool chat = true;                         // through the chat template; false = raw completion
  std::string chat_template = {};           // a named one for this prompt; "" = the model's
  StopRules stop;                           // besides the model's own stop tokens
  std::shared_ptr<const CodeProblem> code;  // null when answers are not programs
};

struct DatasetInfo {
  std::string name;  // "gsm8k"
  std::string summary, source, licence;
  std::string version = "1";  // bumped when prompts change
  int official_count = 0;     // 0 = no official size
  int default_max_new = 128;
  // Ids in the evaluator registry that apply, may be empty. The first is the one to quote alone.
  std::vector<std::string> evaluators;
  // Relative to the data root; none for built-in sets. More than one: the files of `parts`.
  std::vector<std::string> files;
  std::vector<std::string> alternatives;  // read in order when files[0] does not exist
  std::vector<std::string> parts;         // what name[part] may choose from
  std::vector<base::OptionInfo> options;  // what name:key=value may say
  std::string family;  // what it is a form or a part of, "samples"; else its name
};

struct LoadedDataset {
  DatasetInfo info;
  std::string task;  // the spec in its one spelling: "xsum:prompt=space"
  std::vector<Prompt> prompts;
  std::string origin;  // file it came from, or "built in"
  // "built in", "official", "subset (n of N)", "stand-in", "unverified"; by SHA-256 of the file.
  std::string verification;
};

// A data set as it was asked for (datasets/spec.h), checked.
struct DatasetSpec {
  std::string name;
  std::vector<std::string> parts;  // chosen, in the set's order; empty = all
  base::OptionValues options;
  // The one spelling, under which results are stored: parts and options in the set's order, options
  // at their defaults left out.
  std::string text;

  bool wants(std::string_view part) const;
};

struct DatasetEntry {
  DatasetInfo info;
  // data_root may be "" for built-in sets. Throws data_error (file, line, field, remedy).
  std::function<LoadedDataset(const std::string& data_root, const DatasetSpec& spec)> load;
};

const base::Registry<DatasetEntry>& dataset_registry();

// `spec`: see datasets/spec.h; "samples" is all kinds of them.
LoadedDataset load_dataset(const std::string& spec, const std::string& data_root);

// Order of precedence: the option, EVALRUN_DATA, "" (built-in sets only).
std::string resolve_data_root(const std::string& option);

// `limit` prompts (>= 1), a fraction (0 < f < 1) of them, or all (<= 0): evenly over categories,
// or languages where there are no categories, the first ones of each, in the set's order. Throws
// usage_error for a limit such as 2.5.
std::vector<Prompt> limit_prompts(std::vector<Prompt> prompts, double limit);

}  // namespace evalrun::datasets
