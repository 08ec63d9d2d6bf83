// Chat templates in Jinja, rendered as Hugging Face's transformers renders them: Jinja 3.1 in a
// sandbox whose values do not change, with trim_blocks, lstrip_blocks and loop controls.
//
// A template sees the variables it is given and nothing else: no file, no clock, no environment.
// Its steps, its memory and its depth are bounded. Left out, each a Fault that says so: numbers
// beyond 64 bits, recursive loops, include and import, and filters for web pages. `safe` and
// `escape` give plain texts.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "engine/tokenizer/jinja/dicts.h"
#include "engine/tokenizer/jinja/values/budget.h"
#include "engine/tokenizer/jinja/values/value.h"
#include "engine/tokenizer/jinja/variables.h"

namespace evalrun::engine::jinja {

class Template {
 public:
  explicit Template(std::string_view source);  // Fault with the line
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  // The values are made by `budget`, which bounds the rendering. Throws Fault with the line. May be
  // called by several threads at once.
  std::string render(const Variables& variables, const Date& date, Budget& budget) const;

 private:
  struct Code;
  std::unique_ptr<const Code> code_;
};

}  // namespace evalrun::engine::jinja
