#include "engine/cuda/side_products.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "engine/cuda/device_distributions.h"
#include "engine/cuda/kernels/products.h"
#include "engine/cuda/kernels/row_ops.h"

namespace evalrun::engine::cuda {

template <typename K>
void SideProducts::forget_the_dead(std::vector<K>& kept, cudaStream_t stream) {
  const auto is_dead = [](const K& k) { return k.host.expired(); };
  if (std::ranges::none_of(kept, is_dead)) return;
  EVALRUN_CUDA(cudaStreamSynchronize(stream));
  std::erase_if(kept, is_dead);
}

const DeviceMatrix& SideProducts::keep(const WeightMatrix& w, int device, cudaStream_t stream) {
  const auto m = MatrixStore::get(device, w, stream);
  if (std::ranges::find(kept_, m, &Kept::matrix) == kept_.end()) {
    forget_the_dead(kept_, stream);
    kept_.push_back({w.owner(), m});
  }
  return *m;
}

const float* SideProducts::keep(const SharedVector& bias, int padded, cudaStream_t stream) {
  if (bias == nullptr) return nullptr;
  for (const KeptBias& kept : biases_)
    if (kept.key == bias.get() && !kept.host.expired()) return kept.data.as<float>();
  forget_the_dead(biases_, stream);
  KeptBias made = {bias, bias.get(), DeviceBuffer(static_cast<size_t>(padded) * sizeof(float))};
  made.data.upload(bias->data(), bias->size() * sizeof(float));
  biases_.push_back(std::move(made));
  return biases_.back().data.as<float>();
}

void SideProducts::room(const ProductGeometry& geometry, cudaStream_t stream) {
  // Of a program that is queued, it may be in use.
  if (geometry.workspace_bytes > workspace_.sums.bytes() ||
      geometry.counter_bytes > workspace_.counters.bytes())
    EVALRUN_CUDA(cudaStreamSynchronize(stream));
  if (workspace_.ensure(geometry)) graphs_.clear();
}

void SideProducts::add_to_key(const DeviceMatrix& m) {
  const MatrixRef& w = m.ref();
  key_.insert(key_.end(), {std::bit_cast<int64_t>(w.codes), std::bit_cast<int64_t>(w.scales),
                           static_cast<int64_t>(w.storage), w.tiles, w.in});
}

void SideProducts::start_key(const InputView& x) {
  key_ = {x.rows, x.cols, x.computed ? std::bit_cast<int64_t>(x.data) : 0};
  for (const DeviceMatrix* m : heads_) add_to_key(*m);
}

void SideProducts::add_to_key(const AnswerShape& s) {
  key_.insert(key_.end(),
              {s.n_logits, s.n_best, s.sums, s.draws, s.tasks, s.more_draws, s.top_k,
               std::bit_cast<int64_t>(s.top_p), std::bit_cast<int64_t>(s.inverse_temperature)});
}

InputView SideProducts::compute(const RowProgram& program, int result,
                                const DeviceMatrix& embedding, int device, Queue& on) {
  using Op = RowProgram::Op;
  const auto values = program.values();
  const auto steps = program.steps();
  const auto floats = [](const RowProgram::Value& v) {
    return static_cast<size_t>(v.rows) * static_cast<size_t>(v.cols);
  };
  // All room first: what is queued below must not move.
  size_t given = 0;
  for (const RowProgram::Value& v : values)
    if (v.given != nullptr) given += floats(v);
  const size_t bytes = given * sizeof(float) + program.tokens().size_bytes();
  room(given_host_, bytes), room(given_, bytes);
  if (values_.size() < values.size()) values_.resize(values.size());
  size_t at = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    Value& v = values_[i];
    v.rows = values[i].rows, v.cols = values[i].cols;
    if (values[i].given == nullptr) {
      room(v.own, floats(values[i]) * sizeof(float));
      v.data = v.own.as<float>();
      continue;
    }
    std::memcpy(given_host_.as<float>() + at, values[i].given, floats(values[i]) * sizeof(float));
    v.data = given_.as<float>() + at;
    at += floats(values[i]);
  }
  if (!program.tokens().empty())
    std::memcpy(given_host_.as<float>() + at, program.tokens().data(),
                program.tokens().size_bytes());
  step_matrices_.clear(), step_biases_.clear();
  for (const RowProgram::Step& s : steps) {
    const DeviceMatrix* m = nullptr;
    if (s.op == Op::kProduct) {
      m = &keep(*s.w, device, on.stream());
      room(product_geometry(m->storage(), m->ref().tiles, m->ref().blocks, s.rows), on.stream());
      Value& from = values_[static_cast<size_t>(s.from.value)];
      if (m->storage() != WeightStorage::kF32)
        room(from.bfloat16, static_cast<size_t>(from.rows) * static_cast<size_t>(m->padded_in()) *
                                sizeof(uint16_t));
    }
    step_matrices_.push_back(m);
    step_biases_.push_back(m == nullptr ? nullptr : keep(s.bias, m->outputs(), on.stream()));
  }

