// The faults of the convention are kept on purpose, so that figures can be compared with published
// ones: strict takes the first of several answers, flexible also takes "..." for a number, and
// "18.00" is not "18". Patterns and order of the replacements: lm_eval/tasks/gsm8k/gsm8k.yaml.
#include "evaluators/gsm8k.h"

#include <re2/re2.h>

#include <algorithm>

#include "engine/base/error.h"
#include "evaluators/reference_score.h"

namespace evalrun::evaluators {

namespace {

// Bytes, not code points: all patterns are ASCII, and text with broken UTF-8 must be judged too.
re2::StringPiece piece(std::string_view text) { return {text.data(), text.size()}; }

struct Patterns {
  re2::RE2 strict{R"(#### (\-?[0-9\.\,]+))", re2::RE2::Latin1};
  re2::RE2 flexible{R"((-?[$0-9.,]{2,})|(-?[0-9]+))", re2::RE2::Latin1};
  re2::RE2 separators{R"([,$])", re2::RE2::Latin1};
  re2::RE2 up_to_marker{R"((?s)^.*#### )", re2::RE2::Latin1};
  // Python's `$` also matches before a final newline.
  re2::RE2 last_stop{R"(\.(\n?)$)", re2::RE2::Latin1};
  Patterns() {
    EVALRUN_CHECK(strict.ok() && flexible.ok() && separators.ok() && up_to_marker.ok() &&
                  last_stop.ok());
  }
};

const Patterns& patterns() {
  static const Patterns kPatterns;
  return kPatterns;
}

std::string normalise(std::string_view text) {
  std::string out(text);
  re2::RE2::GlobalReplace(&out, patterns().separators, "");
  re2::RE2::Replace(&out, patterns().up_to_marker, "");
  re2::RE2::Replace(&out, patterns().last_stop, "\\1");
  std::transform(out.begin(), out.end(), out.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return out;
}

EvaluatorEntry entry(const char* name, const char* summary,
                     std::string (*extract)(std::string_view)) {
  EvaluatorInfo info;
  info.name = name;
  info.version = "lm-eval-3";
  info.summary = summary;
  info.unit = "accuracy";
  return compared_with_reference(
      info,
      [extract](std::string_view answer, std::string_view reference, results::ScoreRecord& record) {
        record.extracted = extract(answer);
        record.value = gsm8k_equal(record.extracted, reference) ? 1 : 0;
      });
}

}  // namespace

std::string extract_gsm8k_strict(std::string_view text) {
  re2::StringPiece number;
  if (!re2::RE2::PartialMatch(piece(text), patterns().strict, &number))
    return std::string(kGsm8kInvalid);
  return std::string(number);
}

std::string extract_gsm8k_flexible(std::string_view text) {
  re2::StringPiece rest = piece(text), wide, integer;
  std::string last(kGsm8kInvalid);
  while (re2::RE2::FindAndConsume(&rest, patterns().flexible, &wide, &integer))
    last = std::string(wide.empty() ? integer : wide);
  return last;
}

bool gsm8k_equal(std::string_view extracted, std::string_view reference) {
  return normalise(extracted) == normalise(reference);
}

EvaluatorEntry gsm8k_strict() {
  return entry("gsm8k_strict", "the first '#### number' equals the reference",
               &extract_gsm8k_strict);
}

EvaluatorEntry gsm8k_flexible() {
  return entry("gsm8k_flexible", "the last number in the text equals the reference",
               &extract_gsm8k_flexible);
}

}  // namespace evalrun::evaluators
