// The bounds of one rendering, and the makers of values that could grow without them.
#pragma once
#include <cstdint>
#include <string>
#include <utility>

#include "engine/tokenizer/jinja/values/value.h"

namespace evalrun::engine::jinja {

// Far above what a conversation needs, and reached within seconds by a template without an end.
struct Limits {
  int64_t steps = 20'000'000;
  int64_t bytes = int64_t{256} << 20;  // of all texts and containers made, not of those alive
  int depth = 600;                     // of calls and expressions, one inside the other
};

inline constexpr int kMaxValueDepth = 60;      // containers in containers
inline constexpr size_t kObjectBytes = 64;     // of an object and its counts, beside what it holds
inline constexpr int64_t kMaxRange = 100'000;  // items of range(), as Jinja's sandbox has it

class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}

  const Limits& limits() const { return limits_; }
  void step(int64_t n = 1) {
    steps_ += n;
    if (steps_ > limits_.steps) fail_steps();
  }
  // For work over `n` bytes that makes none.
  void read(size_t n) { step(1 + static_cast<int64_t>(n / 64)); }
  // Before `n` bytes are made.
  void bytes(size_t n) {
    if (n > static_cast<size_t>(limits_.bytes - bytes_)) fail_bytes();
    bytes_ += static_cast<int64_t>(n);
    step(static_cast<int64_t>(n / 64));
  }
  void repeated(size_t size, size_t times);  // bytes(size * times) without overflow

  Value text(std::string text);
  Value list(Values items) { return sequence(Kind::kList, std::move(items)); }
  Value tuple(Values items) { return sequence(Kind::kTuple, std::move(items)); }
  Value generator(Values items) { return sequence(Kind::kGenerator, std::move(items)); }
  Value view(const char* name, Values items);
  Value method(Value self, std::string name);
  // What may be put into a container or a namespace; gives the value's depth.
  static int nested(const Value& value);

 private:
  Value sequence(Kind kind, Values items);
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_bytes() const;

  Limits limits_;
  int64_t steps_ = 0, bytes_ = 0;
};

}  // namespace evalrun::engine::jinja
