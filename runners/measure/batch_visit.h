// What goes through one call of decode_batch(): conversations in their order, each in the slot that
// is free first, where its further turns stay. Generations are handed over as their conversations
// end; fillers keep slots busy and are thrown away.
#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/base/clock.h"
#include "engine/device_time.h"
#include "engine/session.h"
#include "methods/decode_batch.h"
#include "results/records.h"
#include "runners/measure/generation.h"
#include "runners/measure/open_conversation.h"
#include "runners/plan/plan.h"

namespace evalrun::runners {

struct BatchMember {
  Visit visit;
  bool wanted = true;  // false: a filler
};

class BatchVisit final : public methods::BatchSource {
 public:
  struct Hooks {
    // The row of a visit that begins now, without what is measured.
    std::function<results::GenerationRecord(const Visit&)> record;
    // Takes a wanted generation that has ended, well or not. What it throws ends the call.
    std::function<void(const Visit&, results::GenerationRecord)> ended;
    // Plain decoding's answers, for a method that needs them; no hook or null: it has none.
    std::function<const Answers*(const Visit&)> known = {};
    // Who takes a free slot when all members have been given one; null: nobody.
    std::function<Visit()> filler = {};
    std::function<bool()> stop = {};  // true: what has not ended is abandoned
  };

  // All must outlive the object. `session` has a sequence per slot.
  BatchVisit(const RunPlan& plan, const Conversation& conversation, base::Clock& clock,
             const engine::Session& session, std::vector<BatchMember> members, Hooks hooks);
  ~BatchVisit() override;

  const methods::TurnRequest* next(int slot) override;
  void done(int slot, results::TurnRecord turn) override;
  // Nothing is wanted any more, a stop request, or `ended` threw.
  bool over() const override;

  bool begun() const { return given_ > 0; }
  // After a call that threw: what was under way has failed. What was not begun is left.
  void fail(const std::exception& why);
  std::vector<BatchMember> take_waiting();
  // Wanted ones that have not ended.
  int wanted_left() const { return wanted_left_; }
  // What `ended` threw, once more.
  void rethrow() const;

 private:
  struct Seat;  // what a slot has
  class Outside;

  std::unique_ptr<Seat> seat_next();
  void end(Seat& seat);
  // Forwards are of all that are under way: a miss counts for who ends next, not for each of them.
  void take_graph_misses(results::GenerationRecord& g);
  void end_failed(Seat& seat, const std::exception& why);
  void hand_over(Seat& seat);

  const RunPlan& plan_;
  const Conversation& conversation_;
  base::Clock& clock_;
  const engine::Session& session_;
  std::vector<BatchMember> members_;
  Hooks hooks_;
  size_t given_ = 0;  // of members_, to slots
  int wanted_left_ = 0;
  // Of the device so far, when a generation was described last.
  int64_t graph_misses_ = engine::device_time().graph_misses;
  int64_t outside_ns_ = 0;                    // so far, spent here
  int64_t batch_ns_ = 0;                      // the clock without it, when it came here last
  std::exception_ptr thrown_;                 // by `ended`
  std::vector<std::unique_ptr<Seat>> seats_;  // [slot], null = free
};

}  // namespace evalrun::runners
