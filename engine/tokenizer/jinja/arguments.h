// The arguments of a call, as filters, tests, methods and functions get them.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tokenizer/jinja/values/value.h"

namespace evalrun::engine::jinja {

struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Arguments by parameter. Throws Fault for one too many, an unknown name, or one of the first
// `required` that is missing. `who` is for the message: "filter 'indent'".
class Bound {
 public:
  Bound(std::string who, const Arguments& arguments, std::initializer_list<const char*> names,
        size_t required);

  bool has(size_t i) const { return values_[i] != nullptr; }
  const Value& at(size_t i) const { return *values_[i]; }
  Value value_or(size_t i, Value usual) const { return has(i) ? at(i) : usual; }
  bool truth_or(size_t i, bool usual) const { return has(i) ? truth(at(i)) : usual; }
  int64_t whole_or(size_t i, int64_t usual) const;
  // A text; `usual` also for None.
  std::string_view text_or(size_t i, std::string_view usual) const;

 private:
  std::string who_;
  std::vector<const char*> names_;
  std::vector<const Value*> values_;
};

}  // namespace evalrun::engine::jinja
