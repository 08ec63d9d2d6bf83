#include "methods/step.h"

#include <algorithm>

#include "engine/base/error.h"

namespace evalrun::methods {

StepRunner::StepRunner(engine::Session& target, int members) : target_(target) {
  const auto n = static_cast<size_t>(members);
  drafting_.reserve(n);
  requests_.reserve(n);
  parts_.reserve(n);
  paths_.reserve(n);
  path_rows_.reserve(engine::kMaxRows);
}

void StepRunner::draft(std::span<BatchMember> members) {
  DraftGroup* const group = members.front().method->group();
  for (BatchMember& m : members) {
    m.method->begin_step();
    EVALRUN_CHECK(m.method->group() == group, "members of one batch that draft in two groups");
  }
  // As few turns as there must be, of equal size.
  const size_t n = members.size();
  const size_t room = group == nullptr ? n : static_cast<size_t>(std::max(group->room(), 1));
  const size_t turns = (n + room - 1) / room;
  for (size_t t = 0, begin = 0; t < turns; ++t) {
    const size_t end = n * (t + 1) / turns;
    draft_together(members.subspan(begin, end - begin), group);
    begin = end;
  }
}

void StepRunner::draft_together(std::span<BatchMember> members, DraftGroup* group) {
  if (group != nullptr) group->begin();
  drafting_.clear();
  for (BatchMember& m : members) drafting_.push_back(m.method);
  while (true) {
    size_t staged = 0;
    for (DecodingMethod* method : drafting_)
      if (method->stage()) drafting_[staged++] = method;
    drafting_.resize(staged);
    if (staged == 0) return;
    EVALRUN_CHECK(group != nullptr, "a draft by forwards, and nobody to run them");
    group->run();
    for (DecodingMethod* method : drafting_) method->take();
  }
}

size_t StepRunner::run_forward(std::span<BatchMember> members,
                               std::span<const engine::ForwardRequest> requests,
                               PhaseTimer& timer) {
  merged_.clear();
  size_t n = 0;
  for (; n < members.size() && (n == 0 || merged_.fits(requests[n])); ++n)
    merged_.add(requests[n], members[n].sequence);
  const engine::ForwardResult result = target_.forward(merged_.request());
  parts_.clear();
  paths_.clear();
  path_rows_.clear();
  for (size_t i = 0; i < n; ++i) {
    const MergedRequest::Place& place = merged_.place(i);
    parts_.push_back(
        slice(result, place.first, place.rows, place.first_drawn_token, place.drawn_tokens));
    const size_t begin = path_rows_.size();
    const std::span<const int> path = members[i].method->accept(parts_.back());
    EVALRUN_CHECK(path.size() <= static_cast<size_t>(place.rows), "a path of {} of {} rows",
                  path.size(), place.rows);  // so path_rows_ does not move
    for (const int row : path) path_rows_.push_back(place.first + row);
    paths_.push_back({members[i].sequence, std::span<const int>(path_rows_).subspan(begin)});
  }
  timer.enter(PhaseTimer::kCommit);
  target_.commit(paths_);
  timer.enter(PhaseTimer::kDraft);
  for (size_t i = 0; i < n; ++i) members[i].method->read_side_rows(parts_[i]);
  return n;
}

int StepRunner::run(std::span<BatchMember> members, PhaseTimer& timer) {
  EVALRUN_CHECK(!members.empty(), "a step of nobody");
  timer.enter(PhaseTimer::kDraft);
  draft(members);
  timer.enter(PhaseTimer::kVerify);
  requests_.clear();
  for (BatchMember& m : members) requests_.push_back(m.method->rows());
  const std::span<const engine::ForwardRequest> requests = requests_;
  size_t rows = 0;
  for (const engine::ForwardRequest& request : requests) rows += request.rows.size();
  for (size_t done = 0; done < members.size();) {
    if (done > 0) timer.enter(PhaseTimer::kVerify);
    done += run_forward(members.subspan(done), requests.subspan(done), timer);
  }
  for (BatchMember& m : members) m.outcome = m.method->finish_step();
  timer.enter(PhaseTimer::kOther);
  members.front().method->after_step(timer);  // once, whatever the batch
  return static_cast<int>(rows);
}

StepOutcome run_alone(DecodingMethod& method, engine::Session& target, PhaseTimer& timer) {
  StepRunner runner(target, 1);
  BatchMember member{&method};
  timer.begin_step();
  runner.run({&member, 1}, timer);
  timer.end_step();
  return member.outcome;
}

void draft_alone(Drafter& drafter, std::span<const int32_t> sequence, int max_depth,
                 TokenTree& tree) {
  drafter.draft(sequence, max_depth, tree);
  DraftGroup* const group = drafter.group();
  if (group != nullptr) group->begin();
  while (drafter.stage(tree)) {
    EVALRUN_CHECK(group != nullptr, "a draft by forwards, and nobody to run them");
    group->run();
    drafter.take(tree);
  }
}

}  // namespace evalrun::methods
