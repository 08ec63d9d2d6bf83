// One step: every member of a batch drafts, one forward of the target verifies all drafts, every
// member accepts its own, and all paths are committed. Decoding one sequence is the batch of one.
//
// Drafters with forwards of their own draft together: a step has as many of these as its longest
// draft, each with the rows of all members that still draft.
//
// The rows of a forward do not depend on each other (engine/session.h), so a member's tokens are
// those that it would have alone.
#pragma once
#include <span>
#include <vector>

#include "engine/session.h"
#include "methods/merged_request.h"
#include "methods/method.h"

namespace evalrun::methods {

struct BatchMember {
  DecodingMethod* method = nullptr;
  int sequence = 0;          // of the target's session
  StepOutcome outcome = {};  // of the last step; valid until the method's next call
};

// Takes steps with one target; keeps its memory between them.
class StepRunner {
 public:
  // For at most `members` at once. The target must outlive the object.
  StepRunner(engine::Session& target, int members);
  // Fills in the outcomes; returns the rows of the target's forwards. Time goes to the phases of
  // `timer`, between its begin_step() and end_step(). More rows than a forward takes are verified
  // in several, each with whole members. InternalError where requests of members contradict each
  // other (methods/merged_request.h).
  int run(std::span<BatchMember> members, PhaseTimer& timer);

 private:
  void draft(std::span<BatchMember> members);
  void draft_together(std::span<BatchMember> members, DraftGroup* group);
  // Verifies and commits as many members from the first on as one forward takes; returns how many.
  // `requests`: theirs.
  size_t run_forward(std::span<BatchMember> members,
                     std::span<const engine::ForwardRequest> requests, PhaseTimer& timer);

  engine::Session& target_;
  MergedRequest merged_;
  std::vector<DecodingMethod*> drafting_;         // members whose draft is not complete
  std::vector<engine::ForwardRequest> requests_;  // [member]
  std::vector<engine::ForwardResult> parts_;      // [member of the forward]
  std::vector<int> path_rows_;                    // of all paths in turn, as the forward counts
  std::vector<engine::SequencePath> paths_;
};

// One step of one method, for tests and benchmarks: the timer is begun and ended here.
StepOutcome run_alone(DecodingMethod& method, engine::Session& target, PhaseTimer& timer);
// A whole draft of one drafter, for tests. `tree` has its root.
void draft_alone(Drafter& drafter, std::span<const int32_t> sequence, int max_depth,
                 TokenTree& tree);

}  // namespace evalrun::methods
