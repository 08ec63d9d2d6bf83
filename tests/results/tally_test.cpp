// Tallies: packed and read back, refused where they are damaged, and gone where the rows changed.
#include "results/tally.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "results/queries.h"
#include "tests/results/store_queries.h"
#include "tests/results/synthetic.h"

namespace evalrun::results {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using tests::SyntheticRun;
using tests::TempFolder;

using Pairs = std::map<std::pair<int64_t, int64_t>, std::pair<int64_t, int64_t>>;

StepRecord step(int32_t depth, int32_t accepted, int32_t emitted) {
  return {.rows = 1 + depth,
          .drafted = depth,
          .drafted_depth = depth,
          .accepted = accepted,
          .emitted = emitted,
          .draft_ns = 7,
          .verify_ns = 100};
}

// The last step of the first turn is cut; the second turn ends by a stop token.
std::vector<TurnRecord> two_turns() {
  TurnRecord first, second;
  first.tokens = {1, 2, 3, 4, 5, 6, 7};
  first.steps = {step(4, 2, 3), step(0, 0, 1), step(4, 2, 2)};
  first.prefill_ns = 50, first.draft_prefill_ns = 6, first.decode_ns = 400;
  first.nodes = {{.depth = 1, .rank = 0, .tested = 2, .accepted = 2},
                 {.depth = 2, .rank = 0, .tested = 2, .accepted = 1}};
  second.tokens = {8, 9, 10};
  second.steps = {step(4, 1, 2)};
  second.prefill_ns = 70, second.draft_prefill_ns = 8, second.decode_ns = 200;
  second.stop = StopReason::kStopToken;
  second.nodes = {{.depth = 1, .rank = 0, .tested = 1, .accepted = 1},
                  {.depth = 1, .rank = 15, .tested = 1, .accepted = 0}};
  return {first, second};
}

struct Unpacked {
  Tally tally;
  bool whole = false;
};
Unpacked unpacked(std::string_view bytes) {
  Unpacked u;
  u.whole = unpack(
      bytes, u.tally.sums,
      [&](int64_t depth, int64_t outcome, int64_t n) {
        u.tally.steps[{depth, outcome}] += n;
      },
      [&](int64_t depth, int64_t rank, int64_t tested, int64_t accepted) {
        u.tally.nodes[{depth, rank}] = {tested, accepted};
      });
  return u;
}

TEST(Tallies, AddUpTurnsStepsAndNodes) {
  const Tally tally = tally_of(two_turns());
  EXPECT_EQ(tally.sums,
            (TallySums{10, 8, 4, 12, 12, 5, 8, 4, 16, 1, 28, 400, 600, 120, 14, 1, 50}));
  const std::map<std::pair<int64_t, int64_t>, int64_t> steps = {
      {{0, 0}, 1}, {{4, 2}, 1}, {{4, 4}, 1}, {{4, 5}, 1}};
  EXPECT_EQ(tally.steps, steps) << "4 of depth and 2 accepted once whole, once cut";
  EXPECT_EQ(tally.nodes, (Pairs{{{1, 0}, {3, 3}}, {{1, 15}, {1, 0}}, {{2, 0}, {2, 1}}}));
  EXPECT_EQ(tally_of({}).sums, TallySums{});
}

TEST(Tallies, ArePackedAndReadBack) {
  Tally tally = tally_of(two_turns());
  for (size_t i = 0; i < tally.sums.size(); ++i)  // with and without more bytes
    tally.sums[i] = (int64_t{1} << (7 * (i / 2))) - static_cast<int64_t>(i % 2);
  tally.sums.back() = std::numeric_limits<int64_t>::max();
  for (int64_t n = 0; n < 200; ++n) tally.steps[{n, 2 * n}] = n * n, tally.nodes[{n, 3}] = {n, 0};
  const Unpacked u = unpacked(packed(tally).value());
  EXPECT_TRUE(u.whole);
  EXPECT_EQ(u.tally.sums, tally.sums);
  EXPECT_EQ(u.tally.steps, tally.steps);
  EXPECT_EQ(u.tally.nodes, tally.nodes);
  TallySums sums = {};
  EXPECT_TRUE(unpack_sums(*packed(tally), sums));
  EXPECT_EQ(sums, tally.sums);
}

TEST(Tallies, OfNegativeNumbersThereIsNone) {
  EXPECT_TRUE(packed(Tally()).has_value());
  Tally sum, step_depth, node;
  sum.sums[3] = -1;
  step_depth.add_step(-1, 0, 1);
  node.add_node(1, 0, 1, -1);
  for (const Tally* tally : {&sum, &step_depth, &node}) EXPECT_EQ(packed(*tally), std::nullopt);
}

TEST(Tallies, DamagedOnesAreRefused) {
  const std::string bytes = packed(tally_of(two_turns())).value();
  ASSERT_TRUE(unpacked(bytes).whole);
  for (size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(unpacked(bytes.substr(0, n)).whole) << n;
  EXPECT_FALSE(unpacked(bytes + '\0').whole);
  std::string other = bytes;
  other[0] = static_cast<char>(kTallyLayout + 1);
  EXPECT_FALSE(unpacked(other).whole);
  EXPECT_FALSE(unpacked(bytes.substr(0, 1) + std::string(99, '\xff')).whole) << "no end";
  TallySums sums = {};
  EXPECT_FALSE(unpack_sums({}, sums));
  EXPECT_FALSE(unpack_sums(other, sums));
  EXPECT_FALSE(unpack_sums(bytes.substr(0, kTallySums), sums));
}

// Answers of two turns, and failures without any.
SyntheticRun run_of_many_kinds() {
  SyntheticRun run = usual();
  run.change = [](GenerationRecord& g, const tests::SyntheticArm&, int prompt, int, int) {
    if (prompt == 1) g.turns = two_turns(), g.texts = {"a", "b"};
    if (prompt == 2) g.status = "failed: of course", g.turns.clear(), g.texts.clear();
  };
  return run;
}

TEST(Tallies, AreStoredWithTheGeneration) {
  TempFolder folder;
  ResultStore store(folder.file("a.db"));
  tests::fill(store, run_of_many_kinds());
  EXPECT_EQ(integer(store, "SELECT count(*) FROM generation WHERE tally = generation_tally(id)"),
            12);
  EXPECT_EQ(integer(store, "SELECT count(DISTINCT tally) FROM generation"), 6)
      << "two turns, none, and those of two prompts with drafts and without";
  std::string bytes;
  store.query("SELECT tally FROM generation WHERE id = 6", {}, [&](const Row& row) {
    bytes = row.view(0);
    return false;
  });
  EXPECT_EQ(bytes, packed(tally_of(two_turns())));
}

TEST(Tallies, GoWhereTheRowsAreChanged) {
  const std::string kGone =
      "SELECT coalesce(group_concat(id), 'none') FROM (SELECT id FROM generation WHERE tally IS "
      "NULL ORDER BY id)";
  // Of generation 3, which drafts, and 2, which does not: a turn of the same number each.
  for (const auto& [change, gone] :
       {std::pair("UPDATE turn SET decode_ns = decode_ns + 1 WHERE generation_id = 3", "3"),
        std::pair("UPDATE turn SET generation_id = 3, idx = 1 WHERE generation_id = 2", "2,3"),
        std::pair("DELETE FROM turn WHERE generation_id = 3", "3"),
        std::pair("UPDATE step SET accepted = accepted + 1 WHERE turn_id = 3 AND idx = 0", "3"),
        std::pair("UPDATE step SET turn_id = 3, idx = idx + 1000 WHERE turn_id = 2", "2,3"),
        std::pair("UPDATE step SET verify_ns = 1", "none"),
        std::pair("DELETE FROM step WHERE turn_id = 3 AND idx = 0", "3"),
        std::pair("UPDATE node SET tested = tested + 1 WHERE turn_id = 3 AND depth = 1", "3"),
        std::pair("UPDATE node SET turn_id = 2 WHERE turn_id = 3", "2,3"),
        std::pair("DELETE FROM node WHERE turn_id = 3 AND depth = 1", "3"),
        std::pair("UPDATE generation SET status = 'failed: x', fault = 'y' WHERE id = 3", "none"),
        std::pair("DELETE FROM generation WHERE id = 3", "none")}) {
    TempFolder folder;
    ResultStore store(folder.file("a.db"));
    tests::fill(store, usual());
    ASSERT_EQ(text(store, kGone), "none");
    store.execute(change);
    EXPECT_EQ(text(store, kGone), gone) << change;
    EXPECT_THAT(wrong_tallies(store), IsEmpty()) << change;
  }
}

TEST(Tallies, WrongOnesAreFound) {
  TempFolder folder;
  ResultStore store(folder.file("a.db"));
  tests::fill(store, usual());
  EXPECT_THAT(wrong_tallies(store), IsEmpty());
  store.execute("INSERT INTO node VALUES (3, 9, 3, 7, 5)");
  store.execute("UPDATE generation SET tally = x'00' WHERE id = 5");
  EXPECT_THAT(wrong_tallies(store), ElementsAre(3, 5));
  store.execute("UPDATE generation SET tally = NULL WHERE id = 3");
  EXPECT_THAT(wrong_tallies(store), ElementsAre(5));
  tests::without_tallies(store);
  EXPECT_THAT(wrong_tallies(store), IsEmpty());
}

TEST(Tallies, NumbersThatAreNoneGiveNone) {
  TempFolder folder;
  ResultStore store(folder.file("a.db"));
  tests::fill(store, usual());
  EXPECT_EQ(integer(store, "SELECT generation_tally(3) IS NULL"), 0);
  for (const char* number : {"0.5", "-1", "'many'", "9007199254740993"}) {
    store.execute(fmt::format("UPDATE turn SET decode_ns = {} WHERE generation_id = 3", number));
    EXPECT_EQ(integer(store, "SELECT generation_tally(3) IS NULL"), 1) << number;
  }
  store.execute("UPDATE turn SET decode_ns = 5 WHERE generation_id = 3");
  EXPECT_EQ(integer(store, "SELECT generation_tally(3) IS NULL"), 0);
}

}  // namespace
}  // namespace evalrun::results
