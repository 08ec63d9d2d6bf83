#include "runners/measure/generation.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/devices.h"
#include "methods/registration.h"
#include "methods/replay.h"

namespace evalrun::runners {

methods::TurnRequest GenerationDecoder::turn_request(const PlannedPrompt& planned,
                                                     std::span<const int32_t> ids,
                                                     uint64_t seed) const {
  methods::TurnRequest request;
  request.prompt = ids;
  request.max_new = planned.max_new;
  if (!plan_.suite.ignore_eos) request.stop_ids = conversation_.stop_ids();
  request.sampling = plan_.suite.sampling;
  request.seed = seed;
  return request;
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
                                 results::GenerationRecord& g) {
  std::vector<int32_t> ids, previous = kept_prompt(session, method);
  std::optional<methods::StopText> stop_text =
      plan_.suite.ignore_eos ? std::nullopt : conversation_.stop_text(planned.prompt);
  for (size_t turn = 0; turn < planned.prompt.turns.size(); ++turn) {
    const int64_t begin = clock_.now_ns();
    ids = conversation_.encode(planned.prompt, conversation_.render(planned.prompt, g.texts));
    const int64_t encoded = clock_.now_ns();
    g.tokenize_ns += encoded - begin;
    methods::TurnRequest request =
        turn_request(planned, ids, turn == 0 ? g.seed : base::combine_seeds({g.seed, turn}));
    request.stop_text = stop_text ? &*stop_text : nullptr;
    if (turns_ != nullptr) request.before_step = [this] { turns_->before_step(); };
    // The last prompt token is always computed again: its logits give the first answer token.
    request.keep = std::min(common_prefix(previous, ids), static_cast<int>(ids.size()) - 1);
    g.turns.push_back(path == nullptr ? methods::decode_turn(method, session, request, clock_)
                                      : replay_turn(method, session, request, path->at(turn)));
    const int64_t decoded = clock_.now_ns();
    g.texts.push_back(conversation_.decode(g.turns.back().tokens));
    g.detokenize_ns += clock_.now_ns() - decoded;
    previous = ids;
  }
  if (turns_ == nullptr || path != nullptr) return;  // after a replay, gaps are measured in it
  holder_ = &session;
  held_ = std::move(previous);
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

Answers GenerationDecoder::plain_answers(const PlannedPrompt& planned, engine::Session& session) {
  const auto plain = methods::parse_method("ar").info->build({}, {});
  results::GenerationRecord g;
  converse(planned, session, *plain, nullptr, g);
  Answers answers;
  for (results::TurnRecord& turn : g.turns) answers.push_back(std::move(turn.tokens));
  return answers;
}

results::TurnRecord GenerationDecoder::warm_turn(const PlannedPrompt& planned, RunningArm& arm,
                                                 int max_new) {
  holder_ = nullptr;
  arm.session->reset();
  const std::vector<int32_t> ids =
      conversation_.encode(planned.prompt, conversation_.render(planned.prompt, {}));
  methods::TurnRequest request = turn_request(planned, ids, 0);
  request.max_new = max_new;
  request.stop_ids = {};
  return methods::decode_turn(*arm.method, *arm.session, request, clock_);
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
