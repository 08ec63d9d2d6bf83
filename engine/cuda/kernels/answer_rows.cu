// The kernels of answers in their order. The best of a row come first (best_answers.cu): everything
// else counts from the best. Top-k and top-p put two kernels in front of a draw
// (answer_borders.cu). A draw is two more (answer_draws.cu). Rows with a task have the mass of
// every token written down as well, and a block of their own in the last kernel (answer_tasks.cu).
#include "engine/cuda/kernels/answer_parts.h"

namespace evalrun::engine::cuda {

size_t answer_workspace(const AnswerShape& shape) { return parts_of(shape).end; }

void answer_rows(const AnswerShape& s, const float* logits, const AnswerInputs& in,
                 uint64_t* workspace, uint64_t* result, cudaStream_t stream) {
  check_argument(s.n_best >= 1 && s.n_best <= s.n_logits, "the best of a row: 1 to the vocabulary");
  check_argument(static_cast<size_t>(s.n_logits) < kMaxSampledVocab, "fewer than 2^20 tokens");
  check_argument(!s.draws || in.uniforms != nullptr, "draws without uniforms");
  check_argument(!s.tasks || (s.draws && in.tasks != nullptr && in.dists.mass != nullptr),
                 "tasks without draws, or without distributions");
  check_argument(!s.tasks || !s.noise, "tasks draw by the inverse of a distribution");
  check_argument(static_cast<size_t>(in.dists.vocab) < kMaxSampledVocab,
                 "distributions over 2^20 tokens");
  const Parts p = parts_of(s);
  uint64_t *masses = workspace + p.masses, *borders = nullptr, *bins = nullptr,
           *dists = workspace + p.dists;
  const bool cut = s.draws && (s.top_p < 1 || cuts_by_count(s));
  if (cut) borders = workspace + p.borders, bins = workspace + p.bins;
  find_best_of_rows(s, logits, workspace + p.found, bins, result, stream);
  if (s.sums) sum_masses_of_rows(s, logits, masses, result, stream);
  if (!s.draws) return;
  if (cut) find_borders_of_rows(s, logits, result, in.uniforms, bins, borders, stream);
  if (s.noise) {
    draw_by_noise_of_rows(s, logits, in.uniforms, borders, masses, result, stream);
    return;
  }
  AnswerInputs inputs = in;
  if (!s.tasks) inputs.tasks = nullptr;
  draw_tokens_of_rows(s, logits, inputs, borders, masses, dists, result, stream);
  if (s.tasks) do_tasks_of_rows(s, inputs, masses, dists, result, stream);
}

}  // namespace evalrun::engine::cuda
