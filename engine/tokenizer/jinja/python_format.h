// "%s" % value and "{}".format(value).
#pragma once
#include <string>
#include <string_view>

#include "engine/tokenizer/jinja/arguments.h"
#include "engine/tokenizer/jinja/values/budget.h"

namespace evalrun::engine::jinja {

// `values` is a tuple of them, a dict for "%(name)s", or the one value.
std::string percent_format(std::string_view pattern, const Value& values, Budget& budget);
// Fields are numbers and names of arguments; attributes inside of fields are refused.
std::string brace_format(std::string_view pattern, const Arguments& arguments, Budget& budget);

}  // namespace evalrun::engine::jinja
