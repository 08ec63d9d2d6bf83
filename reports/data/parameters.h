// Parameters of a method as an arm stores them.
#pragma once
#include <map>
#include <optional>
#include <string>

namespace evalrun::reports {

using Parameters = std::map<std::string, std::string>;

// "k=4,tree=a,b" as MethodParams::canonical writes it; a piece without "=" belongs to the value in
// front of it.
Parameters parse_parameters(const std::string& text);

// The whole text as a number.
std::optional<double> number_of(const std::string& text);

}  // namespace evalrun::reports
