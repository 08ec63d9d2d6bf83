#include "runners/verify/step_law.h"

#include <algorithm>
#include <array>
#include <map>

#include "engine/base/stats.h"

namespace evalrun::runners {
namespace {

using Tokens = std::vector<int32_t>;

// The target's law behind `text` and `more`, by plain forwards; leaves the session with `text`.
std::vector<double> law_behind(engine::Session& session, size_t text_length,
                               std::span<const int32_t> more,
                               const engine::SamplingParams& sampling) {
  session.rewind(static_cast<int>(text_length));
  std::vector<double> law;
  for (size_t i = 0; i < more.size(); ++i) {
    engine::Row row;
    row.token = more[i];
    row.logits = i + 1 == more.size();
    engine::ForwardRequest request;
    request.rows = {&row, 1};
    const engine::ForwardResult result = session.forward(request);
    if (row.logits) {
      engine::WarpScratch scratch;
      engine::warp(result.logits_row(0), sampling, law, scratch);
    } else {
      const int root = 0;
      session.commit({&root, 1});
    }
  }
  session.rewind(static_cast<int>(text_length));
  return law;
}

class ContextTest {
 public:
  ContextTest(methods::DecodingMethod& method, engine::Session& session, const StepContext& context,
              const StepLawOptions& options, base::Clock& clock)
      : method_(method), session_(session), context_(context), options_(options), timer_(clock) {}

  // The tokens behind the root, `n` times; `stream` tells draws of one purpose from another's.
  std::vector<Tokens> draws(uint64_t stream, int n, StepLaw& law) {
    commit_text();
    std::vector<Tokens> list;
    for (int i = 0; i < n; ++i)
      list.push_back(
          draw(base::combine_seeds({options_.seed, stream, static_cast<uint64_t>(i)}), law));
    law.draws += n;
    return list;
  }

  void run(int index, StepLaw& law) {
    const std::vector<Tokens> draws =
        this->draws(static_cast<uint64_t>(index), options_.draws, law);
    // Walks down the commonest tokens: at each depth the draws that took the same way so far.
    Tokens way = {context_.root};
    for (int depth = 1; depth <= kLawDepth; ++depth) {
      const auto place = static_cast<size_t>(depth - 1);
      const std::vector<double> expected =
          law_behind(session_, context_.text.size(), way, options_.sampling);
      std::vector<int64_t> counts(expected.size());
      int64_t n = 0;
      for (const Tokens& d : draws)
        if (std::equal(way.begin() + 1, way.end(), d.begin())) {
          ++counts[static_cast<size_t>(d[place])];
          ++n;
        }
      if (n < kLeastDraws) return;
      if (const auto fit = base::fit_test(counts, expected))
        law.tests.push_back({index, depth, n, fit->cells, fit->p});
      way.push_back(
          static_cast<int32_t>(std::max_element(counts.begin(), counts.end()) - counts.begin()));
    }
  }

 private:
  void commit_text() {
    session_.keep_features({});  // forgets what another method wanted kept
    session_.reset();
    session_.keep_features(method_.needs());
    // As the decode loop does it: the last token by the decode path.
    const std::span<const int32_t> text = context_.text;
    if (text.size() > 1) session_.prefill(text.first(text.size() - 1));
    engine::Row row;
    row.token = text.back();
    row.logits = false;
    engine::ForwardRequest request;
    request.rows = {&row, 1};
    session_.forward(request);
    const int root = 0;
    session_.commit({&root, 1});
  }

  // kLawDepth tokens behind the root.
  Tokens draw(uint64_t seed, StepLaw& law) {
    session_.rewind(static_cast<int>(context_.text.size()));
    base::Rng rng(seed);
    methods::GenerationContext generation;
    generation.target = &session_;
    generation.prompt = context_.text;
    generation.first_token = context_.root;
    generation.max_new = kDraftRoom;
    generation.sampling = options_.sampling;
    generation.rng = &rng;
    method_.start(generation);
    Tokens tokens;
    while (tokens.size() < kLawDepth) {
      timer_.begin_step();
      const methods::StepOutcome step = method_.step(timer_);
      timer_.end_step();
      law.tested += static_cast<int64_t>(step.tested.size());
      law.accepted += step.accepted;
      tokens.insert(tokens.end(), step.tokens.begin(), step.tokens.end());
    }
    tokens.resize(kLawDepth);
    return tokens;
  }

  methods::DecodingMethod& method_;
  engine::Session& session_;
  const StepContext& context_;
  const StepLawOptions& options_;
  methods::PhaseTimer timer_;
};

}  // namespace

double StepLaw::smallest_p() const {
  double p = 1;
  for (const StepTest& test : tests) p = std::min(p, test.p);
  return p;
}

bool StepLaw::rejected(double level) const {
  return !tests.empty() && smallest_p() < level / static_cast<double>(tests.size());
}

std::vector<StepContext> most_drafted(methods::DecodingMethod& method, engine::Session& session,
                                      std::span<const StepContext> candidates, int n,
                                      const StepLawOptions& options, base::Clock& clock) {
  constexpr int kTries = 3;
  std::vector<std::pair<int64_t, size_t>> tested;  // descending by count once sorted
  for (size_t i = 0; i < candidates.size(); ++i) {
    StepLaw law;
    ContextTest(method, session, candidates[i], options, clock).draws(~uint64_t{i}, kTries, law);
    tested.emplace_back(-law.tested, i);
  }
  std::sort(tested.begin(), tested.end());
  tested.resize(std::min(tested.size(), static_cast<size_t>(n)));
  std::sort(tested.begin(), tested.end(),
            [](const auto& a, const auto& b) { return a.second < b.second; });
  std::vector<StepContext> chosen;
  for (const auto& [count, i] : tested) chosen.push_back(candidates[i]);
  return chosen;
}

StepLaw test_step_law(methods::DecodingMethod& method, engine::Session& session,
                      std::span<const StepContext> contexts, const StepLawOptions& options,
                      base::Clock& clock, const std::function<void()>& tick) {
  StepLaw law;
  for (size_t i = 0; i < contexts.size(); ++i) {
    ContextTest(method, session, contexts[i], options, clock).run(static_cast<int>(i), law);
    tick();
  }
  return law;
}

}  // namespace evalrun::runners