  key_ = {-1, static_cast<int64_t>(bytes), static_cast<int64_t>(values.size())};  // no rows
  int rows = 0;
  for (const RowProgram::Value& v : values) {
    key_.insert(key_.end(), {v.rows, v.cols, v.given != nullptr});
    rows = std::max(rows, v.rows);
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    const RowProgram::Step& s = steps[i];
    key_.insert(key_.end(),
                {static_cast<int64_t>(s.op), s.to.value, s.to.row, s.to.col, s.from.value,
                 s.from.row, s.from.col, s.rows, s.cols, s.first_token,
                 std::bit_cast<int32_t>(s.factor), std::bit_cast<int64_t>(step_biases_[i])});
    if (step_matrices_[i] != nullptr) add_to_key(*step_matrices_[i]);
  }
  on.begin();
  graphs_.run(key_, graphs_wanted_ && rows <= kGraphRows, on.stream(),
              [&] { queue(program, embedding, given, on.stream()); });
  on.end();
  const Value& v = values_[static_cast<size_t>(result)];
  InputView view(v.data, v.rows, v.cols);
  view.computed = true;
  return view;
}

void SideProducts::queue(const RowProgram& program, const DeviceMatrix& embedding, size_t given,
                         cudaStream_t stream) {
  const auto steps = program.steps();
  EVALRUN_CUDA(cudaMemcpyAsync(given_.as<void>(), given_host_.as<void>(),
                               given * sizeof(float) + program.tokens().size_bytes(),
                               cudaMemcpyHostToDevice, stream));
  for (Value& v : values_) v.rounded = false;
  for (size_t i = 0; i < steps.size(); ++i) {
    const RowProgram::Step& s = steps[i];
    Value &to = values_[static_cast<size_t>(s.to.value)],
          &from = values_[static_cast<size_t>(s.from.value)];
    float* y = to.own.as<float>() + static_cast<size_t>(s.to.row) * static_cast<size_t>(to.cols) +
               s.to.col;
    const auto from_row = static_cast<size_t>(s.from.row);
    const float* x =
        from.data + from_row * static_cast<size_t>(from.cols) + static_cast<size_t>(s.from.col);
    to.rounded = false;
    if (s.op != RowProgram::Op::kProduct) {
      RowStepJob job;
      job.op = s.op, job.to = y, job.from = x, job.ld_to = to.cols,
      job.ld_from = s.op == RowProgram::Op::kCopy && from.rows == 1 ? 0 : from.cols;
      job.cols = s.cols, job.factor = s.factor;
      job.tokens = reinterpret_cast<const int32_t*>(given_.as<float>() + given) + s.first_token;
      job.table = embedding.ref();
      step_rows(job, s.rows, stream);
      continue;
    }
    const DeviceMatrix& m = *step_matrices_[i];
    const void* in = x;
    if (m.storage() != WeightStorage::kF32) {
      // Once, for all products that read it.
      const InputRows rounded = {from.bfloat16.as<void>(), m.padded_in(), true};
      if (!std::exchange(from.rounded, true))
        round_rows(from.data, from.cols, from.cols, 1.0f, rounded, from.rows, stream);
      in = from.bfloat16.as<uint16_t>() + from_row * static_cast<size_t>(m.padded_in());
    }
    Epilogue e;
    e.y = y, e.ldy = to.cols, e.outputs = s.cols, e.bias = step_biases_[i];
    cuda::multiply({m.ref(), in, s.rows, e}, workspace_, stream);
  }
}

