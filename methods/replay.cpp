#include "methods/replay.h"

#include <utility>

#include "engine/base/error.h"

namespace evalrun::methods {
namespace {

// Follows the verdict as long as it agrees with the reference; where it does not, the reference's
// token takes the bonus's place and the step ends there. `emitted` tokens are out already.
void lead(const SpeculativeMethod::Verdict& verdict, const std::vector<int32_t>& reference,
          size_t& emitted, ReplayTrace& trace) {
  std::vector<int>& path = verdict.path;
  for (size_t level = 0; level < path.size() && emitted < reference.size(); ++level) {
    const bool last = level + 1 == path.size();
    const int32_t own =
        last ? verdict.bonus : verdict.tree.token[static_cast<size_t>(path[level + 1])];
    const int32_t wanted = reference[emitted++];
    ++trace.asked;
    if (own == wanted) continue;
    trace.disagreements.push_back({static_cast<int>(emitted) - 1, own});
    path.resize(level + 1);
    verdict.bonus = wanted;
  }
}

// Keeps what of the verdict lies on the way; the step ends where it leaves the way, or with it.
void force(const SpeculativeMethod::Verdict& verdict, const std::vector<int32_t>& way,
           size_t& emitted) {
  std::vector<int>& path = verdict.path;
  for (size_t level = 0; level < path.size(); ++level) {
    const int32_t wanted = way[emitted++];
    const bool drafted = level + 1 < path.size() &&
                         verdict.tree.token[static_cast<size_t>(path[level + 1])] == wanted;
    if (drafted && emitted < way.size()) continue;
    path.resize(level + 1);
    verdict.bonus = wanted;
  }
}

}  // namespace

Replay::Replay(DecodingMethod& method, const std::vector<int32_t>& reference)
    : method_(with_verdicts(method, "replay")), before_(method_.verdict_hook()) {
  method_.set_verdict_hook(
      [this, &reference, emitted = size_t{1}](const SpeculativeMethod::Verdict& verdict) mutable {
        EVALRUN_CHECK(verdict.context.sampling.greedy(), "replay of a sampled generation");
        if (before_) before_(verdict);
        if (verdict.step == 0) emitted = 1;  // the prefill's token
        lead(verdict, reference, emitted, trace_);
      });
}

Replay::~Replay() { method_.set_verdict_hook(std::move(before_)); }

LedStart::LedStart(DecodingMethod& method, const std::vector<int32_t>& start)
    : method_(with_verdicts(method, "a start that follows a text")),
      before_(method_.verdict_hook()) {
  method_.set_verdict_hook(
      [this, &start, emitted = size_t{1}](const SpeculativeMethod::Verdict& verdict) mutable {
        if (verdict.step == 0) emitted = 1;  // the prefill's token
        if (emitted < start.size())
          force(verdict, start, emitted);
        else if (before_)
          before_(verdict);
      });
}

LedStart::~LedStart() { method_.set_verdict_hook(std::move(before_)); }

}  // namespace evalrun::methods
