#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "engine/base/goodness_of_fit.h"
#include "engine/base/json_fields.h"
#include "engine/base/registry.h"
#include "engine/base/rng.h"
#include "engine/base/text.h"
#include "tests/temp_folder.h"

namespace evalrun::base {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Text, Sha256KnownAnswers) {  // FIPS 180-2 examples
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Text, SuggestsTheNearestFirst) {
  EXPECT_THAT(suggest("medsa", {"ar", "pld", "medusa"}), HasSubstr("did you mean 'medusa'?"));
  EXPECT_THAT(suggest("xyzzyx", {"ar", "pld"}), Not(HasSubstr("did you mean")));
  EXPECT_THAT(suggest("xyzzyx", {"ar", "pld"}), HasSubstr("known: ar, pld"));
}

TEST(Text, CommasStandBetweenThousands) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(2560), "2,560");
  EXPECT_EQ(with_commas(1234567), "1,234,567");
  EXPECT_EQ(with_commas(-123), "-123");
  EXPECT_EQ(with_commas(-1234), "-1,234");
}

TEST(Text, AtomicWriteReplacesWholeFiles) {
  const tests::TempFolder folder;
  const std::string path = folder.file("atomic");
  write_file_atomic(path, "one");
  write_file_atomic(path, "two");
  EXPECT_EQ(read_file(path), "two");
  const std::string_view parts[] = {"th", "", "ree"};
  write_file_atomic(path, parts);
  EXPECT_EQ(read_file(path), "three");
  EXPECT_THAT(message_of([] { write_file_atomic("/no/such/folder/x", "y"); }),
              HasSubstr("/no/such/folder/x"));
  EXPECT_THAT(message_of([] { (void)read_file("/no/such/file"); }), HasSubstr("No such file"));
}

TEST(JsonFields, NamesFileFieldAndRemedy) {
  const auto j =
      parse_json(R"({"methds": ["ar"], "n": 3.5, "big": 5000000000, "flag": 1})", "s.json");
  EXPECT_THAT(message_of([&] {
                ObjectReader r(j, "s.json", "", ExitCode::kUsage);
                (void)r.optional<std::vector<std::string>>("methods", {});
                (void)r.has("n"), (void)r.has("big"), (void)r.has("flag");
                r.finish();
              }),
              ::testing::AllOf(HasSubstr("s.json"), HasSubstr("methds"),
                               HasSubstr("did you mean 'methods'")));
  ObjectReader r(j, "s.json", "arms[0]");
  EXPECT_THAT(message_of([&] { (void)r.required<int>("n"); }), HasSubstr("arms[0].n"));
  EXPECT_THAT(message_of([&] { (void)r.required<int>("big"); }), HasSubstr("out of range"));
  EXPECT_THAT(message_of([&] { (void)r.required<bool>("flag"); }), HasSubstr("true or false"));
  EXPECT_THAT(message_of([&] { (void)r.required<int>("gone"); }), HasSubstr("missing"));
}

TEST(JsonFields, SyntaxErrorsNameLineAndColumn) {
  EXPECT_THAT(message_of([] { (void)parse_json("{\n  \"a\": }", "x.json"); }),
              HasSubstr("x.json: line 2, column"));
  EXPECT_THAT(message_of([] { (void)parse_json("", "x.json"); }), HasSubstr("line 1"));
}

TEST(Registry, RefusesDuplicatesAndSuggests) {
  Registry<int> r("method");
  r.add("ar", 1);
  EXPECT_THROW(r.add("ar", 2), InternalError);
  EXPECT_EQ(r.get("ar"), 1);
  EXPECT_THAT(message_of([&] { (void)r.get("at"); }), HasSubstr("unknown method 'at'"));
}

TEST(Rng, StreamIsFixedAndUniform) {
  Rng a(1), b(1);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a.next(), b.next());
  Rng c(2);
  int counts[7] = {};
  for (int i = 0; i < 70000; ++i) ++counts[c.below(7)];
  // 10000 expected, standard deviation 93: five of them.
  for (const int n : counts) EXPECT_NEAR(n, 10000, 465);
  for (int i = 0; i < 1000; ++i) {
    const double u = c.uniform();
    EXPECT_TRUE(u >= 0 && u < 1);
  }
}

// Numbers of neighbouring keys have nothing to do with each other: pairs fill the square evenly.
TEST(KeyedChance, NumbersOfDifferentKeysAreIndependent) {
  constexpr int kSide = 16, kEach = 100;
  constexpr int kPairs = kSide * kSide * kEach;
  const auto even = [](const std::function<std::pair<double, double>(uint64_t)>& pair) {
    std::vector<int64_t> counts(kSide * kSide);
    for (uint64_t i = 0; i < kPairs; ++i) {
      const auto [x, y] = pair(i);
      EXPECT_TRUE(x >= 0 && x < 1 && y >= 0 && y < 1);
      ++counts[static_cast<size_t>(x * kSide) * kSide + static_cast<size_t>(y * kSide)];
    }
    const std::vector<double> expected(counts.size(), 1.0 / (kSide * kSide));
    return GoodnessOfFit(expected, kPairs).p(counts, 1, 20'000);
  };
  const auto at = [](uint64_t i) { return static_cast<int64_t>(i); };
  using Pair = std::pair<double, double>;
  const KeyedChance chance(7);
  EXPECT_GT(even([&](uint64_t i) {
              return Pair{chance.target(at(i)), chance.target(at(i) + 1)};
            }),
            1e-4)
      << "positions";
  EXPECT_GT(even([&](uint64_t i) {
              return Pair{KeyedChance(i).target(3), KeyedChance(i + 1).target(3)};
            }),
            1e-4)
      << "seeds";
  EXPECT_GT(even([&](uint64_t i) {
              return Pair{chance.target(at(i)), chance.accept(at(i), 0)};
            }),
            1e-4)
      << "purposes";
  EXPECT_GT(even([&](uint64_t i) {
              return Pair{chance.accept(at(i), 0), chance.accept(at(i), 1)};
            }),
            1e-4)
      << "trials";
  EXPECT_GT(even([&](uint64_t i) {
              return Pair{chance.target(at(i)), chance.draft(at(i), 0, 0)};
            }),
            1e-4)
      << "drafts and the target's token";
  EXPECT_GT(even([&](uint64_t i) {
              return Pair{chance.draft(at(i), 0, 0), chance.draft(at(i) + 1, 0, 0)};
            }),
            1e-4)
      << "drafts of two steps";
}

}  // namespace
}  // namespace evalrun::base
