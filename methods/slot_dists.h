// Distributions of drawn drafts that stay on a device (engine/distributions.h): one store for all
// slots of a method, because a forward has one.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "engine/base/error.h"
#include "engine/session.h"

namespace evalrun::methods {

class SlotDists {
 public:
  explicit SlotDists(int slots) : slots_(slots) {}
  // Room for `each` distributions of every slot, as of Session::make_distributions(). Nothing
  // happens where there is room already on the session's device.
  void make(engine::Session& session, int each, int vocab, std::span<const int32_t> ids) {
    if (store_ != nullptr && each_ >= each && store_->device() == session.options().device) return;
    store_ = session.make_distributions(slots_ * each, vocab, ids);
    each_ = each;
  }
  engine::DistributionStore* store() const { return store_.get(); }
  int first(int slot) const {  // of a slot's distributions
    EVALRUN_CHECK(slot < slots_, "slot {}, built for {}", slot, slots_);
    return slot * each_;
  }

 private:
  const int slots_;
  int each_ = 0;
  std::unique_ptr<engine::DistributionStore> store_;
};

}  // namespace evalrun::methods
