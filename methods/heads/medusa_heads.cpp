#include "methods/heads/medusa_heads.h"

#include <algorithm>

#include "engine/base/error.h"

namespace evalrun::methods {

namespace {
constexpr int kMostHeads = 64;
}

MedusaHeads::MedusaHeads(AdapterReader& adapter, const engine::Model& target,
                         engine::WeightStorage storage)
    : d_(target.config().d_model) {
  while (n_heads() < kMostHeads && adapter.has(fmt::format("heads.{}.0.weight", n_heads())))
    read_head(adapter, storage);
  if (heads_.empty()) adapter.fail("tensor heads.0.0.weight", "is missing: there are no heads");
  ids_ = adapter.draft_vocabulary();
  const bool tied = !adapter.has("heads.0.lm_head.weight");
  for (int k = 0; k < (tied ? 1 : n_heads()); ++k)
    outputs_.push_back(adapter.head(fmt::format("heads.{}.lm_head.weight", k), ids_, storage));
  adapter.finish();
  for (const Head& head : heads_)
    for (const engine::WeightMatrix& w : head.w) bytes_ += w.size();
  size_t outputs = 0;
  for (const auto& w : outputs_) outputs += w->size();
  relative_cost_ =
      static_cast<double>(bytes_ + outputs) / static_cast<double>(target.streamed_bytes());
  if (outputs_[0] != target.shared_head()) bytes_ += outputs;
  for (const auto& w : outputs_) output_list_.push_back(w.get());
}

void MedusaHeads::read_head(AdapterReader& adapter, engine::WeightStorage storage) {
  Head head;
  const int k = n_heads();
  for (int j = 0; adapter.has(fmt::format("heads.{}.{}.weight", k, j)); ++j) {
    head.w.push_back(adapter.matrix(fmt::format("heads.{}.{}.weight", k, j), d_, d_, storage));
    head.b.push_back(std::make_shared<const std::vector<float>>(
        adapter.vector(fmt::format("heads.{}.{}.bias", k, j), d_)));
  }
  if (k > 0 && head.w.size() != heads_[0].w.size())
    adapter.fail(
        fmt::format("tensor heads.{}.{}.weight", k, std::min(head.w.size(), heads_[0].w.size())),
        fmt::format("head {} has {} blocks, head 0 has {}", k, head.w.size(), heads_[0].w.size()));
  heads_.push_back(std::move(head));
}

engine::Heads MedusaHeads::outputs(int n) const {
  const engine::Heads all = output_list_;
  return all.first(tied() ? 1 : static_cast<size_t>(n));
}

engine::InputView MedusaHeads::compute(engine::Session& session, std::span<const float> hidden,
                                       int n) {
  program_.clear();
  const int state = program_.given({hidden.data(), 1, d_});
  const int h = program_.value(n, d_);
  program_.copy({h}, {state}, n, d_);
  for (size_t j = 0; j < heads_[0].w.size(); ++j) {
    // All heads' blocks, then one addition. The first blocks read the state itself.
    const int y = program_.value(n, d_);
    for (int k = 0; k < n; ++k) {
      const Head& head = heads_[static_cast<size_t>(k)];
      program_.product({y, k}, head.w[j],
                       j == 0 ? engine::RowProgram::Place{state} : engine::RowProgram::Place{h, k},
                       1, head.b[j]);
    }
    program_.add_silu(h, y);
  }
  return session.compute(program_, h);
}

void MedusaHeads::look(engine::Session& session, std::span<const float> hidden, int n, int n_best,
                       See see) {
  const engine::Scores y = session.score(outputs(n), compute(session, hidden, n), n_best);
  for (int k = 0; k < n; ++k) see(k, y.row(k));
}

void MedusaHeads::draw(engine::Session& session, std::span<const float> hidden, int n,
                       engine::DistributionStore* dists, const engine::SamplingParams& sampling,
                       base::FunctionRef<engine::DistributionDraw(int head)> ask, See see) {
  draws_.clear();
  for (int k = 0; k < n; ++k) {
    draws_.push_back(ask(k));
    draws_.back().row = k;
  }
  auto tokens = session.draw(outputs(n), compute(session, hidden, n), {&sampling, dists, draws_});
  for (int k = 0; k < n; ++k) {
    const size_t own = draws_[static_cast<size_t>(k)].uniforms.size();
    engine::RowScores scores;
    scores.drawn = tokens.first(own);
    tokens = tokens.subspan(own);
    see(k, scores);
  }
}

}  // namespace evalrun::methods
