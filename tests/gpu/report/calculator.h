// A calculator: it checks the sums that are printed with expected times (expected_launch.h).
#pragma once
#include <istream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace evalrun::engine::gpu_report {

// What it makes of sums, differences, products and quotients of numbers and parentheses.
class Calculator {
 public:
  static double value_of(const std::string& text) {
    Calculator c(text);
    const double value = c.sum();
    if (c.next_ >> std::ws; c.next_.peek() != EOF) throw std::invalid_argument(text);
    return value;
  }

 private:
  explicit Calculator(const std::string& text) : next_(text) {}
  char peek() { return static_cast<char>((next_ >> std::ws).peek()); }
  double sum() {
    double value = product();
    while (peek() == '+' || peek() == '-') value += next_.get() == '+' ? product() : -product();
    return value;
  }
  double product() {
    double value = factor();
    while (peek() == '*' || peek() == '/')
      value = next_.get() == '*' ? value * factor() : value / factor();
    return value;
  }
  double factor() {
    double value = 0;
    if (peek() != '(') {
      if (!(next_ >> value)) throw std::invalid_argument("a number");
      return value;
    }
    next_.get();
    value = sum();
    if (peek() != ')') throw std::invalid_argument(")");
    next_.get();
    return value;
  }
  std::istringstream next_;
};

}  // namespace evalrun::engine::gpu_report
