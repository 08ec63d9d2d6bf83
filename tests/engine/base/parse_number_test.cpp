#include "engine/base/parse_number.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/number_range.h"

namespace evalrun::base {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ParseNumber, TakesTheWholeTextOrNothing) {
  EXPECT_EQ(parse_number<int>("12"), 12);
  EXPECT_EQ(parse_number<int>("-7"), -7);
  EXPECT_EQ(parse_number<int>("007"), 7);
  EXPECT_EQ(parse_number<double>("0.50"), 0.5);
  EXPECT_EQ(parse_number<double>("1e3"), 1000);
  for (const char* text : {"", " 12", "12 ", "12x", "+12", "0x1f", "1.5", "-", "--1"})
    EXPECT_EQ(parse_number<int>(text), std::nullopt) << text;
  for (const char* text : {"", "1,5", "1.5.", "e3", " 1"})
    EXPECT_EQ(parse_number<double>(text), std::nullopt) << text;
}

TEST(ParseNumber, RefusesWhatDoesNotFit) {
  EXPECT_EQ(parse_number<int>("2147483647"), 2147483647);
  EXPECT_EQ(parse_number<int>("2147483648"), std::nullopt);
  EXPECT_EQ(parse_number<int64_t>("2147483648"), 2147483648);
  EXPECT_EQ(parse_number<unsigned>("-1"), std::nullopt);
  for (const char* text : {"inf", "-inf", "nan", "1e999"})
    EXPECT_EQ(parse_number<double>(text), std::nullopt) << text;
}

TEST(NumberRange, ReadsEachSpelling) {
  EXPECT_THAT(parse_number_range("4")->values(), ElementsAre(4));
  EXPECT_THAT(parse_number_range("-4")->values(), ElementsAre(-4));
  EXPECT_THAT(parse_number_range("2..5")->values(), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(parse_number_range("2-5")->values(), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(parse_number_range("-1..1")->values(), ElementsAre(-1, 0, 1));
  EXPECT_THAT(parse_number_range(" 2 .. 9 .. 3 ")->values(), ElementsAre(2, 5, 8));
  EXPECT_EQ(parse_number_range("-2147483648..2147483647")->count(), int64_t{1} << 32);
}

TEST(NumberRange, KnowsWhenItHoldsNoNumber) {
  for (const char* text : {"5..2", "5-2", "2..5..0", "2..5..-1"}) {
    EXPECT_TRUE(parse_number_range(text)->empty()) << text;
    EXPECT_THAT(parse_number_range(text)->values(), IsEmpty()) << text;
  }
}

TEST(NumberRange, RefusesOtherTexts) {
  for (const char* text : {"", "..", "2..", "..5", "2..5..", "2..5..1..1", "2-5-1", "2-5..7", "-",
                           "a..b", "1.5..2", "2...5"})
    EXPECT_FALSE(parse_number_range(text)) << text;
}

}  // namespace
}  // namespace evalrun::base
