// A session that passes everything through to another one: for what watches, disturbs or replaces
// some of it.
#pragma once
#include <memory>
#include <utility>

#include "engine/session.h"

namespace evalrun::engine {

class WrappedSession : public Session {
 public:
  explicit WrappedSession(std::unique_ptr<Session> session) : s_(std::move(session)) {}
  bool draws_cheaply() const override { return s_->draws_cheaply(); }
  ForwardResult forward(const ForwardRequest& request) override { return s_->forward(request); }
  const Model& model() const override { return s_->model(); }
  const SessionOptions& options() const override { return s_->options(); }
  std::string isa() const override { return s_->isa(); }
  int n_threads() const override { return s_->n_threads(); }
  std::unique_ptr<DistributionStore> make_distributions(int slots, int vocab,
                                                        std::span<const int32_t> ids) override {
    return s_->make_distributions(slots, vocab, ids);
  }
  int length(int sequence) const override { return s_->length(sequence); }
  int free_tokens(int sequence) const override { return s_->free_tokens(sequence); }
  using Session::prefill;
  void prefill(std::span<const SequenceTokens> parts) override { s_->prefill(parts); }
  using Session::commit;
  void commit(std::span<const SequencePath> paths) override { s_->commit(paths); }
  void rewind(int length, int sequence) override { s_->rewind(length, sequence); }
  void fork(int from, int to) override { s_->fork(from, to); }
  void keep_features(const FeatureSet& set) override { s_->keep_features(set); }
  MatrixView hidden_features(int sequence) const override { return s_->hidden_features(sequence); }
  MatrixView residual_features(int index, int sequence) const override {
    return s_->residual_features(index, sequence);
  }
  MatrixView head(InputView hidden) override { return s_->head(hidden); }
  MatrixView multiply(const WeightMatrix& w, InputView x) override { return s_->multiply(w, x); }
  InputView compute(const RowProgram& program, int result) override {
    return s_->compute(program, result);
  }
  Scores score(Heads heads, InputView x, int best) override { return s_->score(heads, x, best); }
  std::span<const int32_t> draw(Heads heads, InputView x, const DistributionDraws& draws) override {
    return s_->draw(heads, x, draws);
  }
  void read_kv(int layer, int position, int sequence, std::span<float> k,
               std::span<float> v) const override {
    s_->read_kv(layer, position, sequence, k, v);
  }
  PhaseTimes phases() const override { return s_->phases(); }
  size_t bytes_per_forward(int context) const override { return s_->bytes_per_forward(context); }
  size_t kv_bytes() const override { return s_->kv_bytes(); }
  size_t workspace_bytes() const override { return s_->workspace_bytes(); }

 private:
  std::unique_ptr<Session> s_;
};

}  // namespace evalrun::engine
