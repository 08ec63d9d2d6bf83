#include "engine/cuda/answer_reader.h"

#include "engine/sampling.h"

namespace evalrun::engine::cuda {
namespace {

constexpr int kFewLogits = 2;  // rows whose logits are sent unasked: they will be read

}  // namespace

AnswerShape answer_shape(const StepShape& s, const ForwardRequest& request, int n_best,
                         int n_logits) {
  AnswerShape shape;
  if (s.answers == 0) return shape;
  shape.rows = s.answers, shape.n_logits = n_logits;
  if (n_best > 0) shape.n_best = n_best, shape.sums = request.log_sums;
  if (!s.draws) return shape;
  shape.draws = true;
  shape.inverse_temperature = inverse_temperature(*request.sampling);
  shape.top_k = request.sampling->top_k, shape.top_p = request.sampling->top_p;
  shape.noise = request.sampling->sampler == Sampler::kGumbel;
  shape.tasks = s.tasks, shape.rejection_tests = s.rejection_tests;
  shape.more_draws = s.more_draws;
  return shape;
}

bool AnswerReader::sends_logits(const StepShape& s) { return s.logits <= kFewLogits; }

// --- queued --------------------------------------------------------------------------------------

void AnswerReader::queue(const ForwardStep& step) {
  const StepShape& s = step.shape();
  if (s.hidden > 0) queue_hidden(step);
  if (s.answers > 0) queue_answers(step);
  if (s.logits > 0) {
    queue_head(list(layout_of(s).logit_rows), s.logits, b_.logits.as<float>());
    if (sends_logits(s))
      to_host(b_.logits_host, b_.logits, 0,
              static_cast<size_t>(s.logits) * static_cast<size_t>(session_.c.n_logits()));
  }
  session_.mark(&PhaseTimes::head);
}

void AnswerReader::queue_hidden(const ForwardStep& step) {
  const StepShape& s = step.shape();
  NormJob job = final_norm(list(layout_of(s).hidden_rows));
  job.hidden = b_.hidden.as<float>();
  job.to = {nullptr, 0, session_.bf16};
  norm_rows(job, s.hidden, session_.stream());
  to_host(b_.hidden_host, b_.hidden, 0,
          static_cast<size_t>(s.hidden) * static_cast<size_t>(session_.c.d_model));
}

void AnswerReader::queue_answers(const ForwardStep& step) {
  const StepLayout layout = layout_of(step.shape());
  queue_head(list(layout.answer_rows), step.shape().answers, b_.answers.logits());
  const auto* block = b_.record.as<unsigned char>();
  const auto doubles = [&](size_t at) { return reinterpret_cast<const double*>(block + at); };
  AnswerInputs in;
  in.uniforms = doubles(layout.uniforms);
  if (step.dists != nullptr) {
    in.tasks = reinterpret_cast<const AnswerTask*>(block + layout.tasks);
    in.children = list(layout.children), in.further_uniforms = doubles(layout.further);
    in.dists = step.dists->memory();
  }
  b_.answers.queue(step.answers, in, session_.stream());
}

void AnswerReader::queue_head(const int32_t* index, int rows, float* logits) {
  NormJob job = final_norm(index);
  job.to = b_.head_in;
  norm_rows(job, rows, session_.stream());
  Epilogue e;
  e.y = logits, e.ldy = e.outputs = session_.c.n_logits();
  multiply({session_.weights.head().ref(), b_.head_in.data, rows, e}, b_.workspace,
           session_.stream());
}

const int32_t* AnswerReader::list(size_t at) const {
  return reinterpret_cast<const int32_t*>(b_.record.as<unsigned char>() + at);
}

NormJob AnswerReader::final_norm(const int32_t* index) const {
  NormJob job;
  job.x = b_.x.as<float>(), job.d = session_.c.d_model;
  job.weights = session_.weights.final_norm(), job.eps = session_.c.norm_eps;
  job.index = index;
  return job;
}

void AnswerReader::queue_logits(int slot) {
  const auto vocab = static_cast<size_t>(session_.c.n_logits());
  to_host(b_.logits_host, b_.logits, static_cast<size_t>(slot) * vocab, vocab);
}

void AnswerReader::to_host(const PinnedBuffer& to, const DeviceBuffer& from, size_t first,
                           size_t values) {
  EVALRUN_CUDA(cudaMemcpyAsync(to.as<float>() + first, from.as<float>() + first,
                               values * sizeof(float), cudaMemcpyDeviceToHost, session_.stream()));
}

// --- read ----------------------------------------------------------------------------------------

void AnswerReader::read(const ForwardStep& step, const ForwardPlan& plan, ForwardResult& result,
                        Answers& answers) {
  const StepShape& s = step.shape();
  const ModelConfig& c = session_.c;
  result.logits = {b_.logits_host.as<float>(), s.logits, c.n_logits()};
  fetched_.assign(static_cast<size_t>(s.logits), sends_logits(s));
  result.hidden = {b_.hidden_host.as<float>(), s.hidden, c.d_model};
  residual_views_.clear();
  const size_t values = static_cast<size_t>(s.rows) * static_cast<size_t>(c.d_model);
  for (size_t j = 0; j < step.request->residual_layers.size(); ++j)
    residual_views_.push_back({b_.residual_host.as<float>() + j * values, s.rows, c.d_model});
  result.residual = residual_views_;
  for (size_t j = 0; j < plan.answer_rows().size(); ++j)
    read_answer(step, static_cast<int>(j), plan.answer_rows()[j], answers);
}

void AnswerReader::read_answer(const ForwardStep& step, int i, int32_t row, Answers& answers) {
  const Row& asked = step.request->rows[static_cast<size_t>(row)];
  const AnswerShape& shape = step.answers;
  b_.answers.read(shape, i, best_);
  if (asked.top) answers.set_top(row, best_.front().token);
  if (asked.best) answers.add_best(row, best_, shape.sums ? b_.answers.log_sum(shape, i) : 0);
  if (asked.uniform >= 0) answers.set_drawn(row, b_.answers.drawn(shape, i));
  const AnswerTask task = step.record.task(i);
  if (task.kind == AnswerTask::kDraws) {
    answers.set_weight(row, b_.answers.drawn_mass(shape, i));
    for (int j = 0; j <= task.count; ++j)
      answers.add_drawn_token(b_.answers.drawn_token(shape, i, j));
  } else if (task.kind != AnswerTask::kNone) {
    answers.set_passed(row, b_.answers.passed(shape, i));
  }
}

}  // namespace evalrun::engine::cuda
