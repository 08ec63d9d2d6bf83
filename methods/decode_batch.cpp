#include "methods/decode_batch.h"

#include <algorithm>
#include <optional>

#include "engine/base/error.h"
#include "engine/devices.h"
#include "methods/merged_request.h"
#include "methods/step.h"

namespace evalrun::methods {
namespace {

// Tokens of a piece: whole chunks of the target's prefill, which are 1,024 on a GPU (docs/gpu.md).
int prefill_piece(const engine::Session& target) {
  return engine::is_gpu(target.options().device) ? 4 * engine::kPrefillChunk
                                                 : engine::kPrefillChunk;
}

class BatchDecoder {
 public:
  BatchDecoder(std::span<DecodingMethod* const> methods, engine::Session& target,
               BatchSource& source, BatchMode mode, base::Clock& clock);
  void run();

 private:
  struct Slot {
    DecodingMethod* method = nullptr;
    int number = 0;
    enum class State { kFree, kPrefilling, kDecoding } state = State::kFree;
    std::optional<OpenTurn> turn = {};          // unless it is free
    std::span<const int32_t> to_prefill{};      // of the prompt, without its last token
    int64_t admitted = 0, first = 0, last = 0;  // times: of its first token, of its last ones
  };

  // Without the time that the source took.
  int64_t now() { return clock_.now_ns() - paused_ns_; }
  template <typename Use>
  auto off_the_clock(const Use& use);
  void admit();
  bool busy() const { return prefilling_.size() + decoding_.size() > 0; }
  void prefill_all();
  void prefill_piece_of_first();
  // Reads the first tokens of these slots, whose prompts are prefilled, and starts their methods.
  void begin_decoding(std::span<Slot* const> slots);
  void read_first_tokens(std::span<Slot* const> slots);
  void share_prefill(std::span<Slot* const> slots, int64_t end);
  void step();
  void hand_on(Slot& slot, int n);
  void finish(Slot& slot);

