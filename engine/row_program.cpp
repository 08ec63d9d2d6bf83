#include "engine/row_program.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/cpu/kernels/arith.h"

namespace evalrun::engine {

void RowProgram::clear() {
  values_.clear();
  steps_.clear();
  tokens_.clear();
}

const RowProgram::Value& RowProgram::at(int value) const {
  EVALRUN_CHECK(value >= 0 && static_cast<size_t>(value) < values_.size(), "value {} of {}", value,
                values_.size());
  return values_[static_cast<size_t>(value)];
}

int RowProgram::given(InputView rows) {
  EVALRUN_CHECK(!rows.computed, "rows of another program, which the host cannot read");
  const int number = value(rows.rows, rows.cols);
  values_.back().given = rows.data;
  return number;
}

int RowProgram::value(int rows, int cols) {
  EVALRUN_CHECK(rows >= 1 && rows <= kMaxRows && cols >= 1, "a value of {} x {}", rows, cols);
  values_.push_back({rows, cols});
  return static_cast<int>(values_.size()) - 1;
}

void RowProgram::push(Step step) {
  const Value& to = at(step.to.value);
  EVALRUN_CHECK(to.given == nullptr && step.to.row >= 0 && step.to.col >= 0 && step.rows >= 1 &&
                    step.to.row + step.rows <= to.rows && step.to.col + step.cols <= to.cols,
                "{} x {} at ({}, {}) of a value of {} x {}", step.rows, step.cols, step.to.row,
                step.to.col, to.rows, to.cols);
  steps_.push_back(std::move(step));
}

void RowProgram::embed(Place to, std::span<const int32_t> tokens, int d_model, float factor) {
  Step s;
  s.op = Op::kEmbed, s.to = to, s.factor = factor;
  s.rows = static_cast<int>(tokens.size()), s.cols = d_model;
  s.first_token = static_cast<int>(tokens_.size());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  push(s);
}

void RowProgram::copy(Place to, Place from, int rows, int cols, float factor) {
  const Value& source = at(from.value);
  EVALRUN_CHECK(from.value != to.value && from.row >= 0 && from.col >= 0 && cols >= 1 &&
                    (source.rows == 1 ? from.row == 0 : from.row + rows <= source.rows) &&
                    from.col + cols <= source.cols,
                "{} x {} at ({}, {}) of a value of {} x {}", rows, cols, from.row, from.col,
                source.rows, source.cols);
  Step s;
  s.to = to, s.from = from, s.rows = rows, s.cols = cols, s.factor = factor;
  push(s);
}

void RowProgram::add(int to, int from, float factor) {
  const Value &a = at(to), &b = at(from);
  EVALRUN_CHECK(to != from && a.rows == b.rows && a.cols == b.cols, "{} x {} and {} x {}", a.rows,
                a.cols, b.rows, b.cols);
  Step s;
  s.op = Op::kAdd, s.to.value = to, s.from.value = from, s.factor = factor;
  s.rows = a.rows, s.cols = a.cols;
  push(s);
}

void RowProgram::add_silu(int to, int from) {
  add(to, from);
  steps_.back().op = Op::kAddSilu;
}

void RowProgram::lstm(int to, int gates) {
  const Value &a = at(to), &b = at(gates);
  EVALRUN_CHECK(to != gates && a.rows == b.rows && (b.cols == 3 * a.cols || b.cols == 4 * a.cols),
                "gates of {} x {} for {} x {}", b.rows, b.cols, a.rows, a.cols);
  Step s;
  s.op = Op::kLstm, s.to.value = to, s.from.value = gates, s.rows = a.rows, s.cols = a.cols;
  push(s);
}

void RowProgram::product(Place to, const WeightMatrix& w, Place from, int rows,
                         const SharedVector& bias) {
  const Value& source = at(from.value);
  EVALRUN_CHECK(from.value != to.value && from.row >= 0 && from.col == 0 && source.cols == w.in() &&
                    from.row + rows <= source.rows,
                "a product of {} inputs from row {} of {} x {}", w.in(), from.row, source.rows,
                source.cols);
  EVALRUN_CHECK(bias == nullptr || bias->size() == static_cast<size_t>(w.out()),
                "a bias of other length");
  Step s;
  s.op = Op::kProduct, s.to = to, s.from = from, s.rows = rows, s.cols = w.out();
  s.w = &w, s.bias = bias;
  push(std::move(s));
}

void HostRows::plain_silu_mul(const float* gate, const float* up, int n, float* y) {
  for (int j = 0; j < n; ++j) y[j] = cpu::silu_mul(gate[j], up[j]);
}
void HostRows::plain_lstm(const float* i, const float* g, const float* o, int n, float* y) {
  for (int j = 0; j < n; ++j) y[j] = cpu::lstm_cell(i[j], g[j], o[j]);
}

InputView HostRows::run(const RowProgram& program, int result, const Model& model,
                        const Arithmetic& with) {
  using Place = RowProgram::Place;
  const auto values = program.values();
  if (values_.size() < values.size()) values_.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t size = static_cast<size_t>(values[i].rows) * static_cast<size_t>(values[i].cols);
    if (values[i].given == nullptr && values_[i].size() < size) values_[i].resize(size);
  }
  const auto offset = [&](const Place& place, int row) {
    return static_cast<size_t>(place.row + row) *
               static_cast<size_t>(values[static_cast<size_t>(place.value)].cols) +
           static_cast<size_t>(place.col);
  };
  const auto source = [&](const Place& place, int row) {
    const auto value = static_cast<size_t>(place.value);
    const float* given = values[value].given;
    return (given != nullptr ? given : values_[value].data()) + offset(place, row);
  };
  using Op = RowProgram::Op;
  for (const RowProgram::Step& s : program.steps()) {
    MatrixView y;
    if (s.op == Op::kProduct) y = with.multiply(*s.w, {source(s.from, 0), s.rows, s.w->in()});
    const auto cols = static_cast<size_t>(s.cols);
    for (int i = 0; i < s.rows; ++i) {
      float* to = values_[static_cast<size_t>(s.to.value)].data() + offset(s.to, i);
      const bool one = values[static_cast<size_t>(s.from.value)].rows == 1;
      const float* from = s.op == Op::kEmbed ? nullptr : source(s.from, one ? 0 : i);
      switch (s.op) {
        case Op::kEmbed:
          model.embed(program.tokens()[static_cast<size_t>(s.first_token + i)], {to, cols});
          for (size_t j = 0; j < cols; ++j) to[j] = to[j] * s.factor;
          break;
        case Op::kCopy:
          for (size_t j = 0; j < cols; ++j) to[j] = from[j] * s.factor;
          break;
        case Op::kAdd:
          for (size_t j = 0; j < cols; ++j) to[j] = to[j] + from[j] * s.factor;
          break;
        case Op::kAddSilu:
          ones_.resize(cols, 1.0f), silu_.resize(cols);
          with.silu_mul(from, ones_.data(), s.cols, silu_.data());
          for (size_t j = 0; j < cols; ++j) to[j] = to[j] + silu_[j];
          break;
        case Op::kLstm: {
          const auto gates =
              static_cast<size_t>(values[static_cast<size_t>(s.from.value)].cols / s.cols);
          const float *g = from + (gates - 2) * cols, *o = g + cols;
          with.lstm(from, g, o, s.cols, to);
          break;
        }
        case Op::kProduct:
          std::ranges::copy(y.row(i), to);
          if (s.bias != nullptr)
            for (size_t j = 0; j < cols; ++j) to[j] = to[j] + (*s.bias)[j];
          break;
      }
    }
  }
  const auto& v = values[static_cast<size_t>(result)];
  return {source({result}, 0), v.rows, v.cols};
}

}  // namespace evalrun::engine
