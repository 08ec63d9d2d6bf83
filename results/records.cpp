#include "results/records.h"

#include "engine/base/error.h"

namespace evalrun::results {

const char* to_string(StopReason r) {
  switch (r) {
    case StopReason::kStopToken:
      return "stop_token";
    case StopReason::kStopString:
      return "stop_string";
    case StopReason::kLimit:
      return "limit";
    case StopReason::kContextFull:
      return "context_full";
    case StopReason::kFailed:
      return "failed";
  }
  EVALRUN_CHECK(false, "unknown stop reason {}", static_cast<int>(r));
}

}  // namespace evalrun::results
