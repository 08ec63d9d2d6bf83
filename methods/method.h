// What a decoding method is. How methods are registered: methods/registration.h.
//
// One engine, many methods: a method never owns a copy of the model, the loop, the clock or the
// stop rule. The only loop (methods/decode_loop.h) calls `start` once per turn and has steps taken
// (methods/step.h) until the stop rule says so.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/sampling.h"
#include "engine/session.h"
#include "methods/phase_timer.h"
#include "methods/side_rows.h"
#include "methods/target_answers.h"
#include "methods/token_tree.h"
#include "methods/verifier.h"

namespace evalrun::methods {

// One draft node the verification asked about. `rank` counts the siblings before it.
struct TestedNode {
  int depth = 0;  // 1 = child of the root
  int rank = 0;
  bool accepted = false;
};

// What one step did. `tokens` = accepted draft tokens on the path, then the one the target
// supplied. The views stay valid until the method's next call.
struct StepOutcome {
  std::span<const int32_t> tokens;  // accepted + 1
  int rows = 1;                     // rows of the target forward
  int drafted = 0;                  // draft tokens tested (nodes without the root)
  int drafted_depth = 0;            // longest draft path; = drafted for chains
  int accepted = 0;                 // 0..drafted_depth
  // Whole forwards of the target in this step, drafting with it included; with sublayers left out
  // they do not count.
  int target_forwards = 1;
  // Draft nodes that were put to the test: the children of every node on the path, in tree order.
  std::span<const TestedNode> tested = {};
};

// What a step costs at most, as far as a method knows before there is any text. For plans
// (runners/plan/estimate.h).
struct LargestStep {
  int rows = 0;                      // of the target's forward, the root included; 0 = not known
  double draft_cost = 0;             // a drafter's forward of one row, in plain steps of the target
  std::vector<int> draft_rows = {};  // of each such forward in a step
  // Plain steps that a step costs at most where only what pays here is drafted, whatever the rows;
  // 0 = no such limit.
  double limit = 0;
};

// The most that tables, pools and tries grow to, in bytes. Nothing of it is there before the texts
// are.
struct GrownMemory {
  double shared = 0;     // once for all slots (state=shared)
  double per_slot = 0;   // however long a slot lives and whatever it reads
  double per_token = 0;  // of the longest conversation of a slot, in each
  double most(int slots, int tokens) const {
    return shared + slots * (per_slot + per_token * tokens);
  }
};

// What a method keeps in memory for its slots, as far as it can be said before there is any text.
// For plans (runners/plan/batch_memory.h).
struct KeptMemory {
  std::vector<const engine::Session*> sessions =
      {};                     // its own, of all slots; valid as long as it is
  double bytes_per_slot = 0;  // beside these and what needs() has kept
  double on_host = 0;         // of extra_parameter_bytes() what no device is given: corpora
  GrownMemory grown = {};     // with texts, beside these
  bool complete = true;       // false: more, of which no bound is known
};

// Everything a method may use during one generation. Lives as long as the generation.
struct GenerationContext {
  engine::Session* target = nullptr;  // prompt committed, `first_token` pending
  int sequence = 0;                   // of the target's session: where the prompt is
  std::span<const int32_t> prompt;    // the whole committed context, earlier turns included
  int32_t first_token = -1;           // read from the prefill: the first root
  int max_new = 0;  // the most tokens that the loop will keep, first_token included
  engine::SamplingParams sampling;
  base::KeyedChance chance;  // the only source of randomness
  // Whether drafts may be drawn where Drafter::dists() keeps their distributions. Only then are
  // they verified there.
  bool may_keep_dists = false;
  std::span<const int32_t> stop_ids;
  // Plain decoding's answer to `prompt` with these parameters and numbers, first_token included; of
  // MethodInfo::needs_answer alone, empty for all others. Stays for the generation.
  std::span<const int32_t> known_answer = {};
};

// A session or heads that the drafters of a batch's slots share: one forward has the rows of all of
// them.
class DraftGroup {
 public:
  virtual ~DraftGroup() = default;
  // How many drafters can draft together; the others of a larger batch draft after them.
  virtual int room() const = 0;
  // Before drafts of a step: nothing is staged, and no rows of earlier forwards are gone on from.
  virtual void begin() = 0;
  // One forward (or product) for all that was staged since the last.
  virtual void run() = 0;
};

// Interface of every method. One object serves many generations, one after the other: `start`
// forgets everything about earlier ones (tested: generation k is the same whatever ran before).
//
// A batch has an object for each of its slots, the first one and another() of it for the others.
// They share weights, corpora and the sessions of drafters, in which slot s has sequence s, and
// nothing that a generation changes. What parameters carry from answer to answer
// (StepReproducibility::kCarryState: caches of pia and self_draft with persist=true, of suffix,
// sam, ngram_mod and recycling with state=warm, draft lengths of sps, thresholds of self_spec) is
// carried in each slot by itself: it depends on the answers that the slot had, not on the others of
// its batches. The one exception says so: with state=shared (methods/lookup/carried_state.h) a
// cache is one for all slots.
class DecodingMethod {
 public:
  virtual ~DecodingMethod() = default;
  // The same method for slot 1, 2, ... of those that it was built for (MethodBuildContext::slots).
  // Asked before the first generation. A planted fault is planted in it, too.
  virtual std::unique_ptr<DecodingMethod> another(int /*slot*/) const {
    throw base::InternalError("this method decodes one sequence");
  }
  // Work before the first step that belongs to this prompt (prefill of a draft model, n-gram
  // tables). Timed separately from steps ("draft prefill").
  virtual void start(const GenerationContext& context) = 0;