  engine::Session& target_;
  BatchSource& source_;
  const BatchMode mode_;
  base::Clock& clock_;
  const int piece_;
  PhaseTimer timer_;
  StepRunner runner_;
  MergedRequest merged_;
  int64_t paused_ns_ = 0;
  int64_t mark_ = 0;  // all time before it belongs to somebody
  int steps_ = 0;
  std::vector<Slot> slots_;
  std::vector<Slot*> prefilling_, decoding_;  // in the order in which they began
  std::vector<Slot*> ready_;                  // prefilled to the end
  std::vector<engine::Row> last_rows_;        // of the prompts of ready_
  std::vector<engine::SequenceTokens> bodies_;
  std::vector<int32_t> first_;
  std::vector<int> path_rows_;
  std::vector<engine::SequencePath> paths_;
  std::vector<BatchMember> members_;
  std::vector<BatchPart> parts_;
};

BatchDecoder::BatchDecoder(std::span<DecodingMethod* const> methods, engine::Session& target,
                           BatchSource& source, BatchMode mode, base::Clock& clock)
    : target_(target),
      source_(source),
      mode_(mode),
      clock_(clock),
      piece_(prefill_piece(target)),
      timer_(clock),
      runner_(target, static_cast<int>(methods.size())),
      slots_(methods.size()) {
  EVALRUN_CHECK(
      !methods.empty() && methods.size() <= static_cast<size_t>(target.options().n_sequences),
      "{} slots, a session of {} sequences", methods.size(), target.options().n_sequences);
  for (size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].method = methods[i];
    slots_[i].number = static_cast<int>(i);
  }
  const size_t n = methods.size();
  for (std::vector<Slot*>* list : {&prefilling_, &decoding_, &ready_}) list->reserve(n);
  last_rows_.reserve(n), bodies_.reserve(n), first_.reserve(n), path_rows_.reserve(n),
      paths_.reserve(n);
  members_.reserve(n), parts_.reserve(n);
  target_.keep_features(slots_.front().method->needs());
}

template <typename Use>
auto BatchDecoder::off_the_clock(const Use& use) {
  struct Pause {
    BatchDecoder& decoder;
    int64_t begin = decoder.clock_.now_ns();
    ~Pause() { decoder.paused_ns_ += decoder.clock_.now_ns() - begin; }
  };
  const Pause pause{*this};
  return use();
}

void BatchDecoder::run() {
  while (true) {
    admit();
    if (!busy()) return;
    while (busy()) {
      if (source_.over()) return;
      if (decoding_.empty())
        prefill_all();
      else if (!prefilling_.empty())
        prefill_piece_of_first();
      if (!decoding_.empty()) step();
      if (mode_ == BatchMode::kContinuous) admit();
    }
  }
}

void BatchDecoder::admit() {
  const bool idle = !busy();
  std::optional<int64_t> admitted;  // the same for all
  for (Slot& slot : slots_) {
    if (slot.state != Slot::State::kFree) continue;
    const TurnRequest* request = off_the_clock([&] { return source_.next(slot.number); });
    if (request == nullptr) continue;
    slot.turn.emplace(*request, target_, slot.number);
    engine::device_phase() = engine::DevicePhase::kPrefill;
    if (!admitted) admitted = now();
    slot.admitted = *admitted;
    target_.rewind(request->keep, slot.number);
    slot.to_prefill = slot.turn->body();
    slot.state = Slot::State::kPrefilling;
    prefilling_.push_back(&slot);
  }
  if (admitted && idle) mark_ = *admitted;
}

void BatchDecoder::prefill_all() {
  engine::device_phase() = engine::DevicePhase::kPrefill;
  bodies_.clear();
  for (const Slot* slot : prefilling_)
    if (!slot->to_prefill.empty()) bodies_.push_back({slot->number, slot->to_prefill});
  if (!bodies_.empty()) target_.prefill(bodies_);
  ready_.assign(prefilling_.begin(), prefilling_.end());
  prefilling_.clear();
  begin_decoding(ready_);
}

void BatchDecoder::prefill_piece_of_first() {
  Slot& slot = *prefilling_.front();
  engine::device_phase() = engine::DevicePhase::kPrefill;
  const int to_border = piece_ - target_.length(slot.number) % piece_;
  const auto piece =
      slot.to_prefill.first(std::min(slot.to_prefill.size(), static_cast<size_t>(to_border)));
  if (!piece.empty()) target_.prefill(piece, slot.number);
  slot.to_prefill = slot.to_prefill.subspan(piece.size());
  if (!slot.to_prefill.empty()) {
    Slot* const one = &slot;
    share_prefill({&one, 1}, now());
    return;
  }
  prefilling_.erase(prefilling_.begin());
  ready_.assign(1, &slot);
  begin_decoding(ready_);
}

// Commits the last token of each prompt and reads what follows it, by one forward.
void BatchDecoder::read_first_tokens(std::span<Slot* const> slots) {
  merged_.clear();
  last_rows_.clear();
  for (const Slot* slot : slots) {
    const TurnRequest& request = slot->turn->request();
    engine::Row row;
    row.token = request.prompt.back();
    row.top = request.sampling.greedy();
    row.logits = false;
    if (!row.top) row.uniform = slot->turn->chance().target(0);
    last_rows_.push_back(row);  // there is room: they do not move
    engine::ForwardRequest last;
    last.rows = {&last_rows_.back(), 1};
    last.sampling = &request.sampling;
    merged_.add(last, slot->number);
  }
  const engine::ForwardResult result = target_.forward(merged_.request());
  first_.clear();
  path_rows_.clear();
  paths_.clear();
  for (size_t i = 0; i < slots.size(); ++i) {
    first_.push_back(last_rows_[i].top ? result.top[i] : result.drawn[i]);
    path_rows_.push_back(static_cast<int>(i));
    paths_.push_back({slots[i]->number, {&path_rows_.back(), 1}});
  }
  target_.commit(paths_);
}

void BatchDecoder::share_prefill(std::span<Slot* const> slots, int64_t end) {
  const auto tokens = [](const Slot* slot) {
    return std::ssize(slot->turn->request().prompt) - slot->turn->request().keep;
  };
  int64_t before = 0, all = 0;
  for (const Slot* slot : slots) all += tokens(slot);
  for (Slot* slot : slots) {
    slot->turn->record().prefill_ns += share_of(end - mark_, before, tokens(slot), all);
    before += tokens(slot);
  }
  mark_ = end;
}

void BatchDecoder::begin_decoding(std::span<Slot* const> slots) {
  read_first_tokens(slots);
  const int64_t first = now();
  share_prefill(slots, first);
  for (size_t i = 0; i < slots.size(); ++i) {
    Slot& slot = *slots[i];
    slot.first = slot.last = first;
    slot.turn->note_first(first_[i]);
    if (slots_.size() > 1) slot.turn->note_batch(slot.number, first - slot.admitted);
    hand_on(slot, 1);
  }
  for (Slot* one : slots) {
    Slot& slot = *one;
    if (slot.turn->ended()) {
      finish(slot);
      continue;
    }
    engine::device_phase() = engine::DevicePhase::kDraftPrefill;
    slot.method->start(slot.turn->context(target_, slot.turn->record().tokens.front()));
    const int64_t ready = now();
    slot.turn->record().draft_prefill_ns = ready - mark_;
    mark_ = ready;
    slot.state = Slot::State::kDecoding;
    decoding_.push_back(&slot);
  }
}

void BatchDecoder::step() {
  members_.clear();
  for (const Slot* slot : decoding_) members_.push_back({slot->method, slot->number});
  source_.before_step();
  timer_.begin_step();
  BatchStep record;
  record.rows = runner_.run(members_, timer_);
  const int64_t end = timer_.end_step() - paused_ns_;
  const StepTimes times(timer_);
  record.draft_ns = times.draft_ns;
  record.verify_ns = times.verify_ns;
  record.commit_ns = times.commit_ns;
  record.other_ns = times.other_ns;
  record.ns = end - mark_;
  parts_.clear();
  const int n = static_cast<int>(decoding_.size());
  for (int i = 0; i < n; ++i) {
    Slot& slot = *decoding_[static_cast<size_t>(i)];
    const StepOutcome& outcome = members_[static_cast<size_t>(i)].outcome;
    const int emitted = slot.turn->note_step(outcome, times.share(i, n));
    slot.turn->record().decode_ns += share_of(record.ns, i, 1, n);
    record.emitted += emitted;
    parts_.push_back({slot.number, outcome.rows, emitted});
  }
  if (slots_.size() > 1)
    for (Slot* slot : decoding_) {
      slot->turn->note_batch_step({.number = steps_,
                                   .members = n,
                                   .rows = record.rows,
                                   .emitted = record.emitted,
                                   .ns = record.ns,
                                   .gap_ns = end - slot->last});
      slot->last = end;
    }
  ++steps_;
  mark_ = end;
  record.parts = parts_;
  source_.stepped(record);
  for (size_t i = 0; i < decoding_.size(); ++i) hand_on(*decoding_[i], parts_[i].emitted);
  size_t left = 0;
  for (Slot* slot : decoding_) {
    if (slot->turn->ended())
      finish(*slot);
    else
      decoding_[left++] = slot;
  }
  decoding_.resize(left);
}

// The last `n` tokens, to who wants them as they come.
void BatchDecoder::hand_on(Slot& slot, int n) {
  const auto& on_tokens = slot.turn->request().on_tokens;
  if (!on_tokens) return;
  const std::span<const int32_t> tokens = slot.turn->record().tokens;
  off_the_clock([&] { on_tokens(tokens.last(static_cast<size_t>(n))); });
}

void BatchDecoder::finish(Slot& slot) {
  slot.state = Slot::State::kFree;
  results::TurnRecord record = slot.turn->finish();
  slot.turn.reset();
  if (record.batch) record.batch->wall_ns = slot.last - slot.first;
  off_the_clock([&] { source_.done(slot.number, std::move(record)); });
}

}  // namespace

void decode_batch(std::span<DecodingMethod* const> slots, engine::Session& target,
                  BatchSource& source, BatchMode mode, base::Clock& clock) {
  BatchDecoder(slots, target, source, mode, clock).run();
}

const TurnRequest* RequestList::next(int slot) {
  if (next_ == requests_.size()) return nullptr;
  const auto at = static_cast<size_t>(slot);
  if (of_slot_.size() <= at) of_slot_.resize(at + 1);
  of_slot_[at] = next_;
  return &requests_[next_++];
}

void RequestList::done(int slot, results::TurnRecord turn) {
  on_done_(request_of(slot), std::move(turn));
}

std::vector<std::unique_ptr<DecodingMethod>> make_slots(std::unique_ptr<DecodingMethod> first,
                                                        int n) {
  std::vector<std::unique_ptr<DecodingMethod>> slots;
  slots.push_back(std::move(first));
  for (int s = 1; s < n; ++s) slots.push_back(slots.front()->another(s));
  return slots;
}

}  // namespace evalrun::methods
