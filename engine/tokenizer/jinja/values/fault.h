// What goes wrong in a template: its text, its data, or a bound that it reached.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace evalrun::engine::jinja {

// `line` counts from 1; 0 = not known where it was thrown, whoever knows adds it.
class Fault : public std::runtime_error {
 public:
  explicit Fault(const std::string& message, int line = 0)
      : std::runtime_error(message), line_(line) {}
  int line() const { return line_; }

 private:
  int line_;
};

}  // namespace evalrun::engine::jinja
