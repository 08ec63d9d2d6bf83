#include "runners/train/skip_search.h"

#include <algorithm>
#include <chrono>

#include "engine/base/error.h"
#include "methods/model_draft/skip_layers.h"

namespace evalrun::runners {
namespace {

// Sublayers looked at again in each round: agreement changes slowly, so that those that were far
// from the best need not be tried every time.
constexpr size_t kShortList = 10;
constexpr int kFullRoundEvery = 6;

struct Sublayer {
  bool attention;
  size_t layer;
  double loss = 0;  // agreement lost per share of weights saved, when last tried
};

class Search {
 public:
  Search(engine::Session& session, std::span<const SkipText> texts,
         const engine::RowCostTable& costs, const SkipSearchOptions& options)
      : session_(session), texts_(texts), costs_(costs), options_(options) {
    const auto layers = static_cast<size_t>(session.model().config().n_layers);
    empty_.attention.assign(layers, false);
    empty_.mlp.assign(layers, false);
    for (const bool attention : {true, false})
      for (size_t l = 0; l < layers; ++l) left_.push_back({attention, l, 0});
  }

  std::vector<SkipEstimate> run() {
    const auto begin = std::chrono::steady_clock::now();
    const auto elapsed = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    commit_prompts();
    std::vector<SkipEstimate> path;
    engine::SkipSet skip = empty_;
    double agreement = 1, kept = 1;
    SkipEstimate best;
    for (int round = 0; left_.size() > 1; ++round) {
      std::stable_sort(left_.begin(), left_.end(),
                       [](const Sublayer& a, const Sublayer& b) { return a.loss < b.loss; });
      const size_t tried =
          round % kFullRoundEvery == 0 ? left_.size() : std::min(kShortList, left_.size());
      size_t chosen = 0;
      SkipEstimate found;
      for (size_t i = 0; i < tried; ++i) {
        if (elapsed() > options_.seconds || (options_.stop && options_.stop())) return path;
        engine::SkipSet candidate = skip;
        flag(candidate, left_[i]) = true;
        const SkipEstimate estimate = judge(candidate);
        left_[i].loss = (agreement - estimate.agreement) / (kept - estimate.kept);
        if (i == 0 || left_[i].loss < left_[chosen].loss) {
          chosen = i;
          found = estimate;
        }
      }
      skip = found.skip;
      agreement = found.agreement;
      kept = found.kept;
      left_.erase(left_.begin() + static_cast<std::ptrdiff_t>(chosen));
      path.push_back(found);
      if (found.speedup > best.speedup || path.size() == 1) best = found;
      if (options_.progress) options_.progress(best, round + 1, elapsed());
      if (agreement < 0.05) break;  // no later set drafts anything
    }
    return path;
  }

 private:
  static std::vector<bool>::reference flag(engine::SkipSet& skip, const Sublayer& sublayer) {
    return (sublayer.attention ? skip.attention : skip.mlp)[sublayer.layer];
  }

  void commit_prompts() {
    session_.reset();
    for (size_t t = 0; t < texts_.size(); ++t) {
      session_.prefill(texts_[t].prompt, static_cast<int>(t));
      const auto& answer = texts_[t].answer;
      for (size_t i = 0; i + 1 < answer.size(); ++i) {
        engine::Row row;
        row.token = answer[i];
        row.parent = i == 0 ? -1 : static_cast<int32_t>(rows_.size()) - 1;
        row.sequence = static_cast<int32_t>(t);
        row.logits = false;
        row.top = true;
        rows_.push_back(row);
      }
    }
    EVALRUN_CHECK(!rows_.empty() && rows_.size() <= static_cast<size_t>(engine::kMaxRows),
                  "{} places to judge", rows_.size());
  }

  SkipEstimate judge(const engine::SkipSet& skip) {
    engine::ForwardRequest request;
    request.rows = rows_;
    request.skip = &skip;
    const engine::ForwardResult result = session_.forward(request);
    std::vector<std::vector<bool>> agrees(texts_.size());
    size_t row = 0;
    for (size_t t = 0; t < texts_.size(); ++t)
      for (size_t i = 0; i + 1 < texts_[t].answer.size(); ++i)
        agrees[t].push_back(result.top[row++] == texts_[t].answer[i + 1]);
    SkipEstimate estimate =
        estimate_skip(agrees, methods::kept_share(skip, session_.model().config()), options_.k_max,
                      [this](int n) { return costs_.ratio(n); });
    estimate.skip = skip;
    return estimate;
  }

  engine::Session& session_;
  std::span<const SkipText> texts_;
  const engine::RowCostTable& costs_;
  const SkipSearchOptions& options_;
  engine::SkipSet empty_;
  std::vector<Sublayer> left_;
  std::vector<engine::Row> rows_;
};

}  // namespace

SkipEstimate estimate_skip(const std::vector<std::vector<bool>>& agrees, double kept, int k_max,
                           const std::function<double(int)>& price) {
  SkipEstimate best;
  best.kept = kept;
  size_t places = 0, right = 0;
  for (const std::vector<bool>& text : agrees) {
    places += text.size();
    right += static_cast<size_t>(std::count(text.begin(), text.end(), true));
  }
  EVALRUN_CHECK(places > 0, "no places to judge");
  best.agreement = static_cast<double>(right) / static_cast<double>(places);
  best.speedup = 0;
  for (int k = 1; k <= k_max; ++k) {
    size_t tokens = 0, steps = 0;
    for (const std::vector<bool>& text : agrees) {
      for (size_t at = 0; at < text.size(); ++steps) {
        size_t a = 0;
        while (a < static_cast<size_t>(k) && at + a < text.size() && text[at + a]) ++a;
        tokens += a + 1;
        at += a + 1;
      }
    }
    const double tau = static_cast<double>(tokens) / static_cast<double>(steps);
    const double speedup = tau / (price(1 + k) + k * kept);
    if (speedup <= best.speedup) continue;
    best.k = k;
    best.tau = tau;
    best.speedup = speedup;
  }
  return best;
}

std::vector<SkipEstimate> search_skip_set(engine::Session& session, std::span<const SkipText> texts,
                                          const engine::RowCostTable& costs,
                                          const SkipSearchOptions& options) {
  std::vector<SkipEstimate> path = Search(session, texts, costs, options).run();
  session.reset();
  return path;
}

}  // namespace evalrun::runners
