#include "runners/measure/batch_visit.h"

#include <algorithm>
#include <utility>

namespace evalrun::runners {
namespace {

// What a generation has of its batch's time.
int64_t shares_of(const results::GenerationRecord& g) {
  int64_t ns = 0;
  for (const results::TurnRecord& turn : g.turns)
    ns += turn.prefill_ns + turn.draft_prefill_ns + turn.decode_ns;
  return ns;
}

// Of what a device did and took for all that were decoded meanwhile, the part of one.
void leave_share(results::GenerationRecord& g, double share) {
  const auto scale = [share](int64_t& n) {
    n = static_cast<int64_t>(static_cast<double>(n) * share);
  };
  if (g.clock && g.clock->energy_mj) scale(*g.clock->energy_mj);
  if (!g.gpu) return;
  if (g.gpu->energy_mj) scale(*g.gpu->energy_mj);
  if (!g.gpu->busy) return;
  results::GpuBusy& busy = *g.gpu->busy;
  for (int64_t* phase :
       {&busy.prefill_ns, &busy.draft_prefill_ns, &busy.draft_ns, &busy.verify_ns, &busy.commit_ns})
    scale(*phase);
}

}  // namespace

struct BatchVisit::Seat {
  BatchMember member;
  std::optional<MachineWatch> watch;  // none of a filler
  results::GenerationRecord g;
  int64_t begin = 0, batch_begin = 0;  // when it began, by the clock and in the batch's time
  OpenConversation conversation;

  Seat(const BatchVisit& visit, const BatchMember& m)
      : member(m),
        g(visit.hooks_.record(m.visit)),
        batch_begin(visit.batch_ns_),
        conversation(visit.plan_, visit.conversation_,
                     visit.plan_.prompts[static_cast<size_t>(m.visit.prompt)], visit.clock_, g, {},
                     visit.hooks_.known ? visit.hooks_.known(m.visit) : nullptr) {
    if (member.wanted) watch.emplace(visit.session_, nullptr);
    begin = visit.clock_.now_ns();
  }
};

// While turns are given and taken the batch's time stands still.
class BatchVisit::Outside {
 public:
  explicit Outside(BatchVisit& visit) : visit_(visit), begin_(visit.clock_.now_ns()) {
    visit_.batch_ns_ = begin_ - visit_.outside_ns_;
  }
  ~Outside() { visit_.outside_ns_ += visit_.clock_.now_ns() - begin_; }
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;

 private:
  BatchVisit& visit_;
  const int64_t begin_;
};

BatchVisit::BatchVisit(const RunPlan& plan, const Conversation& conversation, base::Clock& clock,
                       const engine::Session& session, std::vector<BatchMember> members,
                       Hooks hooks)
    : plan_(plan),
      conversation_(conversation),
      clock_(clock),
      session_(session),
      members_(std::move(members)),
      hooks_(std::move(hooks)),
      wanted_left_(static_cast<int>(std::count_if(members_.begin(), members_.end(),
                                                  [](const BatchMember& m) { return m.wanted; }))),
      seats_(static_cast<size_t>(session.options().n_sequences)) {}

BatchVisit::~BatchVisit() = default;

bool BatchVisit::over() const {
  return wanted_left_ == 0 || thrown_ != nullptr || (hooks_.stop && hooks_.stop());
}

std::unique_ptr<BatchVisit::Seat> BatchVisit::seat_next() {
  if (given_ < members_.size()) return std::make_unique<Seat>(*this, members_[given_++]);
  if (!hooks_.filler) return nullptr;
  return std::make_unique<Seat>(*this, BatchMember{hooks_.filler(), false});
}

// What cannot be decoded fails alone: decode_batch() would end for all.
const methods::TurnRequest* BatchVisit::next(int slot) {
  const Outside outside(*this);
  std::unique_ptr<Seat>& seat = seats_[static_cast<size_t>(slot)];
  while (!over()) {
    if (seat == nullptr) seat = seat_next();
    if (seat == nullptr) return nullptr;
    try {
      const methods::TurnRequest& request = seat->conversation.next();
      methods::check_request(request, session_, slot);
      return &request;
    } catch (const std::exception& e) {
      const std::unique_ptr<Seat> refused = std::move(seat);
      // Of endless fillers one at a time: the slot stays empty for a step.
      if (!refused->member.wanted && given_ == members_.size()) return nullptr;
      end_failed(*refused, e);
    }
  }
  return nullptr;
}

void BatchVisit::done(int slot, results::TurnRecord turn) {
  const Outside outside(*this);
  std::unique_ptr<Seat>& seat = seats_[static_cast<size_t>(slot)];
  try {
    seat->conversation.take(std::move(turn));
    if (!seat->conversation.ended()) return;
  } catch (const std::exception& e) {
    end_failed(*std::exchange(seat, nullptr), e);
    return;
  }
  end(*std::exchange(seat, nullptr));
}

void BatchVisit::end(Seat& seat) {
  if (!seat.member.wanted) return;
  results::GenerationRecord& g = seat.g;
  const auto wall = static_cast<double>(clock_.now_ns() - seat.begin);
  seat.watch->describe(g);
  take_graph_misses(g);
  if (wall > 0) leave_share(g, std::min(1.0, static_cast<double>(shares_of(g)) / wall));
  hand_over(seat);
}

void BatchVisit::take_graph_misses(results::GenerationRecord& g) {
  if (!g.gpu || !g.gpu->busy) return;
  const int64_t now = engine::device_time().graph_misses;
  g.gpu->busy->graph_misses = now - std::exchange(graph_misses_, now);
}

void BatchVisit::end_failed(Seat& seat, const std::exception& why) {
  if (!seat.member.wanted) return;
  mark_failed(seat.g, why);
  hand_over(seat);
}

void BatchVisit::hand_over(Seat& seat) {
  --wanted_left_;
  if (thrown_ != nullptr) return;
  results::GenerationRecord& g = seat.g;
  g.total_ns = batch_ns_ - seat.batch_begin + g.tokenize_ns + g.detokenize_ns;
  try {
    hooks_.ended(seat.member.visit, std::move(g));
  } catch (...) {
    thrown_ = std::current_exception();
  }
}

void BatchVisit::fail(const std::exception& why) {
  const Outside outside(*this);
  for (std::unique_ptr<Seat>& seat : seats_)
    if (seat != nullptr) end_failed(*std::exchange(seat, nullptr), why);
}

std::vector<BatchMember> BatchVisit::take_waiting() {
  members_.erase(members_.begin(), members_.begin() + static_cast<std::ptrdiff_t>(given_));
  given_ = 0;
  return std::exchange(members_, {});
}

void BatchVisit::rethrow() const {
  if (thrown_ != nullptr) std::rethrow_exception(thrown_);
}

}  // namespace evalrun::runners
