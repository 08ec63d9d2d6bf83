// Logits of plain decoding at places of a text: how near to a tie two tokens were there.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "engine/session.h"

namespace evalrun::runners {

// One forward of one row each: what plain decoding itself computed there. Prompt, answer and
// session must outlive the object, and the session is its alone meanwhile.
class PlainLogits {
 public:
  PlainLogits(engine::Session& session, std::span<const int32_t> prompt,
              std::span<const int32_t> answer);
  // The two logits at answer[index]; indices ascend from call to call.
  std::pair<double, double> at(int index, int32_t a, int32_t b);

 private:
  engine::Session& session_;
  std::span<const int32_t> answer_;
  int32_t next_ = -1;
  int place_ = 0;
};

// Distance of neighbouring numbers at |x|: bfloat16 (8 bits of precision), or float32 (24) for a
// model whose weights are float32.
double format_spacing(double x, const std::string& dtype);

}  // namespace evalrun::runners
