// json.dumps() of Python, as the filter tojson of chat templates calls it.
#pragma once
#include <optional>
#include <string>

#include "engine/tokenizer/jinja/values/budget.h"

namespace evalrun::engine::jinja {

struct JsonStyle {
  std::optional<std::string> indent;  // one level's blanks; nothing = all on one line
  std::string item_separator = ", ", key_separator = ": ";
  bool ensure_ascii = false, sort_keys = false;
};

std::string to_json(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace evalrun::engine::jinja
