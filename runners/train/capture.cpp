#include "runners/train/capture.h"

#include <algorithm>
#include <limits>

#include "engine/base/error.h"

namespace evalrun::runners {
namespace {

// One sequence of the session and what it has of its text so far.
struct Slot {
  const CapturePrompt* prompt = nullptr;  // null = free
  bool anew = true;                       // the session's sequence holds another text
  int fed = 0;                            // tokens committed
  CapturedSequence text;
  std::vector<CapturedSequence> done;         // earlier ones of the same line
  std::vector<std::vector<int32_t>> answers;  // of the line so far
  std::vector<int> path;                      // its rows of the forward under way
  int answer_first = 0;                       // where the answer under way begins
  int known = 0;                              // tokens to feed before one of the model's is wanted
  bool given = false;                         // the answer, whose last token is not fed
  bool in_known() const { return fed < known; }
};

class Batch {
 public:
  Batch(engine::Session& session, std::vector<const CapturePrompt*> prompts,
        const CaptureOptions& options, CaptureFolder& folder, base::Clock& clock)
      : session_(session),
        prompts_(std::move(prompts)),
        options_(options),
        folder_(folder),
        clock_(clock),
        slots_(static_cast<size_t>(session.options().n_sequences)),
        begin_ns_(clock.now_ns()) {}
  CaptureOutcome run();

 private:
  double elapsed() const { return static_cast<double>(clock_.now_ns() - begin_ns_) * 1e-9; }
  // Tokens of the folder once the sequences that were begun are written, as far as known.
  int64_t tokens_so_far() const { return folder_.n_tokens() + tokens_waiting_ + tokens_in_slots_; }
  bool must_end();
  void admit();
  // The turn's prompt is to be fed, behind the answer before where it continues that.
  void begin_turn(Slot& slot, const CaptureTurn& turn);
  // One row of every sequence that decodes, then as much of what is known as fits.
  void plan_rows();
  // The next `count` tokens of a sequence. The row after which its text ends asks for a token.
  void add_rows(size_t sequence, int count);
  void step();
  void keep_states(CapturedSequence& text, const engine::ForwardResult& result, int row) const;
  // Whether the answer ends with it.
  bool take_token(Slot& slot, int32_t token);
  bool is_stop(int32_t token) const;
  // After the last row of an answer: goes on with the dialogue, whose rows are to be committed, or
  // frees the slot.
  void end_answer(size_t sequence);
  void end_sequence(Slot& slot);
  void finish(Slot& slot);
  void write();
  void report();

  engine::Session& session_;
  std::vector<const CapturePrompt*> prompts_;
  const CaptureOptions& options_;
  CaptureFolder& folder_;
  base::Clock& clock_;
  std::vector<Slot> slots_;
  std::vector<engine::Row> rows_;
  std::vector<engine::SequencePath> paths_;  // of the forward under way, to be committed
  std::vector<CapturedSequence> waiting_;    // for the next part
  size_t next_ = 0;                          // prompt
  int64_t tokens_in_slots_ = 0, tokens_waiting_ = 0;
  int64_t begin_ns_;
  bool ending_ = false;
  CaptureOutcome outcome_;
};

CaptureOutcome Batch::run() {
  while (true) {
    if (!ending_) ending_ = must_end();
    if (!ending_) admit();
    plan_rows();
    if (rows_.empty()) break;
    step();
    if (tokens_waiting_ >= options_.part_tokens) write();
    report();
  }
  write();
  outcome_.left = static_cast<int64_t>(prompts_.size() - next_);
  outcome_.seconds = elapsed();
  return outcome_;
}

bool Batch::must_end() {
  if (options_.stop && options_.stop()) return outcome_.interrupted = true;
  return (options_.limit_tokens > 0 && tokens_so_far() >= options_.limit_tokens) ||
         (options_.seconds > 0 && elapsed() >= options_.seconds);
}

void Batch::admit() {
  for (size_t i = 0; i < slots_.size() && next_ < prompts_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.prompt != nullptr) continue;
    slot = {};
    slot.prompt = prompts_[next_++];
    slot.text.line = slot.prompt->line;
    begin_turn(slot, {slot.prompt->tokens, slot.prompt->answer});
  }
}

void Batch::begin_turn(Slot& slot, const CaptureTurn& turn) {
  std::vector<int32_t>& tokens = slot.text.tokens;
  const auto before = static_cast<int64_t>(tokens.size());
  tokens = turn.prompt;
  slot.answer_first = static_cast<int>(tokens.size());
  slot.given = !turn.answer.empty();
  if (slot.given) {
    const auto n = std::min(turn.answer.size(), static_cast<size_t>(options_.max_new));
    tokens.insert(tokens.end(), turn.answer.begin(),
                  turn.answer.begin() + static_cast<std::ptrdiff_t>(n));
  }
  slot.known = static_cast<int>(tokens.size()) - (slot.given ? 1 : 0);
  tokens_in_slots_ += static_cast<int64_t>(tokens.size()) - before;
}

void Batch::plan_rows() {
  rows_.clear();
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    slot.path.clear();
    // Not where an answer ends: the other sequences' rows of that forward are yet to be committed.
    if (slot.prompt == nullptr || !slot.anew) continue;
    session_.rewind(0, static_cast<int>(i));
    slot.anew = false;
  }
  for (size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].prompt != nullptr && !slots_[i].in_known()) add_rows(i, 1);
  const int decoding = static_cast<int>(rows_.size());
  int room = std::min(options_.prompt_rows, engine::kMaxRows - decoding);
  for (size_t i = 0; i < slots_.size() && room > 0; ++i) {
    Slot& slot = slots_[i];
    if (slot.prompt == nullptr || !slot.in_known()) continue;
    const int count = std::min(room, slot.known - slot.fed);
    add_rows(i, count);
    room -= count;
  }
}

