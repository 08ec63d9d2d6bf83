#include "reports/data/parameters.h"

#include <charconv>

#include "engine/base/text.h"

namespace evalrun::reports {

Parameters parse_parameters(const std::string& text) {
  Parameters parameters;
  std::string last;
  for (const std::string& piece : base::split(text, ',')) {
    const size_t equals = piece.find('=');
    if (equals != std::string::npos)
      parameters[last = piece.substr(0, equals)] = piece.substr(equals + 1);
    else if (!last.empty())
      parameters[last] += "," + piece;
  }
  return parameters;
}

std::optional<double> number_of(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace evalrun::reports
