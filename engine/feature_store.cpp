#include "engine/feature_store.h"

#include <algorithm>

#include "engine/base/error.h"

namespace evalrun::engine {
namespace {

void copy_feature(std::span<const float> from, int position, base::UntouchedVector<float>& to) {
  std::copy(from.begin(), from.end(),
            to.begin() + static_cast<ptrdiff_t>(position) * static_cast<ptrdiff_t>(from.size()));
}

}  // namespace

FeatureStore::FeatureStore(const ModelConfig& config, int n_sequences, int max_tokens)
    : n_layers_(config.n_layers),
      d_model_(config.d_model),
      max_tokens_(max_tokens),
      kept_(static_cast<size_t>(n_sequences)) {}

void FeatureStore::keep(const FeatureSet& set) {
  for (const int l : set.residual_layers)
    EVALRUN_CHECK(l >= 0 && l <= n_layers_, "residual layer {} of {}", l, n_layers_);
  if (set_ == set) return;
  set_ = set;
  for (Kept& k : kept_) k.featured = 0;
}

bool FeatureStore::needs_last_layer() const {
  return set_.hidden ||
         std::ranges::find(set_.residual_layers, n_layers_) != set_.residual_layers.end();
}

ForwardRequest FeatureStore::with_features(const ForwardRequest& given) {
  ForwardRequest request = given;
  if (set_.hidden) {
    rows_.assign(given.rows.begin(), given.rows.end());
    for (Row& row : rows_) row.hidden = true;
    request.rows = rows_;
  }
  layers_.assign(given.residual_layers.begin(), given.residual_layers.end());
  layers_.insert(layers_.end(), set_.residual_layers.begin(), set_.residual_layers.end());
  request.residual_layers = layers_;
  EVALRUN_CHECK(!given.extend, "features of rows that stay are not kept");
  return request;
}

void FeatureStore::take(ForwardResult& result, size_t residuals) {
  last_ = result;
  result.residual = result.residual.first(residuals);
}

FeatureStore::Kept& FeatureStore::with_room(int sequence) {
  Kept& k = kept_[static_cast<size_t>(sequence)];
  const size_t size = static_cast<size_t>(max_tokens_) * static_cast<size_t>(d_model_);
  if (set_.hidden && k.hidden.size() < size) k.hidden.resize(size);
  k.residual.resize(set_.residual_layers.size());
  for (Values& r : k.residual)
    if (r.size() < size) r.resize(size);
  return k;
}

void FeatureStore::keep_rows(std::span<const int> path, int sequence, int length) {
  Kept& k = with_room(sequence);
  const size_t callers = last_.residual.size() - set_.residual_layers.size();
  for (size_t j = 0; j < path.size(); ++j) {
    const int position = length + static_cast<int>(j);
    if (set_.hidden) copy_feature(last_.hidden_row(path[j]), position, k.hidden);
    for (size_t i = 0; i < k.residual.size(); ++i)
      copy_feature(last_.residual[callers + i].row(path[j]), position, k.residual[i]);
  }
  if (k.featured == length) k.featured = length + static_cast<int>(path.size());
}

void FeatureStore::keep_chunk(const ForwardResult& chunks, int first, int n, int sequence,
                              int position) {
  Kept& k = with_room(sequence);
  for (int i = 0; i < n; ++i) {
    if (set_.hidden) copy_feature(chunks.hidden.row(first + i), position + i, k.hidden);
    for (size_t j = 0; j < k.residual.size(); ++j)
      copy_feature(chunks.residual[j].row(first + i), position + i, k.residual[j]);
  }
  if (k.featured >= position) k.featured = position + n;
}

void FeatureStore::rewind(int length, int sequence) {
  Kept& k = kept_[static_cast<size_t>(sequence)];
  k.featured = std::min(k.featured, length);
}

void FeatureStore::fork(int from, int to) {
  const Kept& source = kept_[static_cast<size_t>(from)];
  kept_[static_cast<size_t>(to)].featured = source.featured;
  if (source.featured == 0) return;
  Kept& copy = with_room(to);
  // What has no features was never written, and stays so.
  const auto n = static_cast<ptrdiff_t>(source.featured) * static_cast<ptrdiff_t>(d_model_);
  if (set_.hidden) std::copy_n(source.hidden.begin(), n, copy.hidden.begin());
  for (size_t i = 0; i < copy.residual.size(); ++i)
    std::copy_n(source.residual[i].begin(), n, copy.residual[i].begin());
}

MatrixView FeatureStore::hidden(int sequence, int length) const {
  EVALRUN_CHECK(set_.hidden, "hidden states are not kept");
  const Kept& k = kept_[static_cast<size_t>(sequence)];
  return view(k, k.hidden, length);
}

MatrixView FeatureStore::residual(int index, int sequence, int length) const {
  EVALRUN_CHECK(index >= 0 && static_cast<size_t>(index) < set_.residual_layers.size(),
                "residual stream {} of {}", index, set_.residual_layers.size());
  const Kept& k = kept_[static_cast<size_t>(sequence)];
  // Nothing was committed since this set was chosen: `view` says so.
  static const Values kNothing;
  const auto i = static_cast<size_t>(index);
  return view(k, i < k.residual.size() ? k.residual[i] : kNothing, length);
}

MatrixView FeatureStore::view(const Kept& kept, const Values& values, int length) const {
  EVALRUN_CHECK(kept.featured == length, "{} of {} tokens were committed with features",
                kept.featured, length);
  return {values.data(), length, d_model_};
}

}  // namespace evalrun::engine
