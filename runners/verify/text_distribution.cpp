#include "runners/verify/text_distribution.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "methods/decode_loop.h"

namespace evalrun::runners {
namespace {

// Cells of one answer; a cell is listed as often as it occurs.
using Cells = std::vector<int32_t>;
using Keys = std::vector<int64_t>;

Keys single_tokens(const std::vector<int32_t>& tokens, size_t from) {
  return Keys(tokens.begin() + static_cast<std::ptrdiff_t>(std::min(from, tokens.size())),
              tokens.end());
}

Keys pairs(const std::vector<int32_t>& tokens) {
  Keys keys;
  for (size_t i = 1; i < tokens.size(); ++i)
    keys.push_back(static_cast<int64_t>(tokens[i - 1]) << 32 | tokens[i]);
  return keys;
}

// The answers of both arms, sorted by prompt, with their arm: what is exchanged are the arms of
// answers to one prompt.
struct Pool {
  std::vector<Cells> cells;     // [answer]
  std::vector<uint8_t> method;  // [answer]
  std::vector<size_t> begin;    // first answer of each prompt, and the end
  int n_cells = 0;
};

Pool make_pool(std::span<const SampledText> plain, std::span<const SampledText> method,
               const std::function<Keys(const std::vector<int32_t>&)>& keys_of) {
  struct Answer {
    int prompt;
    bool method;
    Keys keys;
  };
  std::vector<Answer> answers;
  for (const SampledText& t : plain) answers.push_back({t.prompt, false, keys_of(t.tokens)});
  for (const SampledText& t : method) answers.push_back({t.prompt, true, keys_of(t.tokens)});
  std::stable_sort(answers.begin(), answers.end(),
                   [](const Answer& a, const Answer& b) { return a.prompt < b.prompt; });
  std::unordered_map<int64_t, int64_t> counts;
  for (const Answer& a : answers)
    for (const int64_t key : a.keys) ++counts[key];
  // Which keys have a cell of their own depends on both arms together, so that exchanging answers
  // does not change it. Cell 0 holds the rare ones.
  std::unordered_map<int64_t, int32_t> cell_of;
  Pool pool;
  pool.n_cells = 1;
  for (const Answer& a : answers) {
    if (pool.begin.empty() || a.prompt != answers[pool.begin.back()].prompt)
      pool.begin.push_back(pool.cells.size());
    Cells cells;
    for (const int64_t key : a.keys) {
      if (counts[key] < kRareTokens) {
        cells.push_back(0);
        continue;
      }
      const auto [it, added] = cell_of.try_emplace(key, pool.n_cells);
      pool.n_cells += added;
      cells.push_back(it->second);
    }
    pool.cells.push_back(std::move(cells));
    pool.method.push_back(a.method);
  }
  pool.begin.push_back(pool.cells.size());
  return pool;
}

// Sum over cells of (difference of counts)^2 / sum of counts.
class Statistic {
 public:
  explicit Statistic(const Pool& pool) : pool_(pool), total_(static_cast<size_t>(pool.n_cells)) {
    for (const Cells& cells : pool.cells)
      for (const int32_t c : cells) ++total_[static_cast<size_t>(c)];
  }
  double operator()(const std::vector<uint8_t>& method) {
    in_method_.assign(total_.size(), 0);
    for (size_t i = 0; i < pool_.cells.size(); ++i)
      if (method[i] != 0)
        for (const int32_t c : pool_.cells[i]) ++in_method_[static_cast<size_t>(c)];
    double sum = 0;
    for (size_t c = 0; c < total_.size(); ++c) {
      if (total_[c] == 0) continue;
      const auto difference = static_cast<double>(2 * in_method_[c] - total_[c]);
      sum += difference * difference / static_cast<double>(total_[c]);
    }
    return sum;
  }

 private:
  const Pool& pool_;
  std::vector<int64_t> total_, in_method_;
};

TextTest permutation_test(const std::string& name, const Pool& pool, uint64_t seed) {
  Statistic statistic(pool);
  TextTest test{name, pool.n_cells, statistic(pool.method), 1};
  base::Rng rng(seed);
  std::vector<uint8_t> method = pool.method;
  int as_large = 0, exchanges = 0;
  while (exchanges < kExchanges && as_large < kEnoughExchanges) {
    for (size_t p = 0; p + 1 < pool.begin.size(); ++p)
      for (size_t k = pool.begin[p + 1] - pool.begin[p]; k > 1; --k)  // Fisher and Yates
        std::swap(method[pool.begin[p] + k - 1], method[pool.begin[p] + rng.below(k)]);
    // A hair of tolerance: equal splits are equal whatever the order of the additions.
    as_large += statistic(method) >= test.statistic * (1 - 1e-12);
    ++exchanges;
  }
  test.p = as_large == kEnoughExchanges ? static_cast<double>(as_large) / exchanges
                                        : (1.0 + as_large) / (1.0 + exchanges);
  return test;
}

}  // namespace

double TextDistribution::smallest_p() const {
  double p = 1;
  for (const TextTest& test : tests) p = std::min(p, test.p);
  return p;
}

double TextDistribution::p() const {
  return std::min(1.0, smallest_p() * std::max(1.0, static_cast<double>(tests.size())));
}

std::vector<SampledText> sample_texts(methods::DecodingMethod& method, engine::Session& session,
                                      std::span<const PlannedPrompt> prompts,
                                      const Conversation& conversation,
                                      const TextDistributionOptions& options, uint64_t stream,
                                      base::Clock& clock, const std::function<void()>& tick) {
  std::vector<SampledText> texts;
  for (size_t p = 0; p < prompts.size(); ++p) {
    const std::vector<int32_t> ids =
        conversation.encode(prompts[p].prompt, conversation.render(prompts[p].prompt, {}));
    session.reset();
    methods::TurnRequest request;
    request.prompt = ids;
    request.max_new = options.max_new;
    request.stop_ids = conversation.stop_ids();
    request.sampling = options.sampling;
    for (int s = 0; s < options.samples; ++s) {
      request.seed = base::combine_seeds(
          {options.seed, stream, static_cast<uint64_t>(p), static_cast<uint64_t>(s)});
      texts.push_back(
          {static_cast<int>(p), methods::decode_turn(method, session, request, clock).tokens});
      request.keep = static_cast<int>(ids.size()) - 1;  // the same prompt again
    }
    tick();
  }
  return texts;
}

TextDistribution compare_texts(std::span<const SampledText> plain,
                               std::span<const SampledText> method,
                               const TextDistributionOptions& options) {
  EVALRUN_CHECK(plain.size() == method.size(), "{} and {} answers", plain.size(), method.size());
  TextDistribution dist;
  dist.answers = static_cast<int64_t>(method.size());
  for (const SampledText& t : method) dist.tokens += static_cast<int64_t>(t.tokens.size());
  const auto half = static_cast<size_t>(options.max_new) / 2;
  const std::pair<const char*, std::function<Keys(const std::vector<int32_t>&)>> kinds[] = {
      {"tokens", [](const auto& t) { return single_tokens(t, 0); }},
      {"pairs", pairs},
      {"late tokens", [half](const auto& t) { return single_tokens(t, half); }}};
  for (const auto& [name, keys_of] : kinds) {
    const Pool pool = make_pool(plain, method, keys_of);
    if (pool.n_cells < 2) continue;  // one cell can still differ in length, but says little
    dist.tests.push_back(permutation_test(name, pool, options.seed));
  }
  return dist;
}

}  // namespace evalrun::runners
