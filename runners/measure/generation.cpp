#include "runners/measure/generation.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "engine/devices.h"
#include "methods/registration.h"
#include "methods/replay.h"
#include "runners/measure/open_conversation.h"

namespace evalrun::runners {

std::vector<methods::DecodingMethod*> RunningArm::slot_methods() const {
  std::vector<methods::DecodingMethod*> objects;
  for (const auto& slot : slots) objects.push_back(slot.get());
  return objects;
}

void mark_failed(results::GenerationRecord& g, const std::exception& e) {
  const std::string what = e.what();
  g.status = "failed: " + what.substr(0, what.find('\n'));
  g.turns.clear();
  g.texts.clear();
}

std::vector<int32_t> GenerationDecoder::kept_prompt(engine::Session& session,
                                                    const methods::DecodingMethod& method) {
  std::vector<int32_t> tokens;
  // Features are kept from the prefill on: whoever reads them reads the prompt itself.
  const bool keeps = turns_ != nullptr && holder_ == &session && method.needs().empty();
  if (keeps) tokens = std::move(held_);
  holder_ = nullptr;  // until the conversation has ended well
  held_.clear();
  for (int i = keeps ? 1 : 0; i < session.options().n_sequences; ++i) session.rewind(0, i);
  return tokens;
}

void GenerationDecoder::converse(const PlannedPrompt& planned, engine::Session& session,
                                 methods::DecodingMethod& method, const Answers* path,
                                 results::GenerationRecord& g, const Answers* known) {
  OpenConversation open(plan_, conversation_, planned, clock_, g, kept_prompt(session, method),
                        known);
  while (!open.ended()) {
    methods::TurnRequest request = open.next();
    if (turns_ != nullptr) request.before_step = [this] { turns_->before_step(); };
    open.take(path == nullptr ? methods::decode_turn(method, session, request, clock_)
                              : replay_turn(method, session, request, path->at(g.turns.size())));
  }
  if (turns_ == nullptr || path != nullptr) return;  // after a replay, gaps are measured in it
  holder_ = &session;
  held_ = open.held();
}

results::TurnRecord GenerationDecoder::replay_turn(methods::DecodingMethod& method,
                                                   engine::Session& session,
                                                   const methods::TurnRequest& request,
                                                   const std::vector<int32_t>& answer) const {
  const methods::Replay replay(method, answer);
  results::TurnRecord turn = methods::decode_turn(method, session, request, clock_);
  EVALRUN_CHECK(turn.tokens == answer, "a replay left its text");
  turn.asked = replay.trace().asked;
  for (const methods::Disagreement& d : replay.trace().disagreements)
    turn.divergences.push_back(
        {d.index, answer[static_cast<size_t>(d.index)], d.found, std::nullopt, 0});
  return turn;
}

Answers GenerationDecoder::plain_answers(const PlannedPrompt& planned, engine::Session& session,
                                         uint64_t seed) {
  const auto plain = methods::parse_method("ar").info->build({}, {});
  results::GenerationRecord g;
  g.seed = seed;
  converse(planned, session, *plain, nullptr, g);
  Answers answers;
  for (results::TurnRecord& turn : g.turns) answers.push_back(std::move(turn.tokens));
  return answers;
}

Answers GenerationDecoder::warm_answers(std::span<const methods::TurnRequest> requests,
                                        RunningArm& arm) {
  Answers known;
  if (!arm.planned->needs_answer) return known;
  const auto plain = methods::parse_method("ar").info->build({}, {});
  for (const methods::TurnRequest& request : requests)
    known.push_back(methods::decode_turn(*plain, *arm.session, request, clock_).tokens);
  arm.session->reset();
  return known;
}

std::vector<results::TurnRecord> GenerationDecoder::warm_turns(
    std::span<const PlannedPrompt* const> prompts, RunningArm& arm, int max_new) {
  holder_ = nullptr;
  arm.session->reset();
  std::vector<std::vector<int32_t>> ids;
  std::vector<methods::TurnRequest> requests;
  ids.reserve(prompts.size());  // requests point into them
  for (const PlannedPrompt* planned : prompts) {
    ids.push_back(conversation_.encode(planned->prompt, conversation_.render(planned->prompt, {})));
    requests.push_back(turn_request(plan_.suite, conversation_, *planned, ids.back(), 0));
    requests.back().max_new = std::min(planned->max_new, max_new);
    requests.back().stop_ids = {};
  }
  const Answers known = warm_answers(requests, arm);
  for (size_t i = 0; i < known.size(); ++i) requests[i].known_answer = known[i];
  std::vector<results::TurnRecord> turns(prompts.size());
  methods::RequestList list(requests, [&](size_t request, results::TurnRecord turn) {
    turns[request] = std::move(turn);
  });
  methods::decode_batch(arm.slot_methods(), *arm.session, list, methods::BatchMode::kStatic,
                        clock_);
  return turns;
}

MachineWatch::MachineWatch(const engine::Session& session, const Turns* turns)
    : options_(session.options()),
      gpu_(sample_gpu(options_.device)),
      busy_(engine::device_time()),
      counters_(read_machine_counters()),
      energy_(engine::is_gpu(options_.device) || turns != nullptr ? EnergyReading{}
                                                                  : read_energy()),
      turns_(turns),
      other_build_ns_(turns == nullptr ? 0 : turns->other_ns()) {}

void MachineWatch::describe(results::GenerationRecord& g) const {
  g.clock = clock_between(counters_, read_machine_counters());
  if (g.clock && turns_ != nullptr)
    g.clock->others_ns =
        std::max<int64_t>(0, g.clock->others_ns - (turns_->other_ns() - other_build_ns_));
  const auto gpu = sample_gpu(options_.device);
  std::optional<results::GpuBusy> busy;
  if (options_.time_device) busy = busy_between(busy_, engine::device_time());
  g.gpu = gpu_between(gpu_, gpu, busy);
  if (!g.clock) return;
  g.clock->device_mhz = gpu ? gpu->sm_mhz : processor_mhz();
  if (!energy_.domains.empty()) g.clock->energy_mj = energy_between_mj(energy_, read_energy());
}

}  // namespace evalrun::runners
