// One function per parser of bytes that others wrote: called with any bytes, it returns. What it
// throws (a broken invariant, an exception that a user's file must not cause) is a finding, as is
// what a sanitizer reports.
#pragma once
#include <ostream>
#include <span>
#include <string_view>
#include <vector>

namespace evalrun::fuzz {

void jsonl(std::string_view bytes);        // prompts of the user's own, gzip included
void generations(std::string_view bytes);  // the file of `evalrun score`
void gsm8k(std::string_view bytes);        // extraction, by all conventions
void rouge(std::string_view bytes);        // answer and reference, with 0xff between them
void bleu(std::string_view bytes);
void judge(std::string_view bytes);          // replies of a judge, bodies of its server, its files
void completion(std::string_view bytes);     // answers that hold programs, in all languages
void claims(std::string_view bytes);         // tables of published numbers, and their audit
void chat_template(std::string_view bytes);  // Jinja that a model carries, rendered

struct Target {
  const char* name;
  void (*run)(std::string_view bytes);
  std::vector<std::string_view> seeds;  // inputs to start from
};
inline void PrintTo(const Target& target, std::ostream* out) { *out << target.name; }
const std::vector<Target>& targets();

}  // namespace evalrun::fuzz
