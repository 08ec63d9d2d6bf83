#include "engine/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/tokenizer/normalizer.h"
#include "engine/tokenizer/subword/byte_alphabet.h"

namespace evalrun::engine {
namespace {

struct Range {
  size_t begin, end;
  bool match;  // after apply_behavior: to be removed
};

// Matches and the stretches between them, covering the text.
std::vector<Range> cover(const PreTokenizer::Split& step, std::string_view text) {
  std::vector<std::pair<size_t, size_t>> matches;
  if (step.regex) {
    matches = step.regex->find_all(text);
  } else if (!step.literal.empty()) {
    for (size_t at = text.find(step.literal); at != std::string_view::npos;
         at = text.find(step.literal, at + step.literal.size()))
      matches.emplace_back(at, at + step.literal.size());
  }
  std::vector<Range> ranges;
  size_t done = 0;
  for (const auto& [begin, end] : matches) {
    if (begin > done) ranges.push_back({done, begin, step.invert});
    ranges.push_back({begin, end, !step.invert});
    done = end;
  }
  if (done < text.size()) ranges.push_back({done, text.size(), step.invert});
  return ranges;
}

std::vector<Range> merge_with_previous(const std::vector<Range>& ranges) {
  std::vector<Range> out;
  bool after_match = false;
  for (const Range& r : ranges) {
    if (r.match && !after_match && !out.empty())
      out.back().end = r.end;
    else
      out.push_back({r.begin, r.end, false});
    after_match = r.match;
  }
  return out;
}

std::vector<Range> merge_with_next(const std::vector<Range>& ranges) {
  std::vector<Range> out;
  bool before_match = false;
  for (auto r = ranges.rbegin(); r != ranges.rend(); ++r) {
    if (r->match && !before_match && !out.empty())
      out.back().begin = r->begin;
    else
      out.push_back({r->begin, r->end, false});
    before_match = r->match;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<Range> contiguous(const std::vector<Range>& ranges) {
  std::vector<Range> out;
  bool last_match = false;
  for (const Range& r : ranges) {
    if (!out.empty() && r.match == last_match)
      out.back().end = r.end;
    else
      out.push_back({r.begin, r.end, false});
    last_match = r.match;
  }
  return out;
}

std::vector<Range> apply_behavior(SplitBehavior behavior, std::vector<Range> ranges) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
      return ranges;
    case SplitBehavior::kIsolated:
      for (Range& r : ranges) r.match = false;
      return ranges;
    case SplitBehavior::kMergedWithPrevious:
      return merge_with_previous(ranges);
    case SplitBehavior::kMergedWithNext:
      return merge_with_next(ranges);
    case SplitBehavior::kContiguous:
      return contiguous(ranges);
  }
  EVALRUN_CHECK(false, "unknown split behaviour");
  return {};
}

void split_into(const PreTokenizer::Split& step, std::string_view text,
                std::vector<std::string>& out) {
  for (const Range& r : apply_behavior(step.behavior, cover(step, text)))
    if (!r.match && r.end > r.begin) out.emplace_back(text.substr(r.begin, r.end - r.begin));
}

PreTokenizer::Split isolate(const char* pattern) {
  return {Regex(pattern), "", SplitBehavior::kIsolated, false};
}

const PreTokenizer::Split& gpt2_split() {
  static const PreTokenizer::Split split = isolate(kGpt2Pattern);
  return split;
}

struct SplitPiece {
  const std::string& piece;
  bool at_start;
  std::vector<std::string>& out;

  void operator()(const PreTokenizer::Split& step) const { split_into(step, piece, out); }

  void operator()(const PreTokenizer::ByteLevel& step) const {
    const std::string text = step.add_prefix_space && !piece.starts_with(' ') ? " " + piece : piece;
    const size_t first = out.size();
    if (step.use_regex)
      split_into(gpt2_split(), text, out);
    else
      out.push_back(text);
    for (size_t i = first; i < out.size(); ++i) out[i] = bytes_to_alphabet(out[i]);
  }

  void operator()(const PreTokenizer::Metaspace& step) const {
    std::string text = replace_all(piece, " ", step.mark);
    const bool prefix = step.prepend == PreTokenizer::Prepend::kAlways ||
                        (step.prepend == PreTokenizer::Prepend::kFirst && at_start);
    if (prefix && !text.starts_with(step.mark)) text = step.mark + text;
    if (step.split)
      split_into({std::nullopt, step.mark, SplitBehavior::kMergedWithNext, false}, text, out);
    else
      out.push_back(std::move(text));
  }
};

}  // namespace

const char* const kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::vector<std::string> PreTokenizer::split(std::string_view section, bool at_start) const {
  std::vector<std::string> pieces;
  if (!section.empty()) pieces.emplace_back(section);
  for (const Step& step : steps_) {
    std::vector<std::string> next;
    for (size_t i = 0; i < pieces.size(); ++i)
      std::visit(SplitPiece{pieces[i], at_start && i == 0, next}, step);
    pieces = std::move(next);
  }
  return pieces;
}

namespace {

// Patterns as the models' own tokenizer.json files (and llama.cpp, for the names) have them.
constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kPunctuationPattern = R"([\p{P}\$\+<=>\^~\|`]+)";
// llama.cpp's fallback, "default", writes the same class without the backtick.
constexpr const char* kDefaultPunctuationPattern = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr const char* kThreeDigitsPattern = "[0-9][0-9][0-9]";

struct NamedPatterns {
  std::vector<const char*> names;
  std::vector<const char*> patterns;  // each isolated, one after the other
  bool ignore_merges = false, nfc = false, adds_bos = false;
};

const std::vector<NamedPatterns>& named_patterns() {
  static const std::vector<NamedPatterns> table = {
      {{"gpt-2", "gpt2"}, {kGpt2Pattern}},
      {{"smollm", "starcoder"}, {R"(\p{N})", kGpt2Pattern}},
      {{"llama-bpe", "llama3", "llama-v3"}, {kLlama3Pattern}, true, false, true},
      {{"qwen2", "qwen3", "deepseek-r1-qwen"}, {kQwen2Pattern}, false, true, false},
      {{"falcon"}, {kPunctuationPattern, kGpt2Pattern, kThreeDigitsPattern}},
      {{"default"}, {kDefaultPunctuationPattern, kGpt2Pattern, R"(\p{N}+)", kThreeDigitsPattern}},
  };
  return table;
}

}  // namespace

std::optional<NamedPreTokenizer> pre_tokenizer_by_name(std::string_view name) {
  for (const NamedPatterns& entry : named_patterns()) {
    if (std::find(entry.names.begin(), entry.names.end(), name) == entry.names.end()) continue;
    NamedPreTokenizer found{{}, entry.ignore_merges, entry.nfc, entry.adds_bos};
    for (const char* pattern : entry.patterns) found.pre_tokenizer.add(isolate(pattern));
    found.pre_tokenizer.add(PreTokenizer::ByteLevel{false, false});
    return found;
  }
  return std::nullopt;
}

std::vector<std::string> pre_tokenizer_names() {
  std::vector<std::string> names;
  for (const NamedPatterns& entry : named_patterns())
    names.insert(names.end(), entry.names.begin(), entry.names.end());
  return names;
}

}  // namespace evalrun::engine
