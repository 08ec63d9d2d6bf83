// The suffix automaton against a plain scan of its texts, and what is kept of earlier answers.
#include "methods/lookup/suffix_automaton.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "methods/lookup/carried_text.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests::suffix_automaton_test {
namespace {

using methods::CarriedState;
using methods::CarriedText;
using methods::EarlierAnswers;
using methods::SuffixAutomaton;
using Match = methods::SuffixAutomaton::Match;

constexpr int kLong = 1000;

// Texts with -1 between them, scanned from end to end for everything.
struct PlainTexts {
  Tokens all;

  bool holds(size_t place, const Tokens& phrase) const {
    return place + phrase.size() <= all.size() &&
           std::equal(phrase.begin(), phrase.end(), all.begin() + static_cast<ptrdiff_t>(place));
  }
  std::vector<size_t> ends(const Tokens& phrase) const {
    std::vector<size_t> found;
    for (size_t place = 0; place < all.size(); ++place)
      if (holds(place, phrase)) found.push_back(place + phrase.size());
    return found;
  }
  std::map<int32_t, int> followers(const Tokens& phrase) const {
    std::map<int32_t, int> count;
    for (const size_t end : ends(phrase))
      if (end < all.size() && all[end] >= 0) ++count[all[end]];
    return count;
  }
  // Of the longest end of `text` that is a phrase here.
  int longest(const Tokens& text, int most) const {
    int length = std::min(most, static_cast<int>(text.size()));
    while (length > 0 && ends({text.end() - length, text.end()}).empty()) --length;
    return length;
  }
};

// The state of a phrase; {0, 0} for one that is not there.
Match found(const SuffixAutomaton& automaton, const Tokens& phrase) {
  Match match;
  for (const int32_t token : phrase) match = automaton.follow(match, token, kLong);
  return match.length == static_cast<int>(phrase.size()) ? match : Match{};
}

void expect_same(const SuffixAutomaton& automaton, const PlainTexts& plain, const Tokens& phrase,
                 int counted) {
  const Match match = found(automaton, phrase);
  const auto ends = plain.ends(phrase);
  ASSERT_EQ(match.length > 0, !ends.empty());
  if (ends.empty()) return;
  const auto length = static_cast<int>(phrase.size());
  if (length <= counted) {
    ASSERT_EQ(automaton.count(match.state), static_cast<int>(ends.size()));
  }
  ASSERT_EQ(automaton.first_end(match.state), ends.front());
  std::map<int32_t, int> followers;
  automaton.visit_longer(match.state, kLong, [&](int32_t token, int32_t state) {
    followers[token] = length < counted ? automaton.count(state) : 0;
  });
  auto want = plain.followers(phrase);
  if (length >= counted)
    for (auto& [token, count] : want) count = 0;
  ASSERT_EQ(followers, want);
  // The longest proper end with more occurrences.
  const Match shorter = automaton.next_shorter(match.state);
  for (int n = length - 1; n > 0; --n) {
    const size_t others = plain.ends({phrase.end() - n, phrase.end()}).size();
    ASSERT_EQ(others > ends.size(), n <= shorter.length) << n << " of " << length;
  }
}

TEST(SuffixAutomaton, KnowsEveryPhraseOfItsTextsAsAPlainScanDoes) {
  base::Rng rng(4);
  int texts = 0;
  for (int round = 0; round < 30; ++round) {
    const int vocab = 1 + static_cast<int>(rng.below(4));
    const int counted = static_cast<int>(rng.below(9));
    SuffixAutomaton automaton(counted);
    PlainTexts plain;
    for (int i = 0; i < 40; ++i) {
      if (rng.below(12) == 0 && !plain.all.empty() && plain.all.back() >= 0) {
        automaton.end_text();
        plain.all.push_back(-1);
        ++texts;
      }
      const auto token = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab)));
      automaton.add(token);
      plain.all.push_back(token);
    }
    ASSERT_EQ(automaton.tokens(), plain.all.size());
    for (size_t i = 0; i < plain.all.size(); ++i) ASSERT_EQ(automaton.token_at(i), plain.all[i]);
    ASSERT_EQ(automaton.token_at(plain.all.size()), -1);
    for (size_t begin = 0; begin < plain.all.size(); ++begin)
      for (size_t end = begin + 1; end <= plain.all.size() && plain.all[end - 1] >= 0; ++end)
        expect_same(automaton, plain,
                    {plain.all.begin() + static_cast<ptrdiff_t>(begin),
                     plain.all.begin() + static_cast<ptrdiff_t>(end)},
                    counted);
    for (int i = 0; i < 100; ++i)
      expect_same(automaton, plain,
                  random_tokens(rng, 1 + static_cast<int>(rng.below(6)), vocab + 1), counted);
  }
  EXPECT_GT(texts, 30);
}

