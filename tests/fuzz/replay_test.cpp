// The fuzz targets in every build: each runs over its seeds and some hundred changes of them, other
// ones in other runs.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/fuzz/targets.h"
#include "tests/sample.h"

namespace evalrun::fuzz {
namespace {

// New inputs find more than the same 400 did every time.
int changes_per_seed() { return tests::test_everything() ? 400 : 150; }

std::string changed(std::string_view seed, std::mt19937& rng) {
  static constexpr std::string_view kPieces[] = {"\"",
                                                 "\\",
                                                 "{",
                                                 "}",
                                                 "[",
                                                 "]",
                                                 ":",
                                                 ",",
                                                 "\n",
                                                 ".",
                                                 "-",
                                                 "#### ",
                                                 "\xff",
                                                 "\xf0\x9f",
                                                 "\\ud800",
                                                 "1e999",
                                                 "99999999999999999999",
                                                 "null",
                                                 "&amp;",
                                                 "-\n",
                                                 "$",
                                                 " ",
                                                 "\xe2\x80\xa8",
                                                 "y",
                                                 "{{",
                                                 "-%}",
                                                 "{% for x in ",
                                                 " | ",
                                                 "(",
                                                 ")",
                                                 "'"};
  std::string text(seed);
  for (uint32_t edits = 1 + rng() % 6; edits > 0; --edits) {
    const size_t at = rng() % (text.size() + 1);
    const size_t n = std::min<size_t>(rng() % 9, text.size() - at);
    switch (rng() % 5) {
      case 0:
        text.erase(at, n);
        break;
      case 1:
        text.insert(at, kPieces[rng() % std::size(kPieces)]);
        break;
      case 2:
        text.insert(at, text.substr(at, n));
        break;
      case 3:
        if (at < text.size()) text[at] = static_cast<char>(rng());
        break;
      default:
        for (int doubled = 0; doubled < 6 && text.size() < 4000; ++doubled)
          text.insert(at, text.substr(at));
    }
  }
  return text;
}

class Replay : public ::testing::TestWithParam<Target> {};

TEST_P(Replay, ReturnsForEveryInput) {
  std::mt19937 rng(tests::sample_seed());
  const Target& target = GetParam();
  EXPECT_NO_THROW(target.run(""));
  for (const std::string_view seed : target.seeds) {
    EXPECT_NO_THROW(target.run(seed));
    for (size_t n = 0; n < seed.size(); ++n) EXPECT_NO_THROW(target.run(seed.substr(0, n)));
    for (int i = 0; i < changes_per_seed(); ++i) {
      const std::string input = changed(seed, rng);
      EXPECT_NO_THROW(target.run(input)) << ::testing::PrintToString(input);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Replay, ::testing::ValuesIn(targets()),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace evalrun::fuzz
