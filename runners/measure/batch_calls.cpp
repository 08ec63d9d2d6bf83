#include "runners/measure/batch_calls.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "runners/plan/waves.h"

namespace evalrun::runners {
namespace {

bool any_wanted(const std::vector<BatchMember>& members) {
  return std::any_of(members.begin(), members.end(),
                     [](const BatchMember& member) { return member.wanted; });
}

Visit with_prompt(Visit visit, int prompt) {
  visit.prompt = prompt;
  return visit;
}

}  // namespace

std::vector<BatchCall> pending_calls(const RunPlan& plan, std::span<const Visit* const> visits) {
  const Visit& first = *visits.front();
  const int wave = wave_of(plan, first);
  const auto pending = [&](int prompt) {
    return std::any_of(visits.begin(), visits.end(),
                       [prompt](const Visit* v) { return v->prompt == prompt; });
  };
  std::vector<BatchCall> calls;
  for (const BatchGroup& group : batch_groups(plan, first.arm, wave)) {
    BatchCall call;
    call.mode = plan.suite.batches.mode;
    const auto n = static_cast<int>(group.prompts.size());
    for (int i = 0; i < n; ++i) {
      const int prompt = group.prompts[static_cast<size_t>(i)];
      call.members.push_back({with_prompt(first, prompt), i < group.n_stored && pending(prompt)});
    }
    if (!any_wanted(call.members)) continue;
    if (call.mode == methods::BatchMode::kContinuous)
      call.filler = [&plan, first, wave, k = n - group.n_stored]() mutable {
        return with_prompt(first, filler_prompt(plan, wave, k++));
      };
    calls.push_back(std::move(call));
  }
  return calls;
}

std::vector<int> prompts_of_calls(const RunPlan& plan, const Visit& visit) {
  std::vector<int> prompts;
  for (const BatchGroup& group : batch_groups(plan, visit.arm, wave_of(plan, visit)))
    prompts.insert(prompts.end(), group.prompts.begin(), group.prompts.end());
  if (plan.suite.batches.mode != methods::BatchMode::kContinuous) return prompts;
  // Fillers go on through the whole data set.
  const std::string& task = plan.prompts[static_cast<size_t>(visit.prompt)].record.task;
  for (size_t p = 0; p < plan.prompts.size(); ++p)
    if (plan.prompts[p].record.task == task) prompts.push_back(static_cast<int>(p));
  return prompts;
}

bool decode_call(const RunPlan& plan, const Conversation& conversation, base::Clock& clock,
                 RunningArm& arm, const BatchCall& call,
                 const std::function<BatchVisit::Hooks()>& begin) {
  std::vector<BatchMember> waiting = call.members;
  while (any_wanted(waiting)) {
    arm.session->reset();
    BatchVisit::Hooks hooks = begin();
    hooks.filler = call.filler;
    BatchVisit visit(plan, conversation, clock, *arm.session, std::move(waiting), std::move(hooks));
    bool threw = false;
    try {
      methods::decode_batch(arm.slot_methods(), *arm.session, visit, call.mode, clock);
    } catch (const base::DeviceFault&) {
      throw;
    } catch (const std::exception& e) {
      if (!visit.begun()) throw;
      threw = true;
      visit.fail(e);
      arm.build();  // the old objects may be in any state
    }
    visit.rethrow();
    if (!threw) return visit.wanted_left() == 0;
    waiting = visit.take_waiting();
  }
  return true;
}

}  // namespace evalrun::runners