void SideProducts::prepare(Heads heads, const InputView& x, int device, cudaStream_t stream) {
  heads_.clear();
  for (const WeightMatrix* w : heads) heads_.push_back(&keep(*w, device, stream));
  const auto n = static_cast<size_t>(x.rows);
  const size_t x_bytes = n * static_cast<size_t>(x.cols) * sizeof(float);
  if (!x.computed) {  // before anything moves: x may be the last result
    room(x_host_, x_bytes), room(x_, x_bytes);
    std::memcpy(x_host_.as<void>(), x.data, x_bytes);
  }
  const DeviceMatrix& m = *heads_[0];
  const bool bf16 = m.storage() != WeightStorage::kF32;
  room(rounded_, n * static_cast<size_t>(bf16 ? m.padded_in() : m.in()) * (bf16 ? 2 : 4));
  for (const DeviceMatrix* w : heads_)
    room(product_geometry(w->storage(), w->ref().tiles, w->ref().blocks,
                          heads_.size() == 1 ? x.rows : 1),
         stream);
}

void SideProducts::queue(const InputView& x, float* y, int outputs, cudaStream_t stream) {
  const DeviceMatrix& m = *heads_[0];
  const bool bf16 = m.storage() != WeightStorage::kF32;
  const int stride = bf16 ? m.padded_in() : m.in();
  const InputRows in = {rounded_.as<void>(), stride, bf16};
  const float* rows = x.data;
  if (!x.computed) {
    EVALRUN_CUDA(
        cudaMemcpyAsync(x_.as<void>(), x_host_.as<void>(),
                        static_cast<size_t>(x.rows) * static_cast<size_t>(x.cols) * sizeof(float),
                        cudaMemcpyHostToDevice, stream));
    rows = x_.as<float>();
  }
  round_rows(rows, x.cols, x.cols, 1.0f, in, x.rows, stream);
  Epilogue e;
  e.y = y, e.ldy = e.outputs = outputs;
  if (heads_.size() == 1) return cuda::multiply({m.ref(), in.data, x.rows, e}, workspace_, stream);
  for (size_t i = 0; i < heads_.size(); ++i) {
    const auto* row = rounded_.as<unsigned char>() +
                      i * static_cast<size_t>(stride) * static_cast<size_t>(bf16 ? 2 : 4);
    e.y = y + i * static_cast<size_t>(outputs);
    cuda::multiply({heads_[i]->ref(), row, 1, e}, workspace_, stream);
  }
}

MatrixView SideProducts::multiply(const WeightMatrix& w, InputView x, int device, Queue& on) {
  const WeightMatrix* head = &w;
  prepare({&head, 1}, x, device, on.stream());
  const size_t y_bytes = static_cast<size_t>(x.rows) * static_cast<size_t>(w.out()) * sizeof(float);
  room(y_host_, y_bytes), room(y_, y_bytes);
  start_key(x), key_.push_back(w.out());
  on.begin();
  graphs_.run(key_, graphs_wanted_ && x.rows <= kGraphRows, on.stream(), [&] {
    queue(x, y_.as<float>(), w.out(), on.stream());
    EVALRUN_CUDA(cudaMemcpyAsync(y_host_.as<void>(), y_.as<void>(), y_bytes, cudaMemcpyDeviceToHost,
                                 on.stream()));
  });
  on.wait();
  return {y_host_.as<float>(), x.rows, w.out()};
}

