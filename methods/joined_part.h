// One of the drafters whose drafts are joined (methods/joined_draft.h), and what is known of it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "methods/draft_bandit.h"
#include "methods/draft_choice.h"
#include "methods/idle_backoff.h"
#include "methods/joined_tree.h"
#include "methods/method.h"

namespace evalrun::methods {

struct JoinedPart {
  std::unique_ptr<Drafter> drafter;
  bool dear = false;            // drafts by forwards
  double cost = 0;              // of a forward of one row, in plain steps of the target
  std::vector<int> draft_rows;  // of each forward at most
  Acceptance acceptance;
  WatchedDraft watched;
  IdleBackoff backoff;  // of a look-up
  HeldPlan held;        // for mode=bandit
  // What its drafts brought and took lately: tokens, nodes that paid, forwards.
  double gain = 0, nodes = 0, forwards = 0;
  size_t last_text = 0;  // tokens of the text when it drafted last
  int interval = 1;      // tokens until it is tried although it does not pay
  bool tried = false;    // in this answer
  // Of this step.
  RatedDraft draft;
  std::vector<int> node_of;  // [node of draft], of the joined tree
  bool drafted = false;
  bool joins = false;     // its draft is a part of the joined tree
  bool drafting = false;  // by forwards, and not complete
  bool staged = false;
  int ran = 0, lag = 1;  // forwards; tokens since its last draft
  SideRows side;
  int first_side = 0;
  std::vector<int> path;

  void own(std::unique_ptr<Drafter> drafter);
  // `context`: as its drafter gets it.
  void start(const GenerationContext& context);
  // Of a draft that takes so many forwards, in plain steps; what went by without a draft is
  // computed first. 0 for look-ups.
  double cost_of(double forwards, const RowPrice& price) const;
  // Its complete draft becomes a part of `tree`.
  void join(JoinedTree& tree);
  // Told what of its draft was accepted: the longest beginning of the accepted path that it has
  // drafted, in its own nodes. What followed that in the text is its next root; it catches up where
  // the text went on without it. `place`: [joined node] its place on the path, from 1; 0 = none.
  // `path`: tokens of the path. `bonus`: the token after it.
  void tell(std::span<const int> place, std::span<const int32_t> path, int32_t bonus);
};

}  // namespace evalrun::methods
