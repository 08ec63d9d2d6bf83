#include "methods/medusa_heads.h"

#include <algorithm>
#include <cmath>

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
  hidden_.resize(static_cast<size_t>(n_heads()) * static_cast<size_t>(d_));
}

void MedusaHeads::read_head(AdapterReader& adapter, engine::WeightStorage storage) {
  Head head;
  const int k = n_heads();
  for (int j = 0; adapter.has(fmt::format("heads.{}.{}.weight", k, j)); ++j) {
    head.w.push_back(adapter.matrix(fmt::format("heads.{}.{}.weight", k, j), d_, d_, storage));
    head.b.push_back(adapter.vector(fmt::format("heads.{}.{}.bias", k, j), d_));
  }
  heads_.push_back(std::move(head));
}

void MedusaHeads::compute(engine::Session& session, std::span<const float> hidden, int n) {
  const auto d = static_cast<size_t>(d_);
  for (size_t k = 0; k < static_cast<size_t>(n); ++k) {
    float* h = hidden_.data() + k * d;
    std::copy(hidden.begin(), hidden.end(), h);
    for (size_t j = 0; j < heads_[k].w.size(); ++j) {
      const engine::MatrixView y = session.multiply(heads_[k].w[j], {h, 1, d_});
      for (size_t i = 0; i < d; ++i) {
        const float x = y.row(0)[i] + heads_[k].b[j][i];
        h[i] += x / (1.0f + std::exp(-x));
      }
    }
  }
}

engine::MatrixView MedusaHeads::states(int first, int n) const {
  return {hidden_.data() + static_cast<size_t>(first) * static_cast<size_t>(d_), n, d_};
}

void MedusaHeads::look(engine::Session& session, std::span<const float> hidden, int n, int n_best,
                       See see) {
  compute(session, hidden, n);
  const int together = tied() ? n : 1;  // one pass over a matrix for all heads
  for (int first = 0; first < n; first += together) {
    const engine::Scores y = session.score(output(first), states(first, together), n_best);
    for (int i = 0; i < together; ++i) see(first + i, y.row(i));
  }
}

void MedusaHeads::draw(engine::Session& session, std::span<const float> hidden, int n,
                       engine::LawStore* laws, const engine::SamplingParams& sampling,
                       FunctionRef<engine::LawDraw(int head)> ask, See see) {
  compute(session, hidden, n);
  const int together = tied() ? n : 1;
  for (int first = 0; first < n; first += together) {
    draws_.clear();
    for (int i = 0; i < together; ++i) {
      draws_.push_back(ask(first + i));
      draws_.back().row = i;
    }
    auto tokens = session.draw(output(first), states(first, together), {&sampling, laws, draws_});
    for (int i = 0; i < together; ++i) {
      const size_t own = draws_[static_cast<size_t>(i)].chances.size();
      engine::RowScores scores;
      scores.drawn = tokens.first(own);
      tokens = tokens.subspan(own);
      see(first + i, scores);
    }
  }
}

}  // namespace evalrun::methods
