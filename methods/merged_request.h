// The requests of several sequences as one forward.
#pragma once
#include <span>
#include <vector>

#include "engine/rows.h"

namespace evalrun::methods {

// Each part counts its rows from 0 and knows of no other. Whatever a forward has once must be the
// same in all parts that have it: prefix bank, low-rank updates, embeddings and distributions by
// address, sampling and skip set by value. InternalError where it is not: slots of one method share
// these by construction. Keeps its memory.
class MergedRequest {
 public:
  MergedRequest();
  void clear();
  // Whether the forward takes these rows, too.
  bool fits(const engine::ForwardRequest& part) const;
  // What `part` points to must outlive the forward. No part goes on from an earlier forward
  // (ForwardRequest::extend).
  void add(const engine::ForwardRequest& part, int sequence);

  // Where a part's answers stand: the arguments of engine::slice().
  struct Place {
    int first = 0, rows = 0;
    int first_drawn_token = 0, drawn_tokens = 0;  // of its DistributionDraws
  };
  const Place& place(size_t part) const { return places_[part]; }
  size_t parts() const { return places_.size(); }
  // Valid until something is added.
  engine::ForwardRequest request() const;

 private:
  void add_rows(const engine::ForwardRequest& part, int sequence);
  void add_dists(const engine::ForwardRequest& part, Place& place);

  engine::ForwardRequest common_;  // all but rows, draws and tests
  std::vector<engine::Row> rows_;
  std::vector<engine::DistributionDraw> draws_;
  std::vector<engine::RejectionTest> tests_;
  std::vector<Place> places_;
  int blocks_ = 0;        // numbers of blocks in use
  int drawn_tokens_ = 0;  // of all draws
};

}  // namespace evalrun::methods
