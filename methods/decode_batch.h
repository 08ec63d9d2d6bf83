// The one decode loop: prompts are prefilled, first tokens read, steps taken, ended turns handed
// over, for as many sequences at once as a method has slots. The same for every method, AR
// included; decode_turn() (methods/decode_loop.h) is the batch of one.
//
// Each sequence gives the tokens that it gives alone, seed for seed: rows of a forward do not
// depend on each other, and random numbers belong to places of an answer. So do its steps, where
// the method says that they are the same in every run (StepReproducibility::kFixed).
//
// Times of a turn are its share of the batch's. All time while there is a sequence
// belongs to somebody, and the shares add up to it (to the nanosecond):
// - prefill_ns: prompts that are read together share by their numbers of tokens, their first tokens
//   included;
// - draft_prefill_ns: its own DecodingMethod::start;
// - decode_ns, and the phases of its steps: those that take part in a step have equal parts of it,
//   and of the loop's own work before it.
// So tokens over shares is the throughput of the batch, whatever took part when. What a sequence
// had to wait is told as well: TurnRecord::batch, where there is more than one slot.
//
// Not on any clock is what the source does with turns (next(), done()): reading, storing, scoring.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "methods/method.h"
#include "methods/open_turn.h"
#include "results/records.h"

namespace evalrun::methods {

enum class BatchMode {
  kStatic,      // all slots start together; the batch shrinks as they end, then the next one starts
  kContinuous,  // a slot whose turn has ended takes the next one at the next step
};

struct BatchPart {
  int slot = 0;
  int rows = 0;     // of the target's forward
  int emitted = 0;  // tokens kept
};

// One step of a batch.
struct BatchStep {
  int64_t draft_ns = 0, verify_ns = 0, commit_ns = 0, other_ns = 0;
  int64_t ns = 0;                         // with the loop's own work before it
  int rows = 0;                           // of the target's forwards: of one, unless it takes fewer
  int emitted = 0;                        // tokens kept, of all members
  std::span<const BatchPart> parts = {};  // of those that took part; valid during the call
};

// Gives turns to slots and takes their records.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // The next turn for a free slot; null = none, or none yet: asked again before the next step
  // (static: before the next batch). A turn that keeps something (TurnRequest::keep) is given to
  // the slot that had the turn before it. Stays as it is until done(). All turns of a batch sample
  // alike.
  virtual const TurnRequest* next(int slot) = 0;
  // A turn has ended. At once, whatever becomes of the others.
  virtual void done(int slot, results::TurnRecord turn) = 0;
  // Before every step. The clock must stand still meanwhile. What it throws ends the batch: turns
  // that are not done are lost.
  virtual void before_step() {}
  // Whether the batch may end although slots are busy. Their turns are lost.
  virtual bool over() const { return false; }
  // On the clock: costs what it costs.
  virtual void stepped(const BatchStep& /*step*/) {}
};

// `slots`: the same method for each (DecodingMethod::another()); slot s decodes in sequence s of
// the target. Ends where no slot is busy and there is no turn for any.
//
// A continuous batch prefills one piece of one prompt between two steps, in the order of admission.
// Pieces are whole chunks of Session::prefill(), so that a prompt is read by the same calls as
// alone. Where nothing is decoded yet all prompts are prefilled first.
//
// Throws what a request is refused for (OpenTurn), and what the source or a method throws.
void decode_batch(std::span<DecodingMethod* const> slots, engine::Session& target,
                  BatchSource& source, BatchMode mode, base::Clock& clock);

// Turns that are known beforehand, in their order; each goes to the slot that is free first.
class RequestList final : public BatchSource {
 public:
  using OnDone = std::function<void(size_t request, results::TurnRecord turn)>;
  // The requests must outlive the object.
  RequestList(std::span<const TurnRequest> requests, OnDone on_done)
      : requests_(requests), on_done_(std::move(on_done)) {}
  const TurnRequest* next(int slot) override;
  void done(int slot, results::TurnRecord turn) override;
  // Which request a busy slot has.
  size_t request_of(int slot) const { return of_slot_[static_cast<size_t>(slot)]; }

 private:
  std::span<const TurnRequest> requests_;
  OnDone on_done_;
  size_t next_ = 0;
  std::vector<size_t> of_slot_;
};

// A method and another() of it for each further slot of `n`.
std::vector<std::unique_ptr<DecodingMethod>> make_slots(std::unique_ptr<DecodingMethod> first,
                                                        int n);

}  // namespace evalrun::methods
