// A draft model distilled from the target (scripts/train draft): the target's embedding, a few
// decoder layers of its own, a head over frequent tokens.
#pragma once
#include <memory>
#include <vector>

#include "methods/heads/adapter.h"

namespace evalrun::methods {

struct TrainedDraft {
  std::shared_ptr<const engine::Model> model;
  std::vector<int32_t> ids;  // of its outputs; empty = the target's
  size_t extra_bytes = 0;    // that it adds to the target's weights
};
TrainedDraft open_trained_draft(AdapterReader& reader, const engine::Model& target,
                                engine::WeightStorage storage);

}  // namespace evalrun::methods
