// gsm8k@evalrun: the last number of the answer equals the reference as a decimal. Where the
// conventions of lm-evaluation-harness compare spellings ("18.00" is wrong for 18), this one
// compares values, exactly: decimals as digits, no floating point, no tolerance.
#include <re2/re2.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "evaluators/gsm8k.h"
#include "evaluators/reference_score.h"

namespace evalrun::evaluators {

namespace {

// Sign and currency in either order, then digits with commas between them and a fraction. A full
// stop that no digit follows is the sentence's. Bytes: \xe2\x88\x92 is the minus sign U+2212.
struct Patterns {
  static constexpr const char* kMinus = R"((?:-|\xe2\x88\x92))";
  re2::RE2 number{std::string("(") + kMinus + "?)([$]?)(" + kMinus +
                      "?)([0-9]+(?:,[0-9]+)*(?:[.][0-9]+)?|[.][0-9]+)",
                  re2::RE2::Latin1};
  Patterns() { EVALRUN_CHECK(number.ok(), "{}", number.error()); }
};

const Patterns& patterns() {
  static const Patterns kPatterns;
  return kPatterns;
}

// Whether the commas of "1,234,567.8" stand between thousands; those of "1,2" are a list's.
bool has_thousands(std::string_view digits) {
  digits = digits.substr(0, digits.find('.'));
  size_t comma = digits.find(',');
  if (comma == std::string_view::npos) return true;
  if (comma > 3) return false;
  while (comma != std::string_view::npos) {
    digits.remove_prefix(comma + 1);
    comma = digits.find(',');
    if (std::min(comma, digits.size()) != 3) return false;
  }
  return true;
}

bool ends_a_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == ')' ||
         c == ']' || c == '%';
}

}  // namespace

std::string extract_gsm8k_decimal(std::string_view text) {
  re2::StringPiece rest(text.data(), text.size()), before, currency, after, digits;
  std::string_view last_digits;
  bool negative = false;
  while (re2::RE2::FindAndConsume(&rest, patterns().number, &before, &currency, &after, &digits)) {
    // "7-3" is a difference and "(2)-3" too; their last number is 3.
    const bool is_difference = before.data() > text.data() && ends_a_word(*(before.data() - 1));
    negative = !after.empty() || (!before.empty() && !is_difference);
    last_digits = {digits.data(), digits.size()};
  }
  if (last_digits.empty()) return std::string(kGsm8kInvalid);
  if (!has_thousands(last_digits)) {
    last_digits.remove_prefix(last_digits.rfind(',') + 1);
    negative = false;
  }
  return (negative ? "-" : "") + std::string(last_digits);
}

std::string canonical_decimal(std::string_view number) {
  std::string digits(number);
  std::erase(digits, ',');
  const bool negative = digits.starts_with('-');
  if (negative) digits.erase(0, 1);
  const size_t point = std::min(digits.find('.'), digits.size());
  std::string whole = digits.substr(0, point);
  std::string fraction = point < digits.size() ? digits.substr(point + 1) : "";
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  fraction.resize(fraction.find_last_not_of('0') + 1);
  if (whole.empty() && fraction.empty()) return "0";
  return (negative ? "-" : "") + (whole.empty() ? "0" : whole) +
         (fraction.empty() ? "" : "." + fraction);
}

std::string gsm8k_reference(std::string_view reference) {
  constexpr std::string_view kMarker = "#### ";
  const size_t at = reference.rfind(kMarker);
  if (at != std::string_view::npos) reference.remove_prefix(at + kMarker.size());
  return extract_gsm8k_decimal(base::trim(reference));
}

EvaluatorEntry gsm8k_decimal() {
  EvaluatorInfo info;
  info.name = "gsm8k";
  info.version = "evalrun";
  info.summary = "the last number in the text equals the reference as a decimal";
  info.unit = "accuracy";
  return compared_with_reference(
      info, [](std::string_view answer, std::string_view reference, results::ScoreRecord& record) {
        const std::string expected = gsm8k_reference(reference);
        if (expected == kGsm8kInvalid) {
          record.status = "no reference";
          record.detail = "no number in it";
          return;
        }
        record.extracted = extract_gsm8k_decimal(answer);
        const bool right = record.extracted != kGsm8kInvalid &&
                           canonical_decimal(record.extracted) == canonical_decimal(expected);
        record.value = right ? 1 : 0;
      });
}

}  // namespace evalrun::evaluators
