// The forwards of drafters whose drafts are joined (methods/joined_draft.h).
#pragma once
#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "methods/method.h"

namespace evalrun::methods {

// The forwards of several parts, part by part: all slots end with one before any begins the next.
// So the drafts of a part are staged together as without others, and nothing of the target's
// session lies between a forward and those that read it.
class JoinedGroup final : public DraftGroup {
 public:
  explicit JoinedGroup(std::vector<DraftGroup*> groups) : groups_(std::move(groups)) {}

  int room() const override {
    int room = engine::kMaxRows;
    for (const DraftGroup* group : groups_) room = std::min(room, group->room());
    return room;
  }
  void begin() override { begin_part(0); }
  void run() override {
    if (staged_ == 0) return begin_part(at_ + 1);
    staged_ = 0;
    groups_[at_]->run();
  }

  size_t at() const { return at_; }  // the part whose forwards run now
  bool last() const { return at_ + 1 == groups_.size(); }
  void note_staged() { ++staged_; }

 private:
  void begin_part(size_t at) {
    EVALRUN_CHECK(at < groups_.size(), "part {} of {} that draft by forwards", at, groups_.size());
    at_ = at;
    staged_ = 0;
    groups_[at_]->begin();
  }

  const std::vector<DraftGroup*> groups_;
  size_t at_ = 0;
  int staged_ = 0;  // slots
};

}  // namespace evalrun::methods
