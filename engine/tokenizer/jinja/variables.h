// What a rendering is given.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "engine/tokenizer/jinja/values/value.h"

namespace evalrun::engine::jinja {

// What strftime_now() tells.
struct Date {
  int year = 0, month = 0, day = 0;
};

using Variables = std::vector<std::pair<std::string, Value>>;

}  // namespace evalrun::engine::jinja
