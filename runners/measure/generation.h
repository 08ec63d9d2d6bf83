// One generation: a conversation decoded alone, turn by turn, in an arm's session, and what the
// machine did meanwhile. Batches: runners/measure/batch_visit.h.
#pragma once
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/clock.h"
#include "engine/device_time.h"
#include "engine/session.h"
#include "methods/decode_loop.h"
#include "methods/method.h"
#include "results/records.h"
#include "runners/endpoints/endpoint.h"
#include "runners/machine/gpu_state.h"
#include "runners/machine/machine_clock.h"
#include "runners/machine/processor_energy.h"
#include "runners/measure/replay_paths.h"
#include "runners/measure/turns.h"
#include "runners/plan/plan.h"

namespace evalrun::runners {

// An arm while it is measured. The session is its model's: other arms may have the same one.
struct RunningArm {
  const PlannedArm* planned = nullptr;
  engine::Session* session = nullptr;
  // The method's objects, one for each answer of a batch.
  std::vector<std::unique_ptr<methods::DecodingMethod>> slots;
  // Of an arm that is a server; it has neither session nor slots (endpoint_visit.h).
  std::unique_ptr<Endpoint> endpoint = {};

  int batch() const { return planned->record.batch; }
  methods::DecodingMethod& method() const { return *slots.front(); }
  std::vector<methods::DecodingMethod*> slot_methods() const;
  void build() { slots = methods::make_slots(planned->build(), batch()); }
};

// Its row says what happened and carries no half-measured numbers.
void mark_failed(results::GenerationRecord& g, const std::exception& e);

class GenerationDecoder {
 public:
  // All must outlive the decoder.
  // `turns`: asked before every step of what is measured; null without.
  GenerationDecoder(const RunPlan& plan, const Conversation& conversation, base::Clock& clock,
                    Turns* turns)
      : plan_(plan), conversation_(conversation), clock_(clock), turns_(turns) {}

  // All turns of one conversation from seed g.seed, made to follow `path` where there is one.
  // `known`: plain decoding's answers, for a method that needs them. Adds turns, texts and the
  // times of tokenising and detokenising, which are no decode times. Begins with an empty session;
  // in turns with another process, with what the session holds of the prompt (kept_prompt()).
  void converse(const PlannedPrompt& planned, engine::Session& session,
                methods::DecodingMethod& method, const Answers* path, results::GenerationRecord& g,
                const Answers* known = nullptr);
  // What plain decoding answers from this seed.
  Answers plain_answers(const PlannedPrompt& planned, engine::Session& session, uint64_t seed);
  // First turns alone, of as many prompts as the arm's batch has, to warm it up: their own lengths,
  // but no more than `max_new` tokens, whatever they are.
  std::vector<results::TurnRecord> warm_turns(std::span<const PlannedPrompt* const> prompts,
                                              RunningArm& arm, int max_new);
  bool in_turns() const { return turns_ != nullptr; }

 private:
  // The tokens that the session still holds and a conversation may begin with; empties the session
  // where there are none. In turns only decoding is judged, and every method of a prompt would read
  // that prompt again: a quarter of the time. Its bits do not depend on who read it.
  std::vector<int32_t> kept_prompt(engine::Session& session, const methods::DecodingMethod& method);
  // What an arm that needs answers is to know in the warm-up, by request; of others nothing.
  Answers warm_answers(std::span<const methods::TurnRequest> requests, RunningArm& arm);
  results::TurnRecord replay_turn(methods::DecodingMethod& method, engine::Session& session,
                                  const methods::TurnRequest& request,
                                  const std::vector<int32_t>& answer) const;

  const RunPlan& plan_;
  const Conversation& conversation_;
  base::Clock& clock_;
  Turns* turns_;
  // The prompt of the last conversation in turns, and the session that holds it.
  const engine::Session* holder_ = nullptr;
  std::vector<int32_t> held_;
};

// Looks at the machine before a generation and after it.
class MachineWatch {
 public:
  // Processor time of the process it takes turns with is not that of others.
  explicit MachineWatch(const engine::Session& session, const Turns* turns);
  // Fills in clock and GPU of what was measured since.
  void describe(results::GenerationRecord& g) const;

 private:
  const engine::SessionOptions& options_;
  std::optional<engine::cuda::GpuSample> gpu_;
  engine::DeviceTime busy_;
  MachineCounters counters_;
  EnergyReading energy_;  // none on a GPU, or beside another process in turns
  const Turns* turns_;
  int64_t other_build_ns_;
};

}  // namespace evalrun::runners
