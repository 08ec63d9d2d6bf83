#include "methods/decode_loop.h"

#include <utility>

namespace evalrun::methods {
namespace {

class OneRequest final : public BatchSource {
 public:
  explicit OneRequest(const TurnRequest& request) : request_(request), next_(&request) {}
  const TurnRequest* next(int) override { return std::exchange(next_, nullptr); }
  void before_step() override {
    if (request_.before_step) request_.before_step();
  }
  void done(int, results::TurnRecord turn) override { turn_ = std::move(turn); }
  results::TurnRecord take() { return std::move(turn_); }

 private:
  const TurnRequest& request_;
  const TurnRequest* next_;
  results::TurnRecord turn_;
};

}  // namespace

results::TurnRecord decode_turn(DecodingMethod& method, engine::Session& target,
                                const TurnRequest& request, base::Clock& clock) {
  OneRequest source(request);
  DecodingMethod* slot = &method;
  decode_batch({&slot, 1}, target, source, BatchMode::kStatic, clock);
  return source.take();
}

}  // namespace evalrun::methods
