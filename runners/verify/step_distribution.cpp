#include "runners/verify/step_distribution.h"

#include <algorithm>
#include <array>
#include <map>

#include "engine/base/fit_power.h"
#include "methods/replay.h"
#include "methods/step.h"

namespace evalrun::runners {
namespace {

using Tokens = std::vector<int32_t>;

struct Draw {
  Tokens tokens;             // kDistributionDepth after the lead
  std::vector<int> refused;  // places in them at which a draft was refused
};

// Whether a draw follows `way` before place `n`.
bool follows(const Tokens& draw, const Tokens& way, size_t n) {
  return std::equal(way.begin(), way.begin() + static_cast<std::ptrdiff_t>(n), draw.begin());
}

StepDraws tokens_of(const std::vector<Draw>& draws) {
  StepDraws tokens;
  for (const Draw& d : draws) tokens.push_back(d.tokens);
  return tokens;
}

// The commonest token at each place among the draws that took the same way so far.
Tokens commonest_way(const StepDraws& draws) {
  Tokens way;
  for (size_t place = 0; place < kDistributionDepth; ++place) {
    std::map<int32_t, int> counts;
    for (const Tokens& d : draws)
      if (follows(d, way, place)) ++counts[d[place]];
    way.push_back(std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
                    return a.second < b.second;
                  })->first);
  }
  return way;
}

// The target's distribution after `text` and `more`, by plain forwards; leaves the session with
// `text`.
std::vector<double> dist_behind(engine::Session& session, size_t text_length,
                                std::span<const int32_t> more,
                                const engine::SamplingParams& sampling) {
  session.rewind(static_cast<int>(text_length));
  std::vector<double> dist;
  for (size_t i = 0; i < more.size(); ++i) {
    engine::Row row;
    row.token = more[i];
    row.logits = i + 1 == more.size();
    engine::ForwardRequest request;
    request.rows = {&row, 1};
    const engine::ForwardResult result = session.forward(request);
    if (row.logits) {
      engine::WarpScratch scratch;
      engine::warp(result.logits_row(0), sampling, dist, scratch);
    } else {
      const int root = 0;
      session.commit({&root, 1});
    }
  }
  session.rewind(static_cast<int>(text_length));
  return dist;
}

class ContextTest {
 public:
  ContextTest(methods::DecodingMethod& method, engine::Session& session, const StepContext& context,
              const StepDistributionOptions& options, base::Clock& clock)
      : method_(method),
        session_(session),
        context_(context),
        options_(options),
        timer_(clock),
        runner_(session, 1),
        led_(method, context.lead) {}

  // What the method decodes after the lead, `n` times; `stream` tells draws of one purpose from
  // another's.
  std::vector<Draw> draws(uint64_t stream, int n, StepDistribution& dist) {
    commit_text();
    std::vector<Draw> list;
    for (int i = 0; i < n; ++i)
      list.push_back(
          draw(base::combine_seeds({options_.seed, stream, static_cast<uint64_t>(i)}), dist));
    dist.draws += n;
    return list;
  }

  void run(int index, StepDistribution& dist) {
    const auto dist_after = [&](std::span<const int32_t> way) {
      Tokens before = context_.lead;
      before.insert(before.end(), way.begin(), way.end());
      return dist_behind(session_, context_.text.size(), before, options_.sampling);
    };
    test_draws(index, tokens_of(draws(static_cast<uint64_t>(index), options_.draws, dist)),
               dist_after, options_.seed, dist);
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

  Draw draw(uint64_t seed, StepDistribution& dist) {
    session_.rewind(static_cast<int>(context_.text.size()));
    methods::GenerationContext generation;
    generation.target = &session_;
    generation.prompt = context_.text;
    generation.first_token = context_.lead.front();
    generation.max_new = static_cast<int>(context_.lead.size()) + kDraftRoom;
    generation.sampling = options_.sampling;
    generation.chance = base::KeyedChance(seed);
    method_.start(generation);
    size_t led = 1;  // the first token
    Draw draw;
    while (draw.tokens.size() < kDistributionDepth) {
      methods::BatchMember member{&method_};
      timer_.begin_step();
      runner_.run({&member, 1}, timer_);
      timer_.end_step();
      const methods::StepOutcome& step = member.outcome;
      if (led < context_.lead.size()) {
        led += step.tokens.size();
        continue;
      }
      dist.tested += static_cast<int64_t>(step.tested.size());
      dist.accepted += step.accepted;
      const auto place = draw.tokens.size() + static_cast<size_t>(step.accepted);
      if (place < kDistributionDepth && !step.tested.empty() &&
          step.tested.back().depth > step.accepted)
        draw.refused.push_back(static_cast<int>(place));
      draw.tokens.insert(draw.tokens.end(), step.tokens.begin(), step.tokens.end());
    }
    draw.tokens.resize(kDistributionDepth);
    return draw;
  }

  methods::DecodingMethod& method_;
  engine::Session& session_;
  const StepContext& context_;
  const StepDistributionOptions& options_;
  methods::PhaseTimer timer_;
  methods::StepRunner runner_;
  methods::LedStart led_;
};

// Of these draws, how many the most telling place of the test has with a draft refused there.
int64_t refusals(const std::vector<Draw>& draws) {
  const Tokens way = commonest_way(tokens_of(draws));
  std::array<int64_t, kDistributionDepth> at{};
  for (const Draw& d : draws)
    for (const int place : d.refused)
      at[static_cast<size_t>(place)] += follows(d.tokens, way, static_cast<size_t>(place));
  return *std::max_element(at.begin(), at.end());
}

}  // namespace

