#include "reports/data/hash_text.h"

#include <algorithm>
#include <string>

#include "engine/base/text.h"

namespace evalrun::reports {

HashText::HashText(std::string_view text) {
  std::string hash;
  if (text.size() > kMost) {
    hash = base::sha256_hex(text).substr(0, kMost);
    text = hash;
  }
  std::copy(text.begin(), text.end(), text_.begin());
  size_ = static_cast<uint8_t>(text.size());
}

}  // namespace evalrun::reports
