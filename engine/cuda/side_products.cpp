#include "engine/cuda/side_products.h"

#include <algorithm>
#include <cstring>

#include "engine/cuda/device_laws.h"
#include "engine/cuda/products.h"
#include "engine/cuda/row_ops.h"

namespace evalrun::engine::cuda {

const DeviceMatrix& SideProducts::keep(const WeightMatrix& w, int device, cudaStream_t stream) {
  const auto m = MatrixStore::get(device, w, stream);
  if (std::ranges::find(kept_, m, &Kept::matrix) == kept_.end()) {
    // An arm may have gone with its drafter: nothing of it is queued any more.
    std::erase_if(kept_, [](const Kept& k) { return k.host.expired(); });
    kept_.push_back({w.owner(), m});
  }
  return *m;
}

void SideProducts::queue(const DeviceMatrix& m, MatrixView x, float* y, int outputs,
                         cudaStream_t stream) {
  const auto n = static_cast<size_t>(x.rows);
  const size_t x_bytes = n * static_cast<size_t>(x.cols) * sizeof(float);
  x_.ensure(x_bytes);
  const bool bf16 = m.storage() != WeightStorage::kF32;
  const int stride = bf16 ? m.padded_in() : m.in();
  rounded_.ensure(n * static_cast<size_t>(stride) * (bf16 ? 2 : 4));
  const InputRows in = {rounded_.as<void>(), stride, bf16};
  workspace_.ensure(product_geometry(m.storage(), m.ref().tiles, m.ref().blocks, x.rows));

  EVALRUN_CUDA(
      cudaMemcpyAsync(x_.as<void>(), x_host_.as<void>(), x_bytes, cudaMemcpyHostToDevice, stream));
  round_rows(x_.as<float>(), x.cols, x.cols, 1.0f, in, x.rows, stream);
  Epilogue e;
  e.y = y, e.ldy = e.outputs = outputs;
  cuda::multiply({m.ref(), in.data, x.rows, e}, workspace_, stream);
}

void SideProducts::stage(MatrixView x) {
  const size_t bytes = static_cast<size_t>(x.rows) * static_cast<size_t>(x.cols) * sizeof(float);
  x_host_.ensure(bytes);
  std::memcpy(x_host_.as<void>(), x.data, bytes);
}

MatrixView SideProducts::multiply(const WeightMatrix& w, MatrixView x, int device, Queue& on) {
  const DeviceMatrix& m = keep(w, device, on.stream());
  stage(x);  // before y moves: x may be the last y
  const size_t y_bytes = static_cast<size_t>(x.rows) * static_cast<size_t>(w.out()) * sizeof(float);
  y_host_.ensure(y_bytes), y_.ensure(y_bytes);
  on.begin();
  queue(m, x, y_.as<float>(), w.out(), on.stream());
  EVALRUN_CUDA(cudaMemcpyAsync(y_host_.as<void>(), y_.as<void>(), y_bytes, cudaMemcpyDeviceToHost,
                               on.stream()));
  on.wait();
  return {y_host_.as<float>(), x.rows, w.out()};
}

Scores SideProducts::best_of(const WeightMatrix& w, MatrixView x, int n_best, int device,
                             Queue& on) {
  const DeviceMatrix& m = keep(w, device, on.stream());
  stage(x);
  AnswerShape shape;
  shape.rows = x.rows, shape.n_logits = w.out(), shape.n_best = n_best;
  answers_.make_room(shape);
  on.begin();
  queue(m, x, answers_.logits(), w.out(), on.stream());
  answers_.queue(shape, {}, on.stream());
  on.wait();
  best_.clear();
  for (int row = 0; row < x.rows; ++row) {
    answers_.read(shape, row, row_best_);
    best_.insert(best_.end(), row_best_.begin(), row_best_.end());
  }
  return {{}, best_, n_best, {}};
}

std::span<const int32_t> SideProducts::draw(const WeightMatrix& w, MatrixView x,
                                            const LawDraws& draws, int device, Queue& on) {
  const DeviceMatrix& m = keep(w, device, on.stream());
  stage(x);
  AnswerShape shape;
  shape.rows = x.rows, shape.n_logits = w.out();
  shape.draws = shape.tasks = true;  // no trials
  shape.inverse_temperature = inverse_temperature(*draws.sampling);
  shape.top_k = draws.sampling->top_k, shape.top_p = draws.sampling->top_p;
  tasks_.assign(static_cast<size_t>(x.rows), AnswerTask{});
  chances_.assign(static_cast<size_t>(x.rows), -1.0);
  for (const LawDraw& d : draws.rows) {
    const auto row = static_cast<size_t>(d.row);
    const auto further = d.chances.subspan(1);
    const auto more = static_cast<int32_t>(further.size());
    tasks_[row] = {AnswerTask::kDraws, d.slot, static_cast<int32_t>(chances_.size()), more};
    chances_[row] = d.chances[0];
    chances_.insert(chances_.end(), further.begin(), further.end());
    shape.more_draws = std::max(shape.more_draws, more);
  }
  const size_t task_bytes = tasks_.size() * sizeof(AnswerTask),
               bytes = task_bytes + chances_.size() * sizeof(double);
  asked_host_.ensure(bytes), asked_.ensure(bytes);
  std::memcpy(asked_host_.as<unsigned char>(), tasks_.data(), task_bytes);
  std::memcpy(asked_host_.as<unsigned char>() + task_bytes, chances_.data(), bytes - task_bytes);
  on.begin();
  EVALRUN_CUDA(cudaMemcpyAsync(asked_.as<void>(), asked_host_.as<void>(), bytes,
                               cudaMemcpyHostToDevice, on.stream()));
  AnswerInputs in;
  in.tasks = asked_.as<AnswerTask>();
  in.chances = in.further_chances =
      reinterpret_cast<const double*>(asked_.as<unsigned char>() + task_bytes);
  in.laws = laws_on(*draws.laws, device).memory();

  answers_.make_room(shape);
  queue(m, x, answers_.logits(), w.out(), on.stream());
  answers_.queue(shape, in, on.stream());
  on.wait();
  tokens_.clear();
  for (const LawDraw& d : draws.rows)
    for (size_t i = 0; i < d.chances.size(); ++i)
      tokens_.push_back(answers_.law_token(shape, d.row, static_cast<int>(i)));
  return tokens_;
}

std::vector<const DeviceBuffer*> SideProducts::buffers() const {
  std::vector<const DeviceBuffer*> all = answers_.buffers();
  for (const DeviceBuffer* buffer :
       {&x_, &rounded_, &y_, &asked_, &workspace_.sums, &workspace_.counters})
    all.push_back(buffer);
  return all;
}

}  // namespace evalrun::engine::cuda
