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

int MedusaHeads::add(engine::Session& session, std::span<const float> hidden, int n) {
  EVALRUN_CHECK(n_places_ == 0 || session_ == &session, "a look in two sessions");
  EVALRUN_CHECK(n >= 1 && n <= n_heads(), "{} of {} heads", n, n_heads());
  session_ = &session;
  if (n_places_ == 0) states_.clear();
  states_.insert(states_.end(), hidden.begin(), hidden.end());
  if (static_cast<size_t>(n_places_) == places_.size()) places_.emplace_back();
  Place& place = places_[static_cast<size_t>(n_places_)];
  place.heads = n;
  place.asked.clear();
  return n_places_++;
}

void MedusaHeads::ask(int place, int head, const engine::DistributionDraw& draw) {
  std::vector<engine::DistributionDraw>& asked = places_[static_cast<size_t>(place)].asked;
  asked.resize(static_cast<size_t>(head) + 1);
  asked.back() = draw;
}

engine::Heads MedusaHeads::outputs(int n) {
  output_list_.clear();
  if (tied()) {
    output_list_.push_back(outputs_[0].get());
    return output_list_;
  }
  for (int k = 0; k < n; ++k)
    output_list_.insert(output_list_.end(), static_cast<size_t>(n_places_),
                        outputs_[static_cast<size_t>(k)].get());
  return output_list_;
}

engine::InputView MedusaHeads::compute(int n) {
  const int p = n_places_;
  program_.clear();
  const int state = program_.given({states_.data(), p, d_});
  const int h = program_.value(n * p, d_);
  if (p == 1) {
    program_.copy({h}, {state}, n, d_);
  } else {
    for (int k = 0; k < n; ++k) program_.copy({h, k * p}, {state}, p, d_);
  }
  for (size_t j = 0; j < heads_[0].w.size(); ++j) {
    // All heads' blocks, then one addition. The first blocks read the states themselves.
    const int y = program_.value(n * p, d_);
    for (int k = 0; k < n; ++k) {
      const Head& head = heads_[static_cast<size_t>(k)];
      using At = engine::RowProgram::Place;
      program_.product({y, k * p}, head.w[j], j == 0 ? At{state} : At{h, k * p}, p, head.b[j]);
    }
    program_.add_silu(h, y);
  }
  return session_->compute(program_, h);
}

// A slot that drafts less deep than others has no use for the later heads.
void MedusaHeads::run() {
  EVALRUN_CHECK(n_places_ > 0, "a look at nothing");
  int n = 0;
  for (int p = 0; p < n_places_; ++p) n = std::max(n, places_[static_cast<size_t>(p)].heads);
  const engine::InputView rows = compute(n);
  if (dists_ == nullptr)
    scores_ = session_->score(outputs(n), rows, best_);
  else
    draw(n, rows);
}

void MedusaHeads::draw(int n, engine::InputView rows) {
  draws_.clear();
  drawn_.begin(rows.rows);
  for (int k = 0; k < n; ++k)
    for (int p = 0; p < n_places_; ++p) {
      const auto& asked = places_[static_cast<size_t>(p)].asked;
      if (static_cast<size_t>(k) >= asked.size()) continue;
      draws_.push_back(asked[static_cast<size_t>(k)]);
      draws_.back().row = k * n_places_ + p;
      drawn_.add(draws_.back());
    }
  drawn_.set(session_->draw(outputs(n), rows, {sampling_, dists_, draws_}));
}

engine::RowScores MedusaHeads::scores(int place, int head) const {
  const int row = head * n_places_ + place;
  return dists_ == nullptr ? scores_.row(row) : drawn_.scores(row);
}

}  // namespace evalrun::methods
