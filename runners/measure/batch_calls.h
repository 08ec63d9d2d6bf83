// What is pending of a batch arm, call by call of decode_batch(). Here runs meet waves
// (runners/plan/waves.h).
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "engine/base/clock.h"
#include "methods/decode_batch.h"
#include "runners/measure/batch_visit.h"
#include "runners/measure/generation.h"
#include "runners/plan/plan.h"

namespace evalrun::runners {

struct BatchCall {
  std::vector<BatchMember> members;  // in the order in which slots take them
  methods::BatchMode mode = methods::BatchMode::kStatic;
  std::function<Visit()> filler = {};  // goes on after them; null: nothing does
};

// `visits`: pending ones of one block and arm. Calls of which nothing is pending are left out. The
// others are decoded whole, as in a run without interruption: what is stored already is a filler.
std::vector<BatchCall> pending_calls(const RunPlan& plan, std::span<const Visit* const> visits);

// Prompts that calls of this visit's wave and arm may meet, fillers among them; some may be there
// twice.
std::vector<int> prompts_of_calls(const RunPlan& plan, const Visit& visit);

// Decodes a call; `begin` is asked for its hooks. When a step throws, what was under way has failed
// and the rest goes on in a further call. False: a stop request cut it short. Throws a DeviceFault,
// and what Hooks::ended throws.
bool decode_call(const RunPlan& plan, const Conversation& conversation, base::Clock& clock,
                 RunningArm& arm, const BatchCall& call,
                 const std::function<BatchVisit::Hooks()>& begin);

}  // namespace evalrun::runners
