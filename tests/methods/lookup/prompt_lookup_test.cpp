// The n-gram index against a plain scan, and what PLD drafts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "methods/lookup/ngram_index.h"
#include "tests/methods/support/first_draft.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests::prompt_lookup_test {
namespace {

using methods::NgramIndex;
using testing::ElementsAre;

int scan(std::span<const int32_t> sequence, int min_n, int max_n, NgramIndex::Match match) {
  const int length = static_cast<int>(sequence.size());
  for (int n = max_n; n >= min_n; --n) {
    int found = -1;
    for (int start = 0; start + n < length; ++start) {
      const auto at = sequence.begin() + start;
      if (!std::equal(at, at + n, sequence.end() - n)) continue;
      found = start + n;
      if (match == NgramIndex::Match::kFirst) break;
    }
    if (found >= 0) return found;
  }
  return -1;
}

TEST(NgramIndex, EqualsTheScan) {
  base::Rng rng(21);
  for (int round = 0; round < 400; ++round) {
    const int min_n = 1 + static_cast<int>(rng.below(3));
    const int max_n = min_n + static_cast<int>(rng.below(4));
    const auto match = round % 2 == 0 ? NgramIndex::Match::kFirst : NgramIndex::Match::kRecent;
    const int vocab = 2 + static_cast<int>(rng.below(round % 3 == 0 ? 40 : 3));
    const Tokens text = random_tokens(rng, 120, vocab);
    NgramIndex index(min_n, max_n, match);
    for (int generation = 0; generation < 2; ++generation) {  // start() forgets the first
      index.start(120);
      for (size_t length = rng.below(10); length <= text.size(); length += 1 + rng.below(5)) {
        const auto sequence = std::span<const int32_t>(text).first(length);
        ASSERT_EQ(index.find(sequence), scan(sequence, min_n, max_n, match))
            << "round " << round << ", n " << min_n << ".." << max_n << ", length " << length;
      }
    }
  }
}

TEST(NgramIndex, RefusesSequencesLongerThanPromised) {
  NgramIndex index(1, 3, NgramIndex::Match::kFirst);
  index.start(4);
  const Tokens text(5, 1);
  EXPECT_THROW(index.find(text), base::InternalError);
  EXPECT_THROW(NgramIndex(0, 3, NgramIndex::Match::kFirst), base::InternalError);
  EXPECT_THROW(NgramIndex(4, 3, NgramIndex::Match::kFirst), base::InternalError);
}

TEST(PromptLookup, DraftsWhatFollowedTheEarliestLongestMatch) {
  const Tokens prompt = {1, 9, 3, 4, 5, 1, 9, 6, 7, 8, 2, 1};  // then the root, 9
  EXPECT_THAT(FirstDraft().of("pld:k=3", prompt), ElementsAre(3, 4, 5));
  EXPECT_THAT(FirstDraft().of("pld:k=3,match=recent", prompt), ElementsAre(6, 7, 8));
  EXPECT_THAT(FirstDraft().of("pld:k=2,ngram=1", prompt), ElementsAre(3, 4));
  EXPECT_THAT(FirstDraft().of("pld:min_ngram=3", prompt), ElementsAre());  // 2 1 9 stood nowhere
}

TEST(PromptLookup, PrefersTheLongerMatchOverTheEarlierOne) {
  const Tokens prompt = {9, 3, 2, 1, 9, 4, 4, 2, 1};
  EXPECT_THAT(FirstDraft().of("pld:k=2", prompt), ElementsAre(4, 4));
  EXPECT_THAT(FirstDraft().of("pld:k=2,ngram=1", prompt), ElementsAre(3, 2));
}

TEST(PromptLookup, StopsAtTheEndAtStopTokensAndAtTheLimit) {
  const Tokens prompt = {1, 9, 3, 4, 1};
  EXPECT_THAT(FirstDraft().of("pld:k=10", prompt), ElementsAre(3, 4, 1, 9));
  EXPECT_THAT(FirstDraft().of("pld:k=10", prompt, {4}), ElementsAre(3));
  EXPECT_THAT(FirstDraft().of("pld:k=10", prompt, {3}), ElementsAre());
  EXPECT_THAT(FirstDraft().of("pld:k=10", prompt, {}, 3), ElementsAre(3));
  EXPECT_THAT(FirstDraft().of("pld", {1, 2, 3}), ElementsAre());
}

}  // namespace
}  // namespace evalrun::tests::prompt_lookup_test