void Batch::add_rows(size_t sequence, int count) {
  Slot& slot = slots_[sequence];
  for (int k = 0; k < count; ++k) {
    engine::Row row;
    row.token = slot.text.tokens[static_cast<size_t>(slot.fed + k)];
    row.parent = k == 0 ? -1 : static_cast<int32_t>(rows_.size()) - 1;
    row.sequence = static_cast<int32_t>(sequence);
    row.logits = false;
    row.hidden = true;
    row.top = static_cast<size_t>(slot.fed + k) + 1 == slot.text.tokens.size();
    slot.path.push_back(static_cast<int>(rows_.size()));
    rows_.push_back(row);
  }
}

void Batch::step() {
  engine::ForwardRequest request;
  request.rows = rows_;
  request.residual_layers = options_.residual_layers;
  const engine::ForwardResult result = session_.forward(request);
  paths_.clear();
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.path.empty()) continue;
    for (const int row : slot.path) keep_states(slot.text, result, row);
    slot.fed += static_cast<int>(slot.path.size());
    const int32_t token = result.top[static_cast<size_t>(slot.path.back())];
    const bool ends = slot.given ? !slot.in_known() : token >= 0 && take_token(slot, token);
    if (ends)
      end_answer(i);
    else
      paths_.push_back({static_cast<int>(i), slot.path});
  }
  if (!paths_.empty()) session_.commit(paths_);
}

void Batch::keep_states(CapturedSequence& text, const engine::ForwardResult& result,
                        int row) const {
  const auto round = [](std::span<const float> values, std::vector<uint16_t>& to) {
    for (const float x : values) to.push_back(engine::float_to_bfloat16(x));
  };
  round(result.hidden_row(row), text.hidden);
  for (const engine::MatrixView& layer : result.residual) round(layer.row(row), text.residual);
}

bool Batch::take_token(Slot& slot, int32_t token) {
  CapturedSequence& text = slot.text;
  text.tokens.push_back(token);
  ++tokens_in_slots_, ++outcome_.generated;
  return is_stop(token) ||
         text.tokens.size() == static_cast<size_t>(slot.answer_first + options_.max_new);
}

bool Batch::is_stop(int32_t token) const {
  return std::find(options_.stop_ids.begin(), options_.stop_ids.end(), token) !=
         options_.stop_ids.end();
}