// As methods do: each token is followed first, then added.
TEST(SuffixAutomaton, FollowsTheLongestEndOfATextThatStoodBefore) {
  base::Rng rng(5);
  int split = 0, cut = 0;
  for (int round = 0; round < 100; ++round) {
    const int vocab = 1 + static_cast<int>(rng.below(3));
    const int most = rng.below(2) == 0 ? kLong : 1 + static_cast<int>(rng.below(6));
    SuffixAutomaton automaton(static_cast<int>(rng.below(5)));
    Tokens text;
    Match match;
    for (int i = 0; i < 60; ++i) {
      const auto token = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab)));
      match = automaton.follow(match, token, most);
      const PlainTexts before{text};
      text.push_back(token);
      ASSERT_EQ(match.length, before.longest(text, most));
      cut += match.length == most;
      automaton.add(token);
      // The phrase may have got a state of its own.
      const Match now = automaton.shortened(match, match.length);
      split += now.state != match.state;
      ASSERT_EQ(now, found(automaton, {text.end() - match.length, text.end()}));
    }
  }
  EXPECT_GT(split, 100);
  EXPECT_GT(cut, 100);
}

// Another text than that of the automaton, which grows in between.
TEST(SuffixAutomaton, FollowsOtherTextsWhileItGrows) {
  base::Rng rng(6);
  for (int round = 0; round < 60; ++round) {
    SuffixAutomaton automaton(3);
    PlainTexts plain;
    Tokens other;
    Match match;
    for (int i = 0; i < 80; ++i) {
      if (rng.below(4) != 0) {
        const auto token = static_cast<int32_t>(rng.below(3));
        automaton.add(token);
        plain.all.push_back(token);
        match = {};  // it may be longer now
        for (const int32_t t : other) match = automaton.follow(match, t, kLong);
        continue;
      }
      other.push_back(static_cast<int32_t>(rng.below(3)));
      match = automaton.follow(match, other.back(), kLong);
      ASSERT_EQ(match.length, plain.longest(other, kLong));
    }
  }
}

TEST(SuffixAutomaton, ListsFirstWhatWasSeenLast) {
  SuffixAutomaton automaton(2);
  for (const int32_t token : {1, 2, 1, 3, 1, 4, 1, 2}) automaton.add(token);
  Tokens order;
  const auto note = [&](int32_t token, int32_t) { order.push_back(token); };
  automaton.visit_longer(found(automaton, {1}).state, kLong, note);
  EXPECT_THAT(order, testing::ElementsAre(2, 4, 3));
  order.clear();
  automaton.visit_longer(found(automaton, {1}).state, 2, note);
  EXPECT_THAT(order, testing::ElementsAre(2, 4)) << "no more than asked for";
}

TEST(SuffixAutomaton, HasAtMostItsBytesAToken) {
  base::Rng rng(7);
  for (const int vocab : {1, 2, 3, 40, 5000})
    for (const int n : {200, 3000}) {
      SuffixAutomaton automaton(8);
      automaton.reserve(static_cast<size_t>(n));
      for (const int32_t token : random_tokens(rng, n, vocab)) automaton.add(token);
      EXPECT_LE(automaton.states(), static_cast<size_t>(2 * n));
      EXPECT_LE(automaton.edges(), static_cast<size_t>(3 * n));
      EXPECT_LE(automaton.bytes(), SuffixAutomaton::kBytesPerToken * static_cast<size_t>(n));
      automaton.clear();
      EXPECT_EQ(automaton.tokens(), 0u);
      EXPECT_EQ(automaton.states(), 1u);
      EXPECT_EQ(found(automaton, {0}), Match{});
    }
}

// However many answers come: the newest half stays, and no more than there may be.
TEST(CarriedText, KeepsTheNewestHalfAndNoMoreThanItsCapacity) {
  base::Rng rng(8);
  CarriedText store(4, 256);
  std::vector<Tokens> answers;
  for (int i = 0; i < 200; ++i) {
    answers.push_back(random_tokens(rng, 10 + static_cast<int>(rng.below(30)), 1000));
    store.add(answers.back());
    ASSERT_LE(store.tokens(), 256u);
    size_t newest = 0;
    for (size_t a = answers.size(); a-- > 0;) {
      newest += answers[a].size() + 1;
      if (newest > 128 - 40) break;
      ASSERT_TRUE(found(store.part(0), answers[a]).length > 0 ||
                  found(store.part(1), answers[a]).length > 0)
          << answers.size() - a << " answers ago";
    }
  }
  EXPECT_GT(store.drops(), 10u);
  EXPECT_EQ(found(store.part(0), answers[1]), Match{});
  EXPECT_EQ(found(store.part(1), answers[1]), Match{});
}