Scores SideProducts::best_of(Heads heads, InputView x, int n_best, int device, Queue& on) {
  prepare(heads, x, device, on.stream());
  AnswerShape shape;
  shape.rows = x.rows, shape.n_logits = heads[0]->out(), shape.n_best = n_best;
  if (answers_.make_room(shape)) graphs_.clear();
  start_key(x), add_to_key(shape);
  on.begin();
  graphs_.run(key_, graphs_wanted_ && x.rows <= kGraphRows, on.stream(), [&] {
    queue(x, answers_.logits(), shape.n_logits, on.stream());
    answers_.queue(shape, {}, on.stream());
  });
  on.wait();
  best_.clear();
  for (int row = 0; row < x.rows; ++row) {
    answers_.read(shape, row, row_best_);
    best_.insert(best_.end(), row_best_.begin(), row_best_.end());
  }
  return {{}, best_, n_best, {}};
}

std::span<const int32_t> SideProducts::draw(Heads heads, InputView x,
                                            const DistributionDraws& draws, int device, Queue& on) {
  prepare(heads, x, device, on.stream());
  AnswerShape shape;
  shape.rows = x.rows, shape.n_logits = heads[0]->out();
  shape.draws = shape.tasks = true;  // no rejection_tests
  shape.inverse_temperature = inverse_temperature(*draws.sampling);
  shape.top_k = draws.sampling->top_k, shape.top_p = draws.sampling->top_p;
  tasks_.assign(static_cast<size_t>(x.rows), AnswerTask{});
  uniforms_.assign(static_cast<size_t>(x.rows), -1.0);
  for (const DistributionDraw& d : draws.rows) {
    const auto row = static_cast<size_t>(d.row);
    const auto further = d.uniforms.subspan(1);
    const auto more = static_cast<int32_t>(further.size());
    tasks_[row] = {AnswerTask::kDraws, d.slot, static_cast<int32_t>(uniforms_.size()), more};
    uniforms_[row] = d.uniforms[0];
    uniforms_.insert(uniforms_.end(), further.begin(), further.end());
    shape.more_draws = std::max(shape.more_draws, more);
  }
  const size_t task_bytes = tasks_.size() * sizeof(AnswerTask),
               bytes = task_bytes + uniforms_.size() * sizeof(double);
  room(asked_host_, bytes), room(asked_, bytes);
  if (answers_.make_room(shape)) graphs_.clear();
  std::memcpy(asked_host_.as<unsigned char>(), tasks_.data(), task_bytes);
  std::memcpy(asked_host_.as<unsigned char>() + task_bytes, uniforms_.data(), bytes - task_bytes);
  AnswerInputs in;
  in.tasks = asked_.as<AnswerTask>();
  in.uniforms = in.further_uniforms =
      reinterpret_cast<const double*>(asked_.as<unsigned char>() + task_bytes);
  const DeviceDistributions& dists = dists_on(*draws.dists, device);
  in.dists = dists.memory();

  start_key(x), add_to_key(shape);
  key_.insert(key_.end(), {static_cast<int64_t>(bytes), static_cast<int64_t>(dists.id())});
  on.begin();
  graphs_.run(key_, graphs_wanted_ && x.rows <= kGraphRows, on.stream(), [&] {
    EVALRUN_CUDA(cudaMemcpyAsync(asked_.as<void>(), asked_host_.as<void>(), bytes,
                                 cudaMemcpyHostToDevice, on.stream()));
    queue(x, answers_.logits(), shape.n_logits, on.stream());
    answers_.queue(shape, in, on.stream());
  });
  on.wait();
  tokens_.clear();
  for (const DistributionDraw& d : draws.rows)
    for (size_t i = 0; i < d.uniforms.size(); ++i)
      tokens_.push_back(answers_.drawn_token(shape, d.row, static_cast<int>(i)));
  return tokens_;
}

std::vector<const DeviceBuffer*> SideProducts::buffers() const {
  std::vector<const DeviceBuffer*> all = answers_.buffers();
  for (const DeviceBuffer* buffer :
       {&given_, &x_, &rounded_, &y_, &asked_, &workspace_.sums, &workspace_.counters})
    all.push_back(buffer);
  for (const Value& v : values_) all.push_back(&v.own), all.push_back(&v.bfloat16);
  return all;
}

}  // namespace evalrun::engine::cuda
