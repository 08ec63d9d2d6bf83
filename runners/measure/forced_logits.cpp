#include "runners/measure/forced_logits.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace evalrun::runners {
namespace {

constexpr size_t kForcedRows = 256;  // of one forward: bounds the logits held at a time

}  // namespace

void forced_logits(engine::Session& session, int32_t last, std::span<const int32_t> text,
                   UseLogits use) {
  std::vector<engine::Row> rows;
  std::vector<int> path;
  // Row i is read for text[i]: the last token, then the text without its own last one.
  for (size_t begin = 0; begin < text.size(); begin += kForcedRows) {
    const size_t count = std::min(kForcedRows, text.size() - begin);
    rows.assign(count, {});
    path.resize(count);
    std::iota(path.begin(), path.end(), 0);
    for (size_t i = 0; i < count; ++i) {
      rows[i].token = begin + i == 0 ? last : text[begin + i - 1];
      rows[i].parent = static_cast<int32_t>(i) - 1;
    }
    engine::ForwardRequest request;
    request.rows = rows;
    const engine::ForwardResult result = session.forward(request);
    for (size_t i = 0; i < count; ++i) use(begin + i, result.logits_row(static_cast<int>(i)));
    session.commit(path);
  }
}

}  // namespace evalrun::runners