// Memory and the work of an answer, however many there were.
TEST(CarriedText, StopsGrowing) {
  constexpr size_t kCapacity = 4096;
  base::Rng rng(9);
  CarriedText store(4, kCapacity);
  for (int i = 0; i < 2000; ++i) {
    store.add(random_tokens(rng, 5 + static_cast<int>(rng.below(10)), 300));
    ASSERT_LE(store.tokens(), kCapacity);
    ASSERT_LE(store.bytes(),
              kCapacity * SuffixAutomaton::kBytesPerToken + 2 * 64 * sizeof(int32_t));
  }
  EXPECT_GT(store.drops(), 5u);
  // From 6 tokens to a half of 2048 by doubling, not once an answer.
  EXPECT_LE(store.growths(), 10 * (store.drops() + 1));
}

TEST(CarriedText, KeepsTheEndOfAnAnswerThatIsTooLong) {
  Tokens answer;
  for (int32_t i = 0; i < 500; ++i) answer.push_back(i);
  CarriedText store(0, 64);
  store.add(answer);
  EXPECT_EQ(store.tokens(), 32u);
  int length = 0;
  for (int i = 0; i < CarriedText::kParts; ++i)
    length = std::max(length, found(store.part(i), {answer.end() - 31, answer.end()}).length);
  EXPECT_EQ(length, 31);
}

int longest_match(const EarlierAnswers& answers) {
  int length = 0;
  for (int i = 0; i < answers.parts(); ++i) length = std::max(length, answers.match(i).length);
  return length;
}

// Two turns of a slot: is the first one's answer found in the second, and in another slot?
TEST(EarlierAnswers, AreOfTheSlotOrOfAllSlots) {
  const Tokens prompt = {1, 2}, answered = {1, 2, 7, 8, 9}, again = {1, 2, 7, 8};
  for (const CarriedState state :
       {CarriedState::kCold, CarriedState::kWarm, CarriedState::kShared}) {
    EarlierAnswers first(state, 0, 256, kLong);
    EarlierAnswers second = first.another();
    first.start(prompt, 10);
    first.follow(answered);
    EXPECT_EQ(longest_match(first), 0) << "this answer is no earlier one";
    first.start(prompt, 10);
    first.follow(again);
    EXPECT_EQ(longest_match(first), state == CarriedState::kCold ? 0 : 2);
    second.start(prompt, 10);
    second.follow(again);
    EXPECT_EQ(longest_match(second), state == CarriedState::kShared ? 2 : 0);
  }
}

// What goes in for another slot while this one writes is followed from then on.
TEST(EarlierAnswers, FollowAStoreThatChanges) {
  base::Rng rng(9);
  EarlierAnswers first(CarriedState::kShared, 3, 256, kLong);
  EarlierAnswers second = first.another();
  Tokens sequence = {0};
  first.start(sequence, 1000);
  Tokens other = {0};
  second.start(other, 1000);
  int long_ones = 0;
  for (int i = 0; i < 300; ++i) {
    sequence.push_back(static_cast<int32_t>(rng.below(3)));
    first.follow(sequence);
    for (int part = 0; part < first.parts(); ++part) {
      PlainTexts plain;
      for (size_t place = 0; place < first.part(part).tokens(); ++place)
        plain.all.push_back(first.part(part).token_at(place));
      const Match match = first.match(part);
      // A longer one may have gone in behind the reader's back.
      ASSERT_LE(match.length, plain.longest(sequence, kLong));
      if (match.length == 0) continue;
      ASSERT_EQ(first.part(part).shortened(match, match.length),
                found(first.part(part), {sequence.end() - match.length, sequence.end()}));
      long_ones += match.length > 2;
    }
    const Tokens more = random_tokens(rng, static_cast<int>(rng.below(4)), 3);
    other.insert(other.end(), more.begin(), more.end());
    second.follow(other);
    if (rng.below(5) == 0) {
      other = {0};
      second.start(other, 1000);
    }
  }
  EXPECT_GT(long_ones, 100);
}

}  // namespace
}  // namespace evalrun::tests::suffix_automaton_test
