#include "engine/cuda/answer_buffers.h"

#include <cmath>

#include "engine/base/error.h"
#include "engine/cuda/runtime/check.h"
#include "engine/sampling_arith.h"

namespace evalrun::engine::cuda {
namespace {

size_t result_words(const AnswerShape& s) {
  return static_cast<size_t>(s.rows) * static_cast<size_t>(s.stride());
}
// As engine/sampling.cpp says it of logits on the host.
[[noreturn]] void bad_logits(const char* what) {
  throw base::data_error(
      "logits", "", what,
      "the weights may be damaged, or the model overflows in this number format");
}

}  // namespace

bool AnswerBuffers::make_room(const AnswerShape& s) {
  const size_t logits = static_cast<size_t>(s.rows) * static_cast<size_t>(s.n_logits);
  bool moved = logits_.ensure(logits * sizeof(float));
  moved |= workspace_.ensure(answer_workspace(s) * sizeof(uint64_t));
  moved |= result_.ensure(result_words(s) * sizeof(uint64_t));
  moved |= host_.ensure(result_words(s) * sizeof(uint64_t));
  return moved;
}

void AnswerBuffers::queue(const AnswerShape& s, const AnswerInputs& inputs, cudaStream_t stream) {
  answer_rows(s, logits(), inputs, workspace_.as<uint64_t>(), result_.as<uint64_t>(), stream);
  EVALRUN_CUDA(cudaMemcpyAsync(host_.as<void>(), result_.as<void>(),
                               result_words(s) * sizeof(uint64_t), cudaMemcpyDeviceToHost, stream));
}

void AnswerBuffers::read(const AnswerShape& s, int row, std::vector<TokenLogit>& best) const {
  const uint64_t* from = row_of(s, row);
  if (from[0] == kNoNumber) bad_logits("the model computed NaN");
  best.clear();
  for (int i = 0; i < s.n_best; ++i) best.push_back({token_of(from[i]), logit_of(from[i])});
}

float AnswerBuffers::finite_best(const AnswerShape& s, int row) const {
  const uint64_t first = row_of(s, row)[0];
  if (first == kNoNumber) bad_logits("the model computed NaN");
  const float best = logit_of(first);
  if (!std::isfinite(best)) bad_logits("no finite logit, or an infinite one");
  return best;
}

double AnswerBuffers::log_sum(const AnswerShape& s, int row) const {
  return log_sum_of(finite_best(s, row), row_of(s, row)[s.n_best]);
}

int32_t AnswerBuffers::drawn(const AnswerShape& s, int row) const {
  finite_best(s, row);
  const auto token = static_cast<int32_t>(row_of(s, row)[s.n_best + 1]);
  EVALRUN_CHECK(token >= 0, "row {}: no draw was asked for", row);
  return token;
}

int AnswerBuffers::passed(const AnswerShape& s, int row) const {
  const auto child = static_cast<int>(row_of(s, row)[s.n_best + 2]);
  EVALRUN_CHECK(child != kChildWithoutMass,
                "row {}: a child without mass in the distribution it came from", row);
  return child;
}

uint64_t AnswerBuffers::drawn_mass(const AnswerShape& s, int row) const {
  return row_of(s, row)[s.n_best + 2];
}

int32_t AnswerBuffers::drawn_token(const AnswerShape& s, int row, int i) const {
  finite_best(s, row);
  return static_cast<int32_t>(row_of(s, row)[s.n_best + (i == 0 ? 1 : 2 + i)]);
}

}  // namespace evalrun::engine::cuda
