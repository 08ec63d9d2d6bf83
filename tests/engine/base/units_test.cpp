// Sizes and times in words, digits worked out by hand.
#include "engine/base/units.h"

#include <gtest/gtest.h>

namespace evalrun::base {
namespace {

TEST(Units, BytesInPowersOf1000) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1 kB");
  EXPECT_EQ(format_bytes(1234), "1.23 kB");
  EXPECT_EQ(format_bytes(999'499), "999 kB");
  EXPECT_EQ(format_bytes(999'500), "1 MB");
  EXPECT_EQ(format_bytes(8'264'448), "8.26 MB");
  EXPECT_EQ(format_bytes(138e6), "138 MB");
  EXPECT_EQ(format_bytes(1'885'011'968), "1.89 GB");
  EXPECT_EQ(format_bytes(999.4e9), "999 GB");
  EXPECT_EQ(format_bytes(20e12), "20 TB");
}

TEST(Units, TimesAreReadInOneUnitOrTwo) {
  EXPECT_EQ(format_duration(0), "0 s");
  EXPECT_EQ(format_duration(412e-9), "412 ns");
  EXPECT_EQ(format_duration(12.34e-6), "12.3 us");
  EXPECT_EQ(format_duration(3.14159e-3), "3.14 ms");
  EXPECT_EQ(format_duration(0.9994), "999 ms");
  EXPECT_EQ(format_duration(0.9996), "1 s");
  EXPECT_EQ(format_duration(59.4), "59.4 s");
  EXPECT_EQ(format_duration(59.94), "59.9 s");
  EXPECT_EQ(format_duration(59.96), "1m00s");
  EXPECT_EQ(format_duration(90.5), "1m31s");
  EXPECT_EQ(format_duration(3599.4), "59m59s");
  EXPECT_EQ(format_duration(3599.6), "1h00m");
  EXPECT_EQ(format_duration(3725), "1h02m");
}

TEST(Units, ATimeInSecondsMinutesOrHours) {
  EXPECT_EQ(parse_duration("90s"), 90);
  EXPECT_EQ(parse_duration("10m"), 600);
  EXPECT_EQ(parse_duration("1.5h"), 5400);
  EXPECT_EQ(parse_duration("90"), 90);
  EXPECT_EQ(parse_duration("0"), 0);
  for (const char* bad : {"", "s", "m", "x", "-1s", "10 m", "10d", "inf", "nan", "1h30m"})
    EXPECT_EQ(parse_duration(bad), std::nullopt) << bad;
}

}  // namespace
}  // namespace evalrun::base
