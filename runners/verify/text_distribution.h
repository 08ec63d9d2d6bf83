// Lossless sampling, whole answers: many sampled answers of a method against as many of plain
// decoding to the same prompts. What is compared are counts of tokens and of pairs of tokens, rare
// ones in one bin, and of the tokens of the later half of the answers alone, where a small fault
// has had time to grow.
//
// Tokens of one answer depend on each other, so no chi-square distribution holds for such counts.
// The test is a permutation test instead: under lossless sampling the answers to a prompt are
// exchangeable between the arms, whatever they depend on inside, and p is the share of exchanges
// that differ at least as much (Phipson and Smyth 2010: with one added above and below). It is
// settled when kEnoughExchanges do (Besag and Clifford 1991). Exact for any model.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/session.h"
#include "methods/registration.h"
#include "runners/plan/conversation.h"
#include "runners/plan/plan.h"

namespace evalrun::runners {

struct SampledText {
  int prompt = 0;
  std::vector<int32_t> tokens;
};

struct TextTest {
  std::string name;  // "tokens", "pairs", "late tokens"
  int cells = 0;     // the rare bin included
  double statistic = 0, p = 1;
};

struct TextDistribution {
  std::vector<TextTest> tests;
  int64_t answers = 0, tokens = 0;  // of the method
  double smallest_p() const;        // 1 without tests
  double p() const;                 // of all tests together, which depend on each other: Bonferroni
  bool rejected(double level) const { return p() < level; }
};

struct TextDistributionOptions {
  int samples = 16;  // per prompt and arm
  int max_new = 32;
  engine::SamplingParams sampling{1.0, 0, 1.0};
  uint64_t seed = 1;
};

// At most. The smallest p is 1/30,000, of three tests together 1e-4: below a third of 0.001, which
// is the level of a part beside two others (certificate.h).
inline constexpr int kExchanges = 29'999;
inline constexpr int kEnoughExchanges = 100;
inline constexpr int kRareTokens = 10;  // counted less often than this, both arms together: rare

// First turns of `prompts`. Answers of different `stream`s have different seeds.
std::vector<SampledText> sample_texts(methods::DecodingMethod& method, engine::Session& session,
                                      std::span<const PlannedPrompt> prompts,
                                      const Conversation& conversation,
                                      const TextDistributionOptions& options, uint64_t stream,
                                      base::Clock& clock, const std::function<void()>& tick);

// Tests `method` against `plain`; as many answers to every prompt on both sides.
TextDistribution compare_texts(std::span<const SampledText> plain,
                               std::span<const SampledText> method,
                               const TextDistributionOptions& options);

}  // namespace evalrun::runners
