#include "runners/measure/plain_logits.h"

#include <cmath>

namespace evalrun::runners {

PlainLogits::PlainLogits(engine::Session& session, std::span<const int32_t> prompt,
                         std::span<const int32_t> answer)
    : session_(session), answer_(answer) {
  session_.reset();
  if (prompt.size() > 1) session_.prefill(prompt.first(prompt.size() - 1));
  next_ = prompt.back();
}

std::pair<double, double> PlainLogits::at(int index, int32_t a, int32_t b) {
  while (true) {
    engine::Row row;
    row.token = next_;
    engine::ForwardRequest request;
    request.rows = {&row, 1};
    row.logits = place_ == index;
    const engine::ForwardResult result = session_.forward(request);
    if (place_ == index) {
      const auto logits = result.logits_row(0);
      return {static_cast<double>(logits[static_cast<size_t>(a)]),
              static_cast<double>(logits[static_cast<size_t>(b)])};
    }
    const int root = 0;
    session_.commit({&root, 1});
    next_ = answer_[static_cast<size_t>(place_++)];
  }
}

double format_spacing(double x, const std::string& dtype) {
  if (x == 0) return 0;
  const int exponent = std::ilogb(x);
  return std::ldexp(1.0, exponent - (dtype == "f32" ? 23 : 7));
}

}  // namespace evalrun::runners
