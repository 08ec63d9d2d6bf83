// The bit-parallel subsequences against the recursive definition over the whole table.
#include "evaluators/text/lcs.h"

#include <gmock/gmock.h>

#include <random>

#include "evaluators/text/words.h"

namespace evalrun::evaluators {
namespace {

using Pairs = std::vector<std::pair<size_t, size_t>>;

// T[i][j] by the textbook, and the walk that lcs.h promises.
struct Textbook {
  explicit Textbook(const std::vector<WordId>& a, const std::vector<WordId>& b)
      : table(a.size() + 1, std::vector<int>(b.size() + 1, 0)) {
    for (size_t i = 1; i <= a.size(); ++i)
      for (size_t j = 1; j <= b.size(); ++j)
        table[i][j] = a[i - 1] == b[j - 1] ? table[i - 1][j - 1] + 1
                                           : std::max(table[i - 1][j], table[i][j - 1]);
    for (size_t i = a.size(), j = b.size(); i > 0 && j > 0;) {
      if (a[i - 1] == b[j - 1])
        walk.emplace_back(--i, --j);
      else if (table[i - 1][j] > table[i][j - 1])
        --i;
      else
        --j;
    }
  }
  std::vector<std::vector<int>> table;
  Pairs walk;
};

void expect_equal(Lcs& lcs, const std::vector<WordId>& a, const std::vector<WordId>& b) {
  const Textbook expected(a, b);
  lcs.set_b(b);
  EXPECT_EQ(lcs.length(a), static_cast<size_t>(expected.table[a.size()][b.size()]));
  Pairs found;
  lcs.walk(a, [&](size_t i, size_t j) { found.emplace_back(i, j); });
  EXPECT_EQ(found, expected.walk);
}

TEST(Lcs, MakesTheChoiceOfTheDefinition) {
  std::mt19937 rng(7);
  const auto draw = [&](size_t n, WordId n_words) {
    std::vector<WordId> words(n);
    for (WordId& word : words) word = static_cast<WordId>(rng() % n_words);
    return words;
  };
  Lcs lcs(500);
  for (int i = 0; i < 600; ++i) {
    SCOPED_TRACE(i);
    const WordId n_words = std::array<WordId, 5>{1, 2, 3, 20, 500}[rng() % 5];
    expect_equal(lcs, draw(rng() % 70, n_words), draw(rng() % 200, n_words));
  }
}

TEST(Lcs, RowsKeptInPartGiveTheSame) {
  // 3,000 rows of 30 blocks are more than are kept in one piece.
  std::mt19937 rng(8);
  std::vector<WordId> a(3000), b(1900);
  for (WordId& word : a) word = static_cast<WordId>(rng() % 40);
  for (WordId& word : b) word = static_cast<WordId>(rng() % 40);
  Lcs lcs(40);
  expect_equal(lcs, a, b);
  expect_equal(lcs, b, a);
}

TEST(Lcs, EmptyAndWholeBlocks) {
  Lcs lcs(3);
  for (const size_t n : {0, 1, 63, 64, 65, 128})
    for (const size_t m : {0, 1, 64, 128}) {
      const std::vector<WordId> a(n, 1), b(m, 1);
      expect_equal(lcs, a, b);
    }
}

TEST(Words, WhiteSpaceIsThatOfPython) {
  std::vector<std::string> words;
  for_each_word(
      "a\x1c"
      "b\u0085c\u00a0d\u1680e\u2000f\u200ag\u2028h\u2029i\u202fj\u205fk\u3000l \n m",
      [&](std::string_view word) { words.emplace_back(word); });
  EXPECT_THAT(words, ::testing::ElementsAre("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k",
                                            "l", "m"));
  words.clear();
  // Not white space: zero-width space, and broken UTF-8 however close it comes.
  for_each_word(
      "a\u200b\xc2"
      "b\xe2\x80\xe1\x9a",
      [&](std::string_view w) { words.emplace_back(w); });
  EXPECT_EQ(words.size(), 1u);
}

TEST(Words, NgramNumbersAreExact) {
  WordIds ids;
  std::vector<WordId> words;
  std::string text;
  for (int i = 0; i < 2000; ++i) text += fmt::format("w{} ", (i * i) % 97);
  for_each_word(text, [&](std::string_view word) { words.push_back(ids.id(word)); });
  std::vector<uint32_t> grams = words;
  std::map<std::vector<WordId>, uint32_t> expected;
  for (size_t n = 2; n <= 4; ++n) {
    NgramIds numbers(n == 2 ? 0 : 10);  // grows
    extend_ngrams(grams, words, n, numbers);
    ASSERT_EQ(grams.size(), words.size() - n + 1);
    expected.clear();
    for (size_t i = 0; i < grams.size(); ++i) {
      const std::vector<WordId> gram(words.begin() + static_cast<long>(i),
                                     words.begin() + static_cast<long>(i + n));
      const auto [it, is_new] = expected.try_emplace(gram, grams[i]);
      EXPECT_EQ(it->second, grams[i]);
    }
    EXPECT_EQ(numbers.size(), expected.size());
    EXPECT_EQ(numbers.find(grams[0], 12345), NgramIds::kUnknown);
  }
}

}  // namespace
}  // namespace evalrun::evaluators
