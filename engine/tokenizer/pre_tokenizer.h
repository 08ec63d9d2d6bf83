// Cuts normalized text into the words (pre-tokens) that the subword model works on. A pipeline of
// steps; each step works on every piece of the one before, on its own: a look-ahead never sees past
// the border an earlier step has drawn ("a  12": the digits are cut off first, so the two spaces
// stay together).
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/tokenizer/regex.h"

namespace evalrun::engine {

// What becomes of the matches of a pattern; the names are those of Hugging Face's `tokenizers`.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

class PreTokenizer {
 public:
  struct Split {
    std::optional<Regex> regex;  // absent: `literal` is searched
    std::string literal;
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool invert = false;  // the stretches between matches count as the matches
  };
  struct ByteLevel {  // optional GPT-2 splitting, then every byte as its alphabet character
    bool add_prefix_space = false;
    bool use_regex = true;
  };
  enum class Prepend { kAlways, kFirst, kNever };
  struct Metaspace {  // spaces become `mark`, and the text gets one in front
    std::string mark;
    Prepend prepend = Prepend::kAlways;
    bool split = true;  // a new piece at every mark
  };
  using Step = std::variant<Split, ByteLevel, Metaspace>;

  void add(Step step) { steps_.push_back(std::move(step)); }
  // `at_start`: the section begins where the whole text begins. Pieces are not empty.
  std::vector<std::string> split(std::string_view section, bool at_start) const;

 private:
  std::vector<Step> steps_;
};

// The GPT-2 pattern that ByteLevel(use_regex) splits by.
extern const char* const kGpt2Pattern;

struct NamedPreTokenizer {
  PreTokenizer pre_tokenizer;
  bool ignore_merges = false;  // LLaMA 3
  bool nfc = false;            // Qwen2 and Qwen3 compose first
  bool adds_bos = false;       // unless the file says otherwise
};

// The pipeline that a GGUF file's `tokenizer.ggml.pre` names; nullopt for an unknown name.
std::optional<NamedPreTokenizer> pre_tokenizer_by_name(std::string_view name);
std::vector<std::string> pre_tokenizer_names();

}  // namespace evalrun::engine
