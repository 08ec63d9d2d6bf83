// The target's logits along a given text.
#pragma once
#include <cstdint>
#include <span>

#include "engine/base/function_ref.h"
#include "engine/session.h"

namespace evalrun::runners {

// The logits that decide text[i]; the view is valid during the call.
using UseLogits = base::FunctionRef<void(size_t i, std::span<const float> logits)>;

// Computes `text` as a chain after sequence 0 and `last`, the token that is to be committed next,
// and commits all but the text's own last token. Calls `use` for i = 0, 1, ... A row's outputs do
// not depend on the rows beside it (engine/session.h), so these are the bits of plain decoding.
// Text and last token fit into the session; what `use` throws leaves the rows before it committed.
void forced_logits(engine::Session& session, int32_t last, std::span<const int32_t> text,
                   UseLogits use);

}  // namespace evalrun::runners
