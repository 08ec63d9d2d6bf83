#include "engine/model/low_rank.h"

#include "engine/base/error.h"
#include "engine/model/parallel_for.h"

namespace evalrun::engine {
namespace {

WeightMatrix merged(const WeightMatrix& w, const LowRankFactor& f) {
  if (f.empty()) return w;
  EVALRUN_CHECK(f.a.in() == w.in() && f.b.out() == w.out() && f.b.in() == f.rank(),
                "low-rank update [{}, {}] x [{}, {}] of a matrix [{}, {}]", f.b.out(), f.b.in(),
                f.a.out(), f.a.in(), w.out(), w.in());
  const auto n_in = static_cast<size_t>(w.in()), rank = static_cast<size_t>(f.rank());
  std::vector<float> a(rank * n_in), b(rank), row(n_in);
  for (size_t r = 0; r < rank; ++r)
    f.a.copy_row(static_cast<int>(r), std::span(a).subspan(r * n_in, n_in));
  WeightMatrix result(WeightMatrix::storage_for_values(w.storage()), w.out(), w.in());
  for (int o = 0; o < w.out(); ++o) {
    w.copy_row(o, row);
    f.b.copy_row(o, b);
    for (size_t r = 0; r < rank; ++r)
      for (size_t i = 0; i < n_in; ++i) row[i] += f.scale * b[r] * a[r * n_in + i];
    result.set_row(o, row);
  }
  return result;
}

}  // namespace

size_t LowRankDelta::bytes() const {
  size_t total = 0;
  for (const LowRankLayer& l : layers)
    for (const LowRankFactor* f : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down})
      total += f->a.size() + f->b.size();
  return total;
}

void LowRankDelta::gather() {
  std::vector<WeightMatrix*> all;
  for (LowRankLayer& l : layers)
    for (LowRankFactor* f : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down})
      all.push_back(&f->a), all.push_back(&f->b);
  gather_weights(all);
}

std::shared_ptr<const Model> merge_low_rank(const Model& model, const LowRankDelta& delta,
                                            const std::string& name, const std::string& hash,
                                            int n_threads) {
  const auto n_layers = static_cast<size_t>(model.config().n_layers);
  EVALRUN_CHECK(delta.layers.size() == n_layers, "low-rank delta of {} layers for {}",
                delta.layers.size(), n_layers);
  ModelParts parts = model.parts();  // shares what does not change
  parts.config.name = name;
  parts.hash = hash;
  std::vector<std::shared_ptr<LayerWeights>> layers(n_layers);
  parallel_for(n_threads, n_layers, [&](size_t l) {
    const LayerWeights& from = model.layer(static_cast<int>(l));
    const LowRankLayer& d = delta.layers[l];
    LayerWeights to = from.without_matrices();
    to.q = merged(from.q, d.q), to.k = merged(from.k, d.k), to.v = merged(from.v, d.v);
    to.o = merged(from.o, d.o), to.gate = merged(from.gate, d.gate);
    to.up = merged(from.up, d.up), to.down = merged(from.down, d.down);
    layers[l] = std::make_shared<LayerWeights>(std::move(to));
  });
  std::vector<WeightMatrix*> all;
  for (const auto& w : layers)
    for (WeightMatrix* m : w->matrices()) all.push_back(m);
  gather_weights(all);
  for (size_t l = 0; l < n_layers; ++l) parts.layers[l] = std::move(layers[l]);
  return Model::create(std::move(parts));
}

}  // namespace evalrun::engine
