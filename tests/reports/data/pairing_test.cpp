// Which stored time goes into which total.
#include "reports/data/pairing.h"

#include <gtest/gtest.h>

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
  const Pairing p = pair_with_reference(method, base, [](int64_t) { return true; });
  EXPECT_EQ(p.first_tokens.size(), 1u);
  const PromptPair& first = p.first_tokens.at(1);
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

}  // namespace
}  // namespace evalrun::reports
