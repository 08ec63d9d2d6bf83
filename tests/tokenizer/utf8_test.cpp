#include "engine/base/utf8.h"

#include <gtest/gtest.h>

#include "engine/tokenizer/subword/byte_alphabet.h"
#include "engine/tokenizer/subword/vocabulary.h"

namespace evalrun::engine {
namespace {

TEST(Utf8, RepairsByMaximalSubparts) {
  const std::string r(base::kReplacementCharacter);
  EXPECT_EQ(base::utf8_repair("a\xC3\xA9z"), "a\xC3\xA9z");
  // The example of the Unicode standard, table 3-8.
  EXPECT_EQ(base::utf8_repair("a\xF1\x80\x80\xE1\x80\xC2"
                              "b\x80"
                              "c\x80\xBF"
                              "d"),
            "a" + r + r + r + "b" + r + "c" + r + r + "d");
  EXPECT_EQ(base::utf8_repair("\xC0\xAF"), r + r);                  // overlong
  EXPECT_EQ(base::utf8_repair("\xED\xA0\x80"), r + r + r);          // surrogate
  EXPECT_EQ(base::utf8_repair("\xF4\x90\x80\x80"), r + r + r + r);  // above U+10FFFF
}

TEST(Utf8, KnowsWhatMayStillBecomeACharacter) {
  EXPECT_EQ(base::utf8_incomplete_tail("abc"), 0u);
  EXPECT_EQ(base::utf8_incomplete_tail("a\xE2\x96"), 2u);
  EXPECT_EQ(base::utf8_incomplete_tail("a\xE2\x96\x81"), 0u);
  EXPECT_EQ(base::utf8_incomplete_tail("\xF0\x9F\x98"), 3u);
  EXPECT_EQ(base::utf8_incomplete_tail("\xED\xA0"), 0u);  // already ill-formed
  EXPECT_EQ(base::utf8_incomplete_tail("\x80\x80\x80\x80"), 0u);
}

TEST(ByteAlphabet, GoesThereAndBackForEveryByte) {
  std::string all;
  for (int b = 0; b < 256; ++b) all.push_back(static_cast<char>(b));
  const std::string written = bytes_to_alphabet(all);
  EXPECT_TRUE(base::utf8_valid(written));
  EXPECT_EQ(alphabet_to_bytes(written), all);
  EXPECT_EQ(bytes_to_alphabet(" \n"), "\xC4\xA0\xC4\x8A");  // Ġ Ċ
}

TEST(ByteAlphabet, LeavesTokensOutsideOfItAlone) {
  EXPECT_EQ(alphabet_to_bytes("\xC4\xA0 x"), "\xC4\xA0 x");  // a plain space is not in the alphabet
}

TEST(FallbackByte, ReadsOnlyItsOwnForm) {
  EXPECT_EQ(fallback_byte_of("<0x0A>"), 0x0A);
  EXPECT_EQ(fallback_byte_of("<0xff>"), 0xFF);
  for (const char* text : {"<0x0>", "<0xGG>", "<0x0A", "0x0A>>>", "<0x-1>", "<0x+1>", "<0x 1>"})
    EXPECT_FALSE(fallback_byte_of(text).has_value()) << text;
}

}  // namespace
}  // namespace evalrun::engine
