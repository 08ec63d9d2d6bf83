// Which stored time goes into which total.
#include "reports/data/pairing.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "engine/base/rng.h"
#include "reports/data/pair_columns.h"

namespace evalrun::reports {
namespace {

// Every time differs, so that a total made of the wrong one shows.
SampleRow sample(int64_t prompt, double scale) {
  SampleRow s;
  s.prompt_id = prompt;
  s.n_decode = static_cast<int64_t>(10 * scale), s.steps = static_cast<int64_t>(5 * scale);
  s.decode_ns = 1000 * scale, s.fastest_ns = 800 * scale;
  s.draft_ns = 100 * scale, s.verify_ns = 700 * scale;
  return s;
}

TEST(Counters, EveryTimeIsPooledFromItsOwn) {
  Counters c;
  c.add(sample(1, 1));
  c.add(sample(2, 2));
  EXPECT_EQ(c.decode_ns, 3000);
  EXPECT_EQ(c.fastest_ns, 2400);
  EXPECT_EQ(c.draft_ns, 300);
  EXPECT_EQ(c.verify_ns, 2100);
  EXPECT_EQ(c.n_decode, 30);
  EXPECT_EQ(c.steps, 15);
  EXPECT_DOUBLE_EQ(c.tok_s(), 1e9 * 30 / 3000);
  EXPECT_DOUBLE_EQ(c.fastest_tok_s(), 1e9 * 30 / 2400);
  Counters both = c;
  both.add(c);
  EXPECT_EQ(both.decode_ns, 6000);
  EXPECT_EQ(both.fastest_ns, 4800);
}

TEST(Pairing, PromptsKeepMedianAndFastestApart) {
  const SampleRow b = sample(1, 2), m = sample(1, 1);
  const ArmCells base = {{{1, 0}, &b}}, method = {{{1, 0}, &m}};
  const Pairing p = pair_with_reference(method, base, [](int64_t) { return true; });
  EXPECT_EQ(p.prompts.at(1).base_ns, 2000);
  EXPECT_EQ(p.prompts.at(1).ns, 1000);
  EXPECT_EQ(p.prompts.at(1).base_fastest_ns, 1600);
  EXPECT_EQ(p.prompts.at(1).fastest_ns, 800);
}

TEST(Pairing, FirstTokensAreOneAnAnswer) {
  SampleRow b = sample(1, 2), m = sample(1, 1);
  b.prefill_ns = 500, b.first_token_ns = 300;
  m.prefill_ns = 700, m.first_token_ns = 400, m.draft_prefill_ns = 60;
  const ArmCells base = {{{1, 0}, &b}, {{1, 1}, &b}};
  const ArmCells method = {{{1, 0}, &m}, {{1, 1}, &m}, {{2, 0}, &m}};
  const PairColumns p = pair_columns(method, base, Estimator::kSum);
  EXPECT_EQ(p.prompts, std::vector<int64_t>{1});
  ASSERT_EQ(p.first_tokens.size(), 1u);
  const PromptPair& first = p.first_tokens[0];
  EXPECT_EQ(first.base_tokens, 2);
  EXPECT_EQ(first.base_ns, 600);
  EXPECT_EQ(first.tokens, 2);
  EXPECT_EQ(first.ns, 800);
  Counters both = p.method;
  EXPECT_EQ(both.answers, 2);
  EXPECT_EQ(both.first_token_ns, 800);
  both.add(p.base);
  EXPECT_EQ(both.answers, 4);
  EXPECT_EQ(both.first_token_ns, 1400);
}

// By maps, one cell at a time.
struct PlainPairing {
  Counters method, base;
  std::map<int64_t, PromptPair> decode, requests, first_tokens, published;
  std::map<int, std::vector<PromptPair>> by_sample, published_by_sample;
  int64_t unpaired = 0;
};

PlainPairing plain_pairing(const std::map<PromptSample, SampleRow>& method,
                           const std::map<PromptSample, SampleRow>& base) {
  PlainPairing p;
  for (const auto& [cell, m] : method) {
    const auto found = base.find(cell);
    if (found == base.end()) {
      ++p.unpaired;
      continue;
    }
    const SampleRow& b = found->second;
    p.method.add(m);
    p.base.add(b);
    PromptPair& sum = p.decode[cell.first];
    sum.base_tokens += b.n_decode, sum.base_ns += b.decode_ns;
    sum.tokens += m.n_decode, sum.ns += m.decode_ns;
    sum.base_fastest_ns += b.fastest_ns, sum.fastest_ns += m.fastest_ns;
    PromptPair& request = p.requests[cell.first];
    request.base_tokens += b.n_tokens, request.base_ns += b.request_ns();
    request.tokens += m.n_tokens, request.ns += m.request_ns();
    PromptPair& first = p.first_tokens[cell.first];
    first.base_tokens += 1, first.base_ns += b.first_token_ns;
    first.tokens += 1, first.ns += m.first_token_ns;
    PromptPair& published = p.published[cell.first];
    published.base_tokens += b.n_tokens - b.stop_tokens, published.base_ns += b.request_ns();
    published.tokens += m.n_tokens, published.ns += m.request_ns();
    p.by_sample[cell.second].push_back({b.n_decode, b.decode_ns, m.n_decode, m.decode_ns});
    p.published_by_sample[cell.second].push_back(
        {b.n_tokens - b.stop_tokens, b.request_ns(), m.n_tokens, m.request_ns()});
  }
  for (const auto& [cell, b] : base) p.unpaired += !method.contains(cell);
  return p;
}

void expect_pair(const PromptPair& found, const PromptPair& expected) {
  EXPECT_EQ(found.base_tokens, expected.base_tokens);
  EXPECT_EQ(found.base_ns, expected.base_ns);
  EXPECT_EQ(found.tokens, expected.tokens);
  EXPECT_EQ(found.ns, expected.ns);
}

void expect_column(const std::vector<PromptPair>& found,
                   const std::map<int64_t, PromptPair>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  size_t i = 0;
  for (const auto& [prompt, pair] : expected) expect_pair(found[i++], pair);
}

void expect_counters(const Counters& found, const Counters& expected) {
  EXPECT_EQ(found.answers, expected.answers);
  EXPECT_EQ(found.steps, expected.steps);
  EXPECT_EQ(found.emitted, expected.emitted);
  EXPECT_EQ(found.decode_ns, expected.decode_ns);
  EXPECT_EQ(found.first_token_ns, expected.first_token_ns);
}

// Every field its own number.
SampleRow drawn_row(base::Rng& rng) {
  SampleRow s;
  for (double* x : {&s.n_tokens, &s.n_decode, &s.steps, &s.emitted, &s.decode_ns, &s.prefill_ns,
                    &s.draft_prefill_ns, &s.first_token_ns, &s.stop_tokens, &s.fastest_ns})
    *x = static_cast<double>(rng.below(1'000'000)) / 4;
  return s;
}

TEST(PairColumns, AreThoseOfThePlainWay) {
  base::Rng rng(2);
  for (const int samples : {1, 2, 5})
    for (const int kept : {0, 1, 3, 4})  // of 4 cells, in either arm
      for (const Estimator e : {Estimator::kSum, Estimator::kLegacy}) {
        SCOPED_TRACE(samples * 10 + kept);
        std::map<PromptSample, SampleRow> own, reference;
        ArmCells method, base;
        for (int64_t prompt = 1; prompt <= 40; ++prompt)
          for (int sample = 0; sample < samples; ++sample)
            for (auto* arm : {&own, &reference})
              if (rng.below(4) < static_cast<uint64_t>(kept))
                (*arm)[{prompt * 3, sample}] = drawn_row(rng);
        for (const auto& [cell, s] : own) method[cell] = &s;
        for (const auto& [cell, s] : reference) base[cell] = &s;
        const PlainPairing plain = plain_pairing(own, reference);
        const PairColumns found = pair_columns(method, base, e);
        const bool legacy = e == Estimator::kLegacy;
        std::vector<int64_t> ids;
        for (const auto& [prompt, pair] : plain.decode) ids.push_back(prompt);
        EXPECT_EQ(found.prompts, ids);
        expect_column(found.decode, plain.decode);
        expect_column(found.requests, plain.requests);
        expect_column(found.first_tokens, plain.first_tokens);
        expect_column(found.headline(), legacy ? plain.published : plain.decode);
        expect_counters(found.method, plain.method);
        expect_counters(found.base, plain.base);
        EXPECT_EQ(found.unpaired, plain.unpaired);
        const auto& by_sample = legacy ? plain.published_by_sample : plain.by_sample;
        ASSERT_EQ(found.by_sample.size(), by_sample.size() > 1 ? by_sample.size() : 0);
        for (const auto& [sample, pairs] : found.by_sample) {
          ASSERT_EQ(pairs.size(), by_sample.at(sample).size());
          for (size_t i = 0; i < pairs.size(); ++i) expect_pair(pairs[i], by_sample.at(sample)[i]);
        }
        // What compare and check take.
        const Pairing p = pair_with_reference(method, base, [](int64_t) { return true; });
        expect_column(values_of(p.prompts), plain.decode);
        for (const int64_t prompt : ids) EXPECT_TRUE(p.prompts.contains(prompt));
        expect_counters(p.method, plain.method);
        EXPECT_EQ(p.unpaired, plain.unpaired);
      }
}

}  // namespace
}  // namespace evalrun::reports
