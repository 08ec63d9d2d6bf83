#include "methods/step.h"

#include "engine/base/error.h"

namespace evalrun::methods {

void commit_paths(engine::Session& session, std::span<const SequencePath> paths) {
  for (const SequencePath& p : paths) session.commit(p.path, p.sequence);
}

StepRunner::StepRunner(engine::Session& target, int members) : target_(target) {
  const auto n = static_cast<size_t>(members);
  requests_.reserve(n);
  parts_.reserve(n);
  paths_.reserve(n);
  path_rows_.reserve(engine::kMaxRows);
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
  commit_paths(target_, paths_);
  timer.enter(PhaseTimer::kDraft);
  for (size_t i = 0; i < n; ++i) members[i].method->read_side_rows(parts_[i]);
  return n;
}

void StepRunner::run(std::span<BatchMember> members, PhaseTimer& timer) {
  EVALRUN_CHECK(!members.empty(), "a step of nobody");
  timer.enter(PhaseTimer::kDraft);
  for (BatchMember& m : members) m.method->begin_step();
  timer.enter(PhaseTimer::kVerify);
  requests_.clear();
  for (BatchMember& m : members) requests_.push_back(m.method->rows());
  const std::span<const engine::ForwardRequest> requests = requests_;
  for (size_t done = 0; done < members.size();) {
    if (done > 0) timer.enter(PhaseTimer::kVerify);
    done += run_forward(members.subspan(done), requests.subspan(done), timer);
  }
  for (BatchMember& m : members) m.outcome = m.method->finish_step();
  timer.enter(PhaseTimer::kOther);
  members.front().method->after_step(timer);  // once, whatever the batch
}

StepOutcome run_alone(DecodingMethod& method, engine::Session& target, PhaseTimer& timer) {
  StepRunner runner(target, 1);
  BatchMember member{&method};
  timer.begin_step();
  runner.run({&member, 1}, timer);
  timer.end_step();
  return member.outcome;
}

}  // namespace evalrun::methods
