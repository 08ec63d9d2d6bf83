#include "engine/backend.h"

#include "engine/base/error.h"
#include "engine/rejection.h"

namespace evalrun::engine {

Scores Backend::best_of(Heads, InputView, int) {
  throw base::InternalError("this device finds no best tokens");
}

std::span<const int32_t> Backend::draw(Heads, InputView, const DistributionDraws&) {
  throw base::InternalError("this device draws no tokens");
}

std::unique_ptr<DistributionStore> Backend::make_distributions(int slots, int vocab,
                                                               std::span<const int32_t> ids) {
  return std::make_unique<HostDistributions>(slots, vocab, ids);
}

}  // namespace evalrun::engine
