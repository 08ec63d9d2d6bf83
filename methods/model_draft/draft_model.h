// The drafting model of all slots of a method: one session, one forward for the rows of all of
// them.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "engine/session.h"
#include "methods/merged_request.h"
#include "methods/method.h"
#include "methods/slot_dists.h"

namespace evalrun::methods {

class DraftModel final : public DraftGroup {
 public:
  // `session` has a sequence for each slot; null: the target's session drafts, each slot in the
  // target's own sequence.
  DraftModel(std::unique_ptr<engine::Session> session, int slots)
      : own_(std::move(session)), slots_(slots), dists_(slots) {}

  engine::Session* own() const { return own_.get(); }
  int slots() const { return slots_; }
  SlotDists& dists() { return dists_; }

  int room() const override { return engine::kMaxRows / kMostRows; }
  void begin() override;
  // A chain of at most kMostRows rows (the last draft's tokens that are new to the session), which
  // is committed. Returns the number of its part.
  static constexpr int kMostRows = 8;
  size_t add(engine::Session& session, const engine::ForwardRequest& chain, int sequence);
  void run() override;
  // Valid until the session's next forward, prefill or product.
  engine::ForwardResult part(size_t number) const;

 private:
  const std::unique_ptr<engine::Session> own_;
  const int slots_;
  SlotDists dists_;
  engine::Session* session_ = nullptr;  // of what is staged
  MergedRequest merged_;
  std::vector<int> sequences_;  // [part]
  engine::ForwardResult result_;
  bool ran_ = false;
  std::vector<int> rows_;
  std::vector<engine::SequencePath> paths_;
};

}  // namespace evalrun::methods
