// Whether a device can hold what a plan's batches need.
#pragma once
#include "runners/plan/plan.h"

namespace evalrun::runners {

// What a method that was built for one slot will keep with 1..batch of them, of sequences of
// `capacity` tokens. Allocates nothing.
KeptByArm kept_by(const methods::DecodingMethod& of_one, int batch, int capacity);

// "at most 302 MB of 'pia:persist=true'": what grows with texts. "" = nothing.
std::string grown_text(const PlannedArm& arm);

// Refuses a plan (usage_error, with the largest batch that fits, and the arm that asks for most)
// that needs more than `available_bytes` of its device:
// - a session for each model, with as many sequences as the largest batch has, and what it computes
//   in while their prompts are read together; on a GPU with the weights that are not there yet;
// - what methods keep, each arm of each size its own (PlannedArm::kept), all of them at once;
// - features of the target's tokens, of the arm that has most of them kept. They lie in the host's
//   memory: not counted on a GPU.
// What grows with texts is not counted: seldom is it as much as it may become. The message says how
// much that is, by method. `session`: that of the plan
// (planned_session()). Not of batches of one: there the sessions themselves refuse.
void check_batch_memory(const RunPlan& plan, const engine::SessionOptions& session,
                        double available_bytes);

}  // namespace evalrun::runners
