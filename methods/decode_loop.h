// One turn of one sequence: the batch of one (methods/decode_batch.h).
#pragma once
#include "methods/decode_batch.h"
#include "methods/method.h"
#include "methods/open_turn.h"

namespace evalrun::methods {

// Runs one turn in sequence 0: rewinds it to `keep`, prefills, decodes. Afterwards it holds the
// prompt and what the steps committed, which may go past the last token returned. Throws
// usage_error when the prompt does not fit the session, or sampling parameters make no sense.
results::TurnRecord decode_turn(DecodingMethod& method, engine::Session& target,
                                const TurnRequest& request, base::Clock& clock);

}  // namespace evalrun::methods