  // ---- One step, in this order, by StepRunner (methods/step.h) alone. ----
  // Begins to draft; then as of Drafter: forwards that slots share, until stage() is false and the
  // draft complete.
  virtual void begin_step() = 0;
  virtual DraftGroup* group() { return nullptr; }
  virtual bool stage() { return false; }
  virtual void take() {}
  // The rows of the target's forward: of this sequence alone, numbered from 0, its root first. What
  // they point to stays until finish_step().
  virtual engine::ForwardRequest rows() = 0;
  // Verifies by what the forward answered for rows(). The rows to be committed, the root and what
  // was accepted; valid until finish_step().
  virtual std::span<const int> accept(const engine::ForwardResult& result) = 0;
  // After the commit: what else is wanted of the same answers. They are gone in finish_step().
  virtual void read_side_rows(const engine::ForwardResult& /*result*/) {}
  // Learns from what was accepted.
  virtual StepOutcome finish_step() = 0;
  // At the very end, while the step's time runs. For planted faults (methods/faults.h).
  virtual void after_step(PhaseTimer& /*timer*/) {}

  // Of all slots together, whichever is asked: draft model, heads, adapters; caches of drafters.
  virtual size_t extra_parameter_bytes() const { return 0; }
  virtual size_t extra_kv_bytes() const { return 0; }
  // Adds what it keeps. A method that has nothing to add says so by an empty function.
  virtual void add_kept(KeptMemory& kept) const { kept.complete = false; }
  // Features of the target's tokens the method reads (engine/session.h): kept from the prefill on.
  virtual engine::FeatureSet needs() const { return {}; }
  virtual LargestStep largest_step() const { return {}; }
  // The method that a planted fault (methods/faults.h) wraps.
  virtual DecodingMethod* wrapped() { return nullptr; }
};

// The `draw`-th token of a list of draws in a step; list -1: not drawn.
struct DraftDraw {
  int list = -1, draw = 0;
};

// Proposes tokens. Combined with a verifier by make_speculative_method(); registered with it by
// draft_by() (methods/adaptive.h).
class Drafter {
 public:
  virtual ~Drafter() = default;
  // As DecodingMethod::another().
  virtual std::unique_ptr<Drafter> another(int /*slot*/) const {
    throw base::InternalError("this drafter drafts for one sequence");
  }
  virtual void start(const GenerationContext& context) = 0;
  virtual engine::FeatureSet needs() const { return {}; }
  virtual LargestStep largest_step() const { return {}; }
  // Begins a draft. `sequence` = prompt and all emitted tokens, the root last; it stays until
  // accepted(). Look-ups fill `tree` (root already set) here, with at most `max_depth` levels. When
  // the drafts were drawn from a distribution under sampling, `q_of(i)` must return it for node i
  // once the draft is complete.
  virtual void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) = 0;
  // Drafts that need forwards of their own go on together with those of other slots: stage()
  // adds what the next forward must compute to group(), all stages are run at once, take() reads
  // its part. Over and over, until stage() says that the draft is complete: false, and nothing
  // added.
  virtual DraftGroup* group() { return nullptr; }  // the same in every step
  virtual bool stage(TokenTree& /*tree*/) { return false; }
  virtual void take(TokenTree& /*tree*/) {}
  // Rows to compute beside the tree of the last draft, at most `max_rows`; called once per step.
  virtual void side_rows(int /*max_rows*/, SideRows& /*rows*/) {}
  // The target's greedy continuation of the root and of each side row (-1 where it is not read),
  // before accepted(). Called only when there were side rows.
  virtual void side_tops(int32_t /*root*/, std::span<const int32_t> /*rows*/) {}
  // Of the masks among the side rows.
  virtual SideInputs side_inputs() const { return {}; }
  // The forward of this step, side rows from `first_row` on, and what will be accepted(): to be
  // read here and now, as another slot may use the session next. Only when there were side rows.
  virtual void side_states(const engine::ForwardResult& /*result*/, int /*first_row*/,
                           std::span<const int> /*path*/) {}
  // What learn() asks about. Not beside SideInputs::best.
  virtual TargetWants wants() const { return {}; }
  // Instead of wants() in a step that verifies nothing because nothing pays (methods/adaptive.h,
  // methods/joined_draft.h): a drafter that is idle should cost next to nothing. Stays the same
  // between draft() and learn(). Where it is nothing, learn() is not called.
  virtual TargetWants idle_wants() const { return wants(); }
  // After the verification, before accepted(), in every step that called draft(): what the target
  // said after each node of `tree`, the root's among them. Some of the nodes are the `path`: those
  // accepted, in order, root excluded. `sequence` as in draft().
  virtual void learn(std::span<const int32_t> /*sequence*/, const TokenTree& /*tree*/,
                     std::span<const int> /*path*/, TargetAnswers& /*answers*/) {}
  // The most draft tokens that a step accepts. One more is emitted in the bonus's place and the
  // bonus is dropped, as some released programs do. Lossless either way.
  virtual int max_accepted() const { return engine::kMaxRows; }
  // Distribution node i was drawn from (after warping; see QOf in methods/verifier.h for siblings),
  // empty when node i was chosen deterministically (PLD): decides the verification rule.
  virtual std::span<const double> q_of(int /*node*/) const { return {}; }
  virtual Siblings siblings() const { return Siblings::kWithoutReplacement; }
  // Which number node i was drawn by where q_of() has a distribution: chance.draft() of the step.
  // So that an audit (runners/verify/decision_audit.h) can draw it again.
  virtual DraftDraw draw_of(int /*node*/) const { return {}; }
  // Distributions that stay on a device instead: then q_of() is empty, and distribution_of() is the
  // slot of the distribution node i and its siblings were drawn from, -1 when node i was chosen
  // deterministically.
  virtual engine::DistributionStore* dists() const { return nullptr; }
  virtual int distribution_of(int /*node*/) const { return -1; }
  // For adaptive drafting (methods/adaptive.h). What a drafted token costs, in plain steps of the
  // target; 0 = nothing to speak of, and then the draft depends on `sequence` and on what was
  // learnt alone: learn() and accepted() may be told about a part of the tree.
  virtual double draft_cost() const { return 0; }
  // Whether tokens that went by without a draft must be computed by the drafter before the next.
  virtual bool must_catch_up() const { return false; }
  // Of a look-up whose question costs enough to show where nothing comes of it: adaptive and joined
  // drafts ask it ever more seldom there, after so many tokens at most (methods/idle_backoff.h). It
  // must need neither learn() nor accepted().
  virtual int rarest_query() const { return 1; }
  // Nodes of one class are accepted about equally often. A class says how long the matched text
  // was, or which cache the nodes come from. 0..kDraftClasses-1. expected(): how often a node is
  // accepted at first, given that its parent was.
  static constexpr int kDraftClasses = 8;
  virtual int draft_class(int /*node*/) const { return 0; }
  virtual double expected(int /*draft_class*/, int depth) const { return depth == 1 ? 0.4 : 0.7; }
  // Told what was accepted: `path` are accepted nodes in order (root excluded), `bonus` the next
  // root.
  virtual void accepted(std::span<const int> /*path*/, int32_t /*bonus*/) {}
  virtual size_t extra_parameter_bytes() const { return 0; }
  virtual size_t extra_kv_bytes() const { return 0; }
  virtual void add_kept(KeptMemory& kept) const { kept.complete = false; }  // as DecodingMethod's
};

std::unique_ptr<DecodingMethod> make_speculative_method(
    std::unique_ptr<Drafter> drafter, std::optional<TypicalAcceptance> typical = {},
    RejectionRule rule = {});

}  // namespace evalrun::methods
