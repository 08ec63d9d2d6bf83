// gsm8k@evalrun: which number is read, and when two are equal.
#include <gmock/gmock.h>

#include "evaluators/gsm8k.h"

namespace evalrun::evaluators {
namespace {

results::ScoreRecord judge(const std::string& reference, const std::string& text) {
  datasets::Prompt prompt;
  prompt.reference = reference;
  return find_evaluator("gsm8k@evalrun").score(prompt, {text}, {});
}

TEST(Gsm8kDecimal, ReadsTheLastNumber) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"She earns $1,000.00", "1,000.00"},
      {"The answer is 18.", "18"},
      {"#### -5", "-5"},
      {"-$5", "-5"},
      {"$-5", "-5"},
      {"It shows \u22126 degrees", "-6"},
      {"--5", "-5"},
      {"= 5.0", "5.0"},
      {".5 litres", ".5"},
      {"12 km", "12"},
      {"25%", "25"},
      {"from 2-6", "6"},
      {"(3)-4", "4"},
      {"x-4", "4"},
      {"- 7 apples", "7"},
      {"1,234,567", "1,234,567"},
      {"1, 2, 3", "3"},
      {"1,2", "2"},
      {"-1,2", "2"},
      {"123,456", "123,456"},
      {"1234,567", "567"},  // no thousands: four digits before the comma
      {"12345,678", "678"},
      {"1,234,56", "56"},
      {"1,234.5.", "1,234.5"},
      {"9, or maybe...", "9"},
      {"\\boxed{72}", "72"},
      {"3/4", "4"},
      {"72 on 12.05.2024.", ".2024"},
      {"none at all", "[invalid]"},
      {"", "[invalid]"},
      {"$ , . -", "[invalid]"},
      {std::string("\xff\xfe so 1") + '\0' + "8\x80", "8"},
  };
  for (const auto& [text, number] : cases) EXPECT_EQ(extract_gsm8k_decimal(text), number) << text;
}

TEST(Gsm8kDecimal, EqualValuesHaveOneSpelling) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"18.00", "18"}, {"018", "18"},         {"1,000", "1000"},
      {".50", "0.5"},  {"-0", "0"},           {"-0.00", "0"},
      {"0.10", "0.1"}, {"-1,000.0", "-1000"}, {"0", "0"},
      {"100", "100"},  {"1.23", "1.23"},      {"123456789012345678901", "123456789012345678901"}};
  for (const auto& [number, canonical] : cases) EXPECT_EQ(canonical_decimal(number), canonical);
}

TEST(Gsm8kDecimal, ComparesValuesExactly) {
  EXPECT_EQ(judge("work\n#### 5", "so 5.0").value, 1);
  EXPECT_EQ(judge("#### 1,000", "$1000.00").value, 1);
  EXPECT_EQ(judge("#### 0.1", "0.10").value, 1);
  // A double does not tell these apart.
  EXPECT_EQ(judge("#### 9007199254740993", "9007199254740992").value, 0);
  EXPECT_EQ(judge("#### 5", "-5").value, 0);
  EXPECT_EQ(judge("#### 5", "no idea").value, 0);
  EXPECT_EQ(judge("#### 5", "5 of 7").extracted, "7");
  EXPECT_EQ(judge("no marker: 5.", "5").value, 1);
}

TEST(Gsm8kDecimal, AReferenceWithoutANumberIsAStatus) {
  const results::ScoreRecord record = judge("#### five", "5");
  EXPECT_EQ(record.status, "no reference");
  EXPECT_FALSE(record.value.has_value());
}

TEST(Gsm8kDecimal, LongTextIsLinear) {
  for (const char* piece : {"1,", "-", "12 ", "1.", "$-"}) {
    std::string text;
    while (text.size() < 2'000'000) text += piece;
    EXPECT_EQ(judge("#### 77", text + " 77").value, 1) << piece;
  }
}

}  // namespace
}  // namespace evalrun::evaluators
