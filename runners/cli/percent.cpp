#include "runners/cli/percent.h"

#include <charconv>
#include <string_view>

#include "engine/base/error.h"

namespace evalrun::cli {

double parse_share(const std::string& option, const std::string& text) {
  std::string_view digits = text;
  const bool percent = digits.ends_with('%');
  if (percent) digits.remove_suffix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool number = error == std::errc() && end == digits.data() + digits.size();
  const double share = percent ? value / 100 : value;
  if (!number || !(share >= 0 && share < 1))
    throw base::usage_error(fmt::format("{} must be a share below 1, not '{}'", option, text),
                            "write 3% or 0.03");
  return share;
}

}  // namespace evalrun::cli
