// Features of the committed tokens of a session's sequences (Session::keep_features), position by
// position, for drafters that read them. A sequence has room for max_tokens of them; its pages take
// memory as tokens are kept.
#pragma once
#include <span>
#include <vector>

#include "engine/base/aligned.h"
#include "engine/results.h"
#include "engine/rows.h"

namespace evalrun::engine {

class FeatureStore {
 public:
  FeatureStore(const ModelConfig& config, int n_sequences, int max_tokens);

  const FeatureSet& set() const { return set_; }
  bool empty() const { return set_.empty(); }
  // Another set forgets what was kept.
  void keep(const FeatureSet& set);
  // Whether a prefill must compute its last layer in full.
  bool needs_last_layer() const;

  // The request that asks for the features of every row as well. Its residual streams are the
  // caller's, then the features'. Valid until the next call.
  ForwardRequest with_features(const ForwardRequest& given);
  // The result of that request, to keep rows of; becomes the caller's, who asked for `residuals`
  // residual streams.
  void take(ForwardResult& result, size_t residuals);
  // Rows of it, committed to a sequence that held `length` tokens.
  void keep_rows(std::span<const int> path, int sequence, int length);
  // Rows [first, first + n) of a forward of prefill chunks: a sequence's tokens from `position` on.
  void keep_chunk(const ForwardResult& chunks, int first, int n, int sequence, int position);

  void rewind(int length, int sequence);
  void fork(int from, int to);

  // [length, d_model]. InternalError when not all of the sequence's `length` tokens were committed
  // with features.
  MatrixView hidden(int sequence, int length) const;
  MatrixView residual(int index, int sequence, int length) const;

 private:
  using Values = base::UntouchedVector<float>;
  struct Kept {
    int featured = 0;              // how many tokens from the first on have features
    Values hidden;                 // [max_tokens, d_model]
    std::vector<Values> residual;  // [layers kept][max_tokens, d_model]
  };
  Kept& with_room(int sequence);
  MatrixView view(const Kept& kept, const Values& values, int length) const;

  const int n_layers_, d_model_, max_tokens_;
  FeatureSet set_;
  std::vector<Kept> kept_;  // [sequence]
  ForwardResult last_;      // with the features of its rows
  std::vector<Row> rows_;
  std::vector<int> layers_;
};

}  // namespace evalrun::engine