void Batch::end_answer(size_t sequence) {
  Slot& slot = slots_[sequence];
  std::vector<int32_t>& tokens = slot.text.tokens;
  const auto n = static_cast<int32_t>(tokens.size());
  slot.text.answers.push_back({slot.answer_first, n});
  slot.answers.emplace_back(tokens.begin() + slot.answer_first, tokens.end());
  ++outcome_.answers;
  if (slot.given) outcome_.generated += n - slot.answer_first;
  const std::optional<CaptureTurn> turn =
      slot.prompt->next ? slot.prompt->next(slot.answers) : std::nullopt;
  if (!turn) return finish(slot);
  const bool continues = turn->prompt.size() >= tokens.size() &&
                         std::equal(tokens.begin(), tokens.end(), turn->prompt.begin());
  if (continues) {
    paths_.push_back({static_cast<int>(sequence), slot.path});
  } else {
    end_sequence(slot);
    slot.anew = true;
    slot.fed = 0;
    slot.text.line = slot.prompt->line;
  }
  begin_turn(slot, *turn);
}

void Batch::end_sequence(Slot& slot) {
  CapturedSequence& text = slot.text;
  const size_t n = text.tokens.size();
  const auto d = static_cast<size_t>(session_.model().config().d_model);
  text.hidden.resize(n * d);  // the last token was never fed: zeros
  text.residual.resize(n * d * options_.residual_layers.size());
  text.ended = is_stop(text.tokens.back());
  ++outcome_.sequences;
  outcome_.prompt_tokens += static_cast<int64_t>(n);
  for (const CapturedSequence::Answer& answer : text.answers)
    outcome_.prompt_tokens -= answer.last - answer.first;
  slot.done.push_back(std::move(text));
  text = {};
}

void Batch::finish(Slot& slot) {
  end_sequence(slot);
  for (CapturedSequence& sequence : slot.done) {
    tokens_in_slots_ -= static_cast<int64_t>(sequence.tokens.size());
    tokens_waiting_ += static_cast<int64_t>(sequence.tokens.size());
    waiting_.push_back(std::move(sequence));
  }
  ++outcome_.lines;
  slot.prompt = nullptr;
}

void Batch::write() {
  if (waiting_.empty()) return;
  folder_.write(waiting_);
  waiting_.clear();
  tokens_waiting_ = 0;
}

void Batch::report() {
  if (!options_.progress || outcome_.lines == 0) return;
  CaptureProgress p;
  p.done = outcome_.lines, p.total = static_cast<int64_t>(prompts_.size());
  p.generated = outcome_.generated;
  p.elapsed_s = elapsed();
  // By what is done of this run; the limit that comes first ends it.
  const auto left = [&](int64_t done, int64_t todo) {
    return done <= 0 ? std::numeric_limits<double>::max()
                     : p.elapsed_s / static_cast<double>(done) * static_cast<double>(todo);
  };
  p.left_s = left(p.done, p.total - p.done);
  if (options_.limit_tokens > 0)
    p.left_s = std::min(p.left_s, left(outcome_.prompt_tokens + outcome_.generated,
                                       options_.limit_tokens - tokens_so_far()));
  if (options_.seconds > 0) p.left_s = std::min(p.left_s, options_.seconds - p.elapsed_s);
  p.left_s = std::max(p.left_s, 0.0);
  options_.progress(p);
}

}  // namespace

CaptureOutcome capture(const std::shared_ptr<const engine::Model>& model,
                       engine::SessionOptions session, std::span<const CapturePrompt> prompts,
                       const CaptureOptions& options, CaptureFolder& folder, base::Clock& clock) {
  EVALRUN_CHECK(options.parallel >= 1 && options.parallel <= engine::kMaxRows, "parallel {}",
                options.parallel);
  EVALRUN_CHECK(options.max_new >= 1 && options.prompt_rows >= 1, "max_new {}, prompt_rows {}",
                options.max_new, options.prompt_rows);
  std::vector<const CapturePrompt*> missing;
  size_t longest = 0;
  for (const CapturePrompt& prompt : prompts) {
    EVALRUN_CHECK(!prompt.tokens.empty(), "line {} has no tokens", prompt.line);
    if (folder.holds(prompt.line)) continue;
    missing.push_back(&prompt);
    longest = std::max({longest, prompt.tokens.size(), prompt.most_tokens});
  }
  if (missing.empty()) return {};
  session.n_sequences =
      static_cast<int>(std::min(missing.size(), static_cast<size_t>(options.parallel)));
  session.max_tokens = static_cast<int>(longest) + options.max_new;
  const auto opened = engine::Session::create(model, session);
  return Batch(*opened, std::move(missing), options, folder, clock).run();
}

}  // namespace evalrun::runners
