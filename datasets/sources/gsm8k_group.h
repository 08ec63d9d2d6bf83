// What names a question of GSM8K in all sets that have it (Prompt::group). Its file has no numbers
// that others keep, so its text does.
#pragma once
#include <string>
#include <string_view>

#include "engine/base/text.h"

namespace evalrun::datasets {

inline std::string gsm8k_group(std::string_view question) {
  return "/gsm8k/" + base::sha256_hex(question).substr(0, 16);
}

}  // namespace evalrun::datasets
