// Two runs generation by generation: equal, or what differs and where.
#include "results/merge/compare_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/results/merge/parts.h"
#include "tests/temp_folder.h"

namespace evalrun::results {
namespace {

using ::testing::HasSubstr;
using tests::TempFolder;

class CompareTokens : public ::testing::Test {
 protected:
  CompareTokens() {
    write_part(folder_.file("a.db"), {});
    write_part(folder_.file("b.db"), {.machine = "host-b", .started = "2026-05-05T00:00:00Z"});
  }
  TokenComparison compare(const std::string& change = "") {
    if (!change.empty()) ResultStore(folder_.file("b.db")).execute(change);
    ResultStore a(folder_.file("a.db"), ResultStore::Mode::kReadOnly);
    const ResultStore b(folder_.file("b.db"), ResultStore::Mode::kReadOnly);
    return compare_tokens(a, 1, b, 1);
  }
  int64_t differing(const TokenComparison& c, Compared what) {
    return c.differing[static_cast<size_t>(what)];
  }
  TempFolder folder_;
};

TEST_F(CompareTokens, RunsThatDifferInTimesAloneAreEqual) {
  const TokenComparison c = compare("UPDATE generation SET total_ns = total_ns + 7");
  EXPECT_TRUE(c.equal());
  EXPECT_EQ(c.compared, kPartPrompts * 6);
  EXPECT_TRUE(c.first.empty());
}

TEST_F(CompareTokens, ARunWithItself) {
  ResultStore a(folder_.file("a.db"), ResultStore::Mode::kReadOnly);
  EXPECT_TRUE(compare_tokens(a, 1, a, 1).equal());
  EXPECT_TRUE(compare_tokens(a, 1, a, 1).equal()) << "again on the same connection";
}

TEST_F(CompareTokens, WhereTokensPart) {
  const TokenComparison c = compare(
      "UPDATE turn SET tokens = CAST(substr(tokens, 1, 4 * 17) || x'07000000' || substr(tokens, 4 "
      "* "
      "18 + 1) AS BLOB) WHERE id = 5");
  EXPECT_TRUE(c.equal()) << "by their hashes, which was not changed";
  const TokenComparison d = compare("UPDATE generation SET tokens_hash = 'x' WHERE id = 5");
  EXPECT_FALSE(d.equal());
  EXPECT_EQ(differing(d, Compared::kTokens), 1);
  ASSERT_EQ(d.first.size(), 1u);
  EXPECT_EQ(d.first[0].b, "turn 0, token 17: 7");
  EXPECT_THAT(d.first[0].a, HasSubstr("turn 0, token 17: "));
  EXPECT_EQ(d.first[0].prompt, "gsm8k/0");
}

TEST_F(CompareTokens, CountersStepsStatusesSeedsAndScores) {
  TokenComparison c = compare("UPDATE turn SET rows = rows + 1 WHERE id = 2");
  EXPECT_EQ(differing(c, Compared::kCounters), 1);
  ASSERT_EQ(c.first.size(), 1u);
  EXPECT_NE(c.first[0].a, c.first[0].b);
  EXPECT_THAT(c.first[0].a, HasSubstr("turn 0: 10 prompt tokens"));
  c = compare(
      "UPDATE generation SET steps_hash = 'x', status = 'failed: x', seed = 1 WHERE id < 4");
  EXPECT_EQ(differing(c, Compared::kSteps), 3);
  EXPECT_EQ(differing(c, Compared::kStatus), 3);
  EXPECT_EQ(differing(c, Compared::kSeed), 3);
  EXPECT_EQ(differing(c, Compared::kTokens), 0);
  EXPECT_EQ(c.first.size(), TokenComparison::kNamed);
  c = compare("UPDATE score SET value = 0.125 WHERE generation_id = 9");
  EXPECT_EQ(differing(c, Compared::kScores), 1);
  c = compare("DELETE FROM score WHERE generation_id = 10");
  EXPECT_EQ(differing(c, Compared::kScores), 2);
}

TEST_F(CompareTokens, GenerationsThatOneLacks) {
  TokenComparison c = compare("DELETE FROM generation WHERE id = 8");
  EXPECT_FALSE(c.equal());
  EXPECT_EQ(c.only_a, 1);
  EXPECT_EQ(c.only_b, 0);
  EXPECT_THAT(c.first_only_a, HasSubstr("gsm8k/1, repeat 1"));
  c = compare("UPDATE arm SET label = 'other' WHERE label = 'pld:k=4'");
  EXPECT_EQ(c.only_a, kPartPrompts * 2 + 1) << "and that one";
  EXPECT_EQ(c.only_b, kPartPrompts * 2);
  c = compare("DELETE FROM generation");
  EXPECT_EQ(c.compared, 0);
  EXPECT_FALSE(c.equal());
}

}  // namespace
}  // namespace evalrun::results
