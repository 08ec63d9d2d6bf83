#include "engine/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "engine/base/error.h"

namespace evalrun::engine {
namespace {

std::string nfc(std::string_view text) {
  const bool ascii = std::all_of(text.begin(), text.end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (ascii) return std::string(text);
  utf8proc_uint8_t* composed = nullptr;
  // The length is passed on: without UTF8PROC_NULLTERM a NUL is a character like any other.
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &composed,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(composed, &std::free);
  EVALRUN_CHECK(length >= 0, "utf8proc: {}", utf8proc_errmsg(length));
  return {reinterpret_cast<const char*>(composed), static_cast<size_t>(length)};
}

std::string replace_matches(std::string_view text, const Regex& regex, std::string_view content) {
  std::string out;
  size_t done = 0;
  for (const auto& [begin, end] : regex.find_all(text)) {
    out += text.substr(done, begin - done);
    out += content;
    done = end;
  }
  out += text.substr(done);
  return out;
}

struct Apply {
  std::string text;
  std::string operator()(const Normalizer::Nfc&) const { return nfc(text); }
  std::string operator()(const Normalizer::Prepend& step) const {
    return text.empty() ? text : step.text + text;
  }
  std::string operator()(const Normalizer::Replace& step) const {
    return step.regex ? replace_matches(text, *step.regex, step.content)
                      : replace_all(text, step.literal, step.content);
  }
};

}  // namespace

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t done = 0;
  if (!from.empty()) {
    for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, done)) {
      out += text.substr(done, at - done);
      out += to;
      done = at + from.size();
    }
  }
  out += text.substr(done);
  return out;
}

std::string Normalizer::apply(std::string_view text) const {
  std::string out(text);
  for (const Step& step : steps_) out = std::visit(Apply{std::move(out)}, step);
  return out;
}

}  // namespace evalrun::engine
