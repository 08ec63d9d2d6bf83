#include "reports/data/hash_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace evalrun::reports {
namespace {

TEST(HashText, ComparesAsTheTextDoes) {
  const std::string texts[] = {
      "", "0", "00", "1f", "1f0", std::string(32, 'e'), std::string(32, 'f')};
  for (const std::string& a : texts)
    for (const std::string& b : texts) {
      EXPECT_EQ(HashText(a) == HashText(b), a == b) << a << " " << b;
      EXPECT_EQ(HashText(a) == b, a == b) << a << " " << b;
      EXPECT_EQ(HashText(a) < HashText(b), a < b) << a << " " << b;
    }
  EXPECT_EQ(std::min(HashText("b"), HashText("a")), "a");
  EXPECT_EQ(HashText(), HashText(""));
  std::string copy;
  copy = HashText("1f");
  EXPECT_EQ(copy, "1f");
}

TEST(HashText, LongerTextsStayApart) {
  const std::string same(40, 'a');
  EXPECT_EQ(HashText(same + "b"), HashText(same + "b"));
  EXPECT_NE(HashText(same + "b"), HashText(same + "c"));
  EXPECT_NE(HashText(same), HashText(same.substr(0, 32)));
}

}  // namespace
}  // namespace evalrun::reports