double StepDistribution::smallest_p() const {
  double p = 1;
  for (const StepTest& test : tests) p = std::min(p, test.p);
  return p;
}

double StepDistribution::p() const {
  std::vector<base::TestP> list;
  for (const StepTest& test : tests) list.push_back({test.p, test.cells > 1});
  return base::joint_p(list);
}

void StepDistribution::find_power(double level, uint64_t seed) {
  smallest_found = base::smallest_variation_found(fits, level, seed);
}

void test_draws(int context, const StepDraws& draws,
                const std::function<std::vector<double>(std::span<const int32_t>)>& dist_after,
                uint64_t seed, StepDistribution& dist) {
  const Tokens way = commonest_way(draws);
  for (size_t place = 0; place < kDistributionDepth; ++place) {
    const std::vector<double> expected = dist_after(std::span(way).first(place));
    std::vector<int64_t> counts(expected.size());
    int64_t n = 0;
    for (const Tokens& d : draws)
      if (follows(d, way, place)) {
        ++counts[static_cast<size_t>(d[place])];
        ++n;
      }
    if (n < kLeastDraws) return;
    base::GoodnessOfFit fit(expected, n);
    // Four parts: no seed of a draw, which has three.
    const double p = fit.p(counts, base::combine_seeds({seed, static_cast<uint64_t>(context), place,
                                                        static_cast<uint64_t>(n)}));
    // Where a token is certain there is nothing to test, but another one must not occur.
    if (fit.certain() && p > 0) continue;
    dist.tests.push_back({context, static_cast<int>(place) + 1, n, fit.cells(), p});
    dist.fits.push_back(std::move(fit));
  }
}

std::vector<StepContext> most_refused(methods::DecodingMethod& method, engine::Session& session,
                                      std::span<const StepContext> candidates, int n,
                                      const StepDistributionOptions& options, base::Clock& clock) {
  constexpr int kTries = 10;
  std::vector<std::pair<int64_t, size_t>> order;  // most refusals first, once sorted
  for (size_t i = 0; i < candidates.size(); ++i) {
    StepDistribution dist;
    const auto draws = ContextTest(method, session, candidates[i], options, clock)
                           .draws(~uint64_t{i}, kTries, dist);
    order.emplace_back(-refusals(draws), i);
  }
  std::sort(order.begin(), order.end());
  order.resize(std::min(order.size(), static_cast<size_t>(n)));
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.second < b.second; });
  std::vector<StepContext> chosen;
  for (const auto& [count, i] : order) chosen.push_back(candidates[i]);
  return chosen;
}

StepDistribution test_step_dist(methods::DecodingMethod& method, engine::Session& session,
                                std::span<const StepContext> contexts,
                                const StepDistributionOptions& options, base::Clock& clock,
                                const std::function<void()>& tick) {
  StepDistribution dist;
  for (size_t i = 0; i < contexts.size(); ++i) {
    ContextTest(method, session, contexts[i], options, clock).run(static_cast<int>(i), dist);
    tick();
  }
  return dist;
}

}  // namespace evalrun::runners
