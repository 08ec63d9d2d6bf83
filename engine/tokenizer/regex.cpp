#include "engine/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <stdexcept>

#include "engine/base/error.h"
#include "engine/base/utf8.h"

namespace evalrun::engine {
namespace pcre {

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* p) const {
    kFree(p);
  }
};
using Code = std::unique_ptr<pcre2_code, Free<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>>;

}  // namespace pcre
namespace {

std::string error_text(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

// PCRE2 counts U+180E (Mongolian vowel separator) as white space; Unicode since 6.3, and with it
// the tokenizers we reproduce, as a format character. U+200B is one too, of the same length in
// bytes and in no pattern of ours, so it stands in while matching.
constexpr std::string_view kVowelSeparator = "\xE1\xA0\x8E";
constexpr std::string_view kZeroWidthSpace = "\xE2\x80\x8B";

std::string without_vowel_separator(std::string_view text) {
  std::string out(text);
  for (size_t at = out.find(kVowelSeparator); at != std::string::npos;
       at = out.find(kVowelSeparator, at + kZeroWidthSpace.size()))
    out.replace(at, kVowelSeparator.size(), kZeroWidthSpace);
  return out;
}

}  // namespace

struct Regex::Compiled {
  pcre::Code code;
  std::string pattern;
};

Regex::Regex(std::string_view pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre::Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
  if (!code)
    throw std::invalid_argument(
        fmt::format("pattern does not compile: {} at offset {}", error_text(error), offset));
  // Where the platform has no JIT the interpreter does the same work.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  compiled_ = std::make_shared<Compiled>(Compiled{std::move(code), std::string(pattern)});
}

std::vector<std::pair<size_t, size_t>> Regex::find_all(std::string_view text) const {
  std::string replaced;
  if (text.find(kVowelSeparator) != std::string_view::npos) {
    replaced = without_vowel_separator(text);
    text = replaced;
  }
  const pcre::MatchData data(pcre2_match_data_create_from_pattern(compiled_->code.get(), nullptr));
  const pcre::MatchContext context(pcre2_match_context_create(nullptr));
  const pcre::JitStack stack(pcre2_jit_stack_create(32 * 1024, 8 * 1024 * 1024, nullptr));
  EVALRUN_CHECK(data && context && stack, "out of memory");
  pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  // The default limit of ten million steps is for hostile patterns on small texts; ours are linear,
  // and a run of white space of that length is a legitimate text.
  pcre2_set_match_limit(context.get(), 0xFFFFFFFFu);

  std::vector<std::pair<size_t, size_t>> matches;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  // Without NO_UTF_CHECK every call would validate the whole text again: quadratic.
  constexpr uint32_t kOptions = PCRE2_NO_UTF_CHECK;
  for (size_t at = 0; at <= text.size();) {
    int rc = pcre2_match(compiled_->code.get(), subject, text.size(), at, kOptions, data.get(),
                         context.get());
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
      rc = pcre2_match(compiled_->code.get(), subject, text.size(), at, kOptions | PCRE2_NO_JIT,
                       data.get(), context.get());
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0)
      throw base::Error(base::ExitCode::kData,
                        fmt::format("pre-tokenizer pattern '{}' failed at byte {} of a text: {}",
                                    compiled_->pattern, at, error_text(rc)),
                        "the pattern backtracks too much on this text; shorten the text");
    const PCRE2_SIZE* match = pcre2_get_ovector_pointer(data.get());
    matches.emplace_back(match[0], match[1]);
    at = match[1];
    if (match[0] == match[1]) {  // step over one character, or the same empty match comes again
      if (at == text.size()) break;
      at += base::utf8_step(text.substr(at)).length;
    }
  }
  return matches;
}

}  // namespace evalrun::engine
