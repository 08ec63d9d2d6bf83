#include "engine/trace.h"

#include <nvtx3/nvToolsExt.h>

namespace evalrun::engine {

void push_span(const char* name) { nvtxRangePushA(name); }
void pop_span() { nvtxRangePop(); }

}  // namespace evalrun::engine
