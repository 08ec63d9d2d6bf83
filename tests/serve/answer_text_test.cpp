// Text of answers piece by piece.
#include "runners/serve/answer_text.h"

#include <gmock/gmock.h>

#include "tests/runners/fakes.h"

namespace evalrun::tests {
namespace {

using runners::AnswerText;

std::vector<int32_t> bytes_of(const std::string& text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

// Text that comes in pieces of `n` tokens, one string a piece, what is left at the end last.
std::vector<std::string> pieces_of(const std::string& answer, size_t n,
                                   const std::vector<std::string>& stop) {
  const ByteTokenizer tokenizer;
  AnswerText text(tokenizer, stop);
  std::vector<std::string> pieces;
  const std::vector<int32_t> ids = bytes_of(answer);
  for (size_t i = 0; i < ids.size(); i += n)
    pieces.push_back(text.push(std::span(ids).subspan(i, std::min(n, ids.size() - i))));
  pieces.push_back(text.finish());
  return pieces;
}

std::string joined(const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

TEST(AnswerText, IsCutBeforeTheFirstStopTextHoweverItComes) {
  const std::vector<std::string> stop = {"\n\n", "END", "NDX"};
  for (const size_t n : {1u, 2u, 3u, 7u, 100u}) {
    EXPECT_EQ(joined(pieces_of("one\ntwo\n\nthree", n, stop)), "one\ntwo") << n;
    EXPECT_EQ(joined(pieces_of("the END of it", n, stop)), "the ") << n;
    EXPECT_EQ(joined(pieces_of("no end: EN", n, stop)), "no end: EN") << n;
    EXPECT_EQ(joined(pieces_of("ENEND", n, stop)), "EN") << n;
  }
}

TEST(AnswerText, HoldsBackWhatMayBecomeAStopText) {
  EXPECT_THAT(pieces_of("aENb", 1, {"END"}), ::testing::ElementsAre("a", "", "", "ENb", ""));
  EXPECT_THAT(pieces_of("aEN", 1, {"END"}), ::testing::ElementsAre("a", "", "", "EN"));
}

TEST(AnswerText, NeverSplitsACharacter) {
  EXPECT_THAT(pieces_of("\xC3\xA4x", 1, {}), ::testing::ElementsAre("", "\xC3\xA4", "x", ""));
  // What never becomes one is replaced.
  EXPECT_EQ(joined(pieces_of("a\xC3", 1, {})), "a\xEF\xBF\xBD");
}

}  // namespace
}  // namespace evalrun::tests
