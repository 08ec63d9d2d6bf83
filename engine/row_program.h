// Small layers beside a model's own: what drafters put before their network or before a head. A
// drafter says all of it at once (Session::compute), so that a device queues it without coming back
// to the host between one product and the next; what follows (a forward, scores, draws) takes the
// rows where they are.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/model/model.h"
#include "engine/rows.h"

namespace evalrun::engine {

// Known to a device by its address, as long as it lives. Null = none.
using SharedVector = std::shared_ptr<const std::vector<float>>;

// Steps over matrices of rows in float32, numbered in the order they are named. Spans, views and
// matrices must live until compute() returns.
class RowProgram {
 public:
  struct Place {  // upper left corner of a block
    int value = 0, row = 0, col = 0;
  };
  enum class Op { kEmbed, kCopy, kAdd, kAddSilu, kLstm, kProduct };
  struct Step {
    Op op = Op::kCopy;
    Place to, from;
    int rows = 0, cols = 0;  // of the block that is written
    float factor = 1;
    int first_token = 0;              // kEmbed: in tokens()
    const WeightMatrix* w = nullptr;  // kProduct
    SharedVector bias;
  };
  struct Value {
    int rows = 0, cols = 0;
    const float* given = nullptr;  // what it is from the start
  };

  void clear();
  int given(InputView rows);      // the host's
  int value(int rows, int cols);  // anything until it is written

  // to = factor * embeddings of these tokens, by the session's own model.
  void embed(Place to, std::span<const int32_t> tokens, int d_model, float factor = 1);
  // to = factor * from; a value of one row is every row.
  void copy(Place to, Place from, int rows, int cols, float factor = 1);
  // to += factor * from, whole values
  void add(int to, int from, float factor = 1);
  // to += silu(from), whole values
  void add_silu(int to, int from);
  // An LSTM's output without a state: gates [rows, 3 d] i, g, o or [rows, 4 d] i, f, g, o.
  void lstm(int to, int gates);
  // to = w from + bias for `rows` whole rows from from.row on
  void product(Place to, const WeightMatrix& w, Place from, int rows,
               const SharedVector& bias = nullptr);

  std::span<const Value> values() const { return values_; }
  std::span<const Step> steps() const { return steps_; }
  std::span<const int32_t> tokens() const { return tokens_; }

 private:
  void push(Step step);
  const Value& at(int value) const;

  std::vector<Value> values_;
  std::vector<Step> steps_;
  std::vector<int32_t> tokens_;
};

// Runs programs step by step on the host.
class HostRows {
 public:
  struct Arithmetic {
    std::function<MatrixView(const WeightMatrix&, MatrixView)> multiply;
    // silu(gate) * up, and cpu::lstm_cell(), of n numbers
    void (*silu_mul)(const float* gate, const float* up, int n, float* y);
    void (*lstm)(const float* i, const float* g, const float* o, int n, float* y);
  };
  // Valid until the next call.
  InputView run(const RowProgram& program, int result, const Model& model, const Arithmetic& with);
  // As the numerics are defined, one number after the other.
  static void plain_silu_mul(const float* gate, const float* up, int n, float* y);
  static void plain_lstm(const float* i, const float* g, const float* o, int n, float* y);

 private:
  std::vector<std::vector<float>> values_;
  std::vector<float> ones_, silu_;
};

}  // namespace evalrun::engine
