// What a decoding method is, and how methods are registered.
//
// One engine, many methods: a method never owns a copy of the model, the loop, the clock or the
// stop rule. `decode_loop()` (methods/decode_loop.h) is the only loop; it calls `start` once per
// turn and `step` until the stop rule says so.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/options.h"
#include "engine/base/registry.h"
#include "engine/base/rng.h"
#include "engine/device_time.h"
#include "engine/row_cost.h"
#include "engine/sampling.h"
#include "engine/session.h"
#include "engine/trace.h"
#include "methods/token_tree.h"
#include "methods/verifier.h"
#include "results/records.h"

namespace evalrun::methods {

// Splits the wall time of a step; a method calls enter() when it moves on. Time not claimed by
// draft, verify or commit is overhead. Reads the clock once per call; the three are spans for
// profilers, too, and what a device does meanwhile is counted apart (engine/device_time.h).
class PhaseTimer {
 public:
  enum Phase { kDraft, kVerify, kCommit, kOther, kCount };
  explicit PhaseTimer(base::Clock& clock) : clock_(clock) {}
  ~PhaseTimer() { show(kOther); }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;
  void begin_step() {
    for (int64_t& t : ns_) t = 0;
    show(kOther);
    last_ = clock_.now_ns();
  }
  void enter(Phase next) {
    const int64_t now = clock_.now_ns();
    ns_[phase_] += now - last_;
    last_ = now;
    show(next);
  }
  int64_t end_step() {  // returns the time at which the step ended
    enter(kOther);
    return last_;
  }
  int64_t ns(Phase p) const { return ns_[p]; }
  int64_t total_ns() const { return ns_[0] + ns_[1] + ns_[2] + ns_[3]; }

 private:
  void show(Phase next) {
    static constexpr const char* kNames[] = {"draft", "verify", "commit"};
    using Device = engine::DevicePhase;
    static constexpr Device kOnDevice[] = {Device::kDraft, Device::kVerify, Device::kCommit,
                                           Device::kOther};
    if (phase_ != kOther) engine::pop_span();
    if (next != kOther) engine::push_span(kNames[next]);
    engine::device_phase() = kOnDevice[next];
    phase_ = next;
  }

  base::Clock& clock_;
  int64_t ns_[kCount] = {};
  int64_t last_ = 0;
  Phase phase_ = kOther;
};

// One draft node the verification asked about. `rank` counts the siblings in front of it.
struct TestedNode {
  int depth = 0;  // 1 = child of the root
  int rank = 0;
  bool accepted = false;
};

// What one step did. `tokens` = accepted draft tokens on the path, then the one the target
// supplied. The view stays valid until the method's next call.
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

// Everything a method may use during one generation. Lives as long as the generation.
struct GenerationContext {
  engine::Session* target = nullptr;  // prompt committed, `first_token` pending
  std::span<const int32_t> prompt;    // the whole committed context, earlier turns included
  int32_t first_token = -1;           // read from the prefill: the first root
  int max_new = 0;                    // tokens the loop will keep at most, first_token included
  engine::SamplingParams sampling;
  base::Rng* rng = nullptr;  // the only source of randomness
  // Whether drafts may be drawn where Drafter::distributions() keeps their distributions. Only then
  // is there somebody who tries them there.
  bool may_keep_dists = false;
  std::span<const int32_t> stop_ids;
};

// Interface of every method. One object serves many generations, one after the other: `start`
// forgets everything about earlier ones (tested: generation k is the same whatever ran before).
class DecodingMethod {
 public:
  virtual ~DecodingMethod() = default;
  // Work before the first step that belongs to this prompt (prefill of a draft model, n-gram
  // tables). Timed apart from steps ("draft prefill").
  virtual void start(const GenerationContext& context) = 0;
  // One step: draft, one target forward, verify, commit. Must commit accepted rows and the root.
  virtual StepOutcome step(PhaseTimer& timer) = 0;
  virtual size_t extra_parameter_bytes() const { return 0; }  // draft model, heads, adapters
  virtual size_t extra_kv_bytes() const { return 0; }
  // Features of the target's tokens the method reads (engine/session.h): kept from the prefill on.
  virtual engine::FeatureSet needs() const { return {}; }
  // The method that a planted fault (methods/faults.h) stands in front of.
  virtual DecodingMethod* wrapped() { return nullptr; }
};

// Rows that ride along in the target's forward without being tested: the Jacobi window of
// Lookahead, the branches of Self-Draft, the masks of SPACE and BiTA. They see a node of the draft
// tree with its ancestors, and their own ancestors. Tokens that are read get the target's greedy
// continuation, masks their state behind the final norm; that is what such methods draft with.
struct SideRows {
  std::vector<int32_t> token;   // [n], a token, or -1 - e for embedding e of SideInputs (a mask)
  std::vector<int32_t> parent;  // [n], under(node) of the tree, else an earlier side row
  std::vector<uint8_t> read;    // [n], a row that is not read costs no output matrix
  static constexpr int under(int node) { return -1 - node; }  // the root: -1
  static constexpr int mask(int embedding) { return -1 - embedding; }
  void clear() {
    token.clear();
    parent.clear();
    read.clear();
  }
  int add(int32_t t, int parent_row, bool is_read) {  // returns the new row
    token.push_back(t);
    parent.push_back(parent_row);
    read.push_back(is_read);
    return size() - 1;
  }
  int size() const { return static_cast<int>(token.size()); }
};

// What masks are made of, and what only they see or run through. Outlives the forward.
struct SideInputs {
  engine::MatrixView embeddings = {};  // [masks, d_model]
  const engine::PrefixBank* prefix = nullptr;
  const engine::LowRankDelta* low_rank = nullptr;
  // Of masks that are read: so many of their best tokens by the target's own head; 0 = their hidden
  // states.
  int best = 0;
};

// Proposes tokens. Combined with a verifier by make_speculative_method(), or by finish_method()
// (methods/adaptive.h), which the methods that can be adaptive use.
class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual void start(const GenerationContext& context) = 0;
  virtual engine::FeatureSet needs() const { return {}; }
  // `sequence` = prompt and all emitted tokens, the root last. Fills `tree` (root already set) with
  // at most `max_depth` levels. When the drafts were drawn from a distribution under sampling,
  // `q_of(i)` must return it for node i afterwards.
  virtual void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) = 0;
  // Rows to compute beside the tree of the last draft(), at most `max_rows`; called once per step.
  virtual void side_rows(int /*max_rows*/, SideRows& /*rows*/) {}
  // The target's greedy continuation of the root and of each side row (-1 where it is not read),
  // before accepted(). Called only when there were side rows.
  virtual void side_tops(int32_t /*root*/, std::span<const int32_t> /*rows*/) {}
  // Of the masks among the side rows.
  virtual SideInputs side_inputs() const { return {}; }
  // The forward of this step, side rows from `first_row` on; before accepted(). The views stay
  // valid until the session's next forward, prefill, head or multiply. Only when there were side
  // rows.
  virtual void side_states(const engine::ForwardResult& /*result*/, int /*first_row*/) {}
  // Draft tokens a step keeps at most; one accepted behind them is emitted in the bonus's place and
  // the bonus dropped, as some released programs do. Lossless either way.
  virtual int max_accepted() const { return engine::kMaxRows; }
  // Distribution node i was drawn from (after warping; see QOf in methods/verifier.h for siblings),
  // empty when node i was chosen deterministically (PLD): decides the verification rule.
  virtual std::span<const double> q_of(int /*node*/) const { return {}; }
  virtual Siblings siblings() const { return Siblings::kWithoutReplacement; }
  // Distributions that stay on a device instead: then q_of() is empty, and distribution_of() is the
  // slot of the distribution node i and its siblings were drawn from, -1 when node i was chosen
  // deterministically.
  virtual engine::DistributionStore* dists() const { return nullptr; }
  virtual int distribution_of(int /*node*/) const { return -1; }
  // For adaptive drafting (methods/adaptive.h). What a drafted token costs, in plain steps of the
  // target; 0 = nothing to speak of, and then the draft depends on `sequence` alone: accepted() may
  // be told about a part of the tree.
  virtual double draft_cost() const { return 0; }
  // Whether tokens that went by without a draft must be computed by the drafter before the next.
  virtual bool must_catch_up() const { return false; }
  // Nodes of one class come true about equally often: how long the matched text was, which cache
  // they come from. 0..kDraftClasses-1, with what to expect of one at first, its parent accepted.
  static constexpr int kDraftClasses = 8;
  virtual int draft_class(int /*node*/) const { return 0; }
  virtual double expected(int /*draft_class*/, int depth) const { return depth == 1 ? 0.4 : 0.7; }
  // Told what was kept: `path` are accepted nodes in order (root excluded), `bonus` the next root.
  virtual void accepted(std::span<const int> /*path*/, int32_t /*bonus*/) {}
  virtual size_t extra_parameter_bytes() const { return 0; }
  virtual size_t extra_kv_bytes() const { return 0; }
};
std::unique_ptr<DecodingMethod> make_speculative_method(
    std::unique_ptr<Drafter> drafter, std::optional<TypicalAcceptance> typical = {},
    RejectionRule rule = {});

// ---- Registration -------------------------------------------------------------------------------

// How far the steps of equal generations are the same; greedy tokens are in any case.
// kFollowMachine: within a run, as the row costs were measured before it; kCarryState: not even
// there, because something goes on from prompt to prompt.
enum class Steps { kFixed, kFollowMachine, kCarryState };

// A parameter, `name:key=value`.
struct ParamInfo : base::OptionInfo {
  struct StepsAt {
    std::string value;  // empty = at none
    Steps steps = Steps::kFixed;
  };
  StepsAt steps_at = {};  // the value at which steps are less than fixed
};
// How a method declares its parameters: name, member of its struct, limits and description in one
// line (engine/base/options.h). MethodParams: the values of all of them, part of an arm's key.
template <typename Shape>
using Parameters = base::Options<Shape, ParamInfo>;
using MethodParams = base::OptionValues;

struct MethodBuildContext {
  std::shared_ptr<const engine::Model> target;
  engine::SessionOptions session;  // of the target; drafters use the same device, threads
  std::shared_ptr<const engine::Model> draft;  // --draft PATH, null when none was given
  // What a forward of n rows of the target costs here, for methods that choose their block size.
  // Null when it is not known: in a plan, in tests, and when it could not be measured. Outlives the
  // method.
  const engine::RowCostTable* row_cost = nullptr;
};

enum class Lossless { kNone, kGreedy, kBoth };
const char* to_string(Lossless lossless);  // "none", "greedy", "both", as stored and listed

struct MethodInfo {
  std::string name;                     // "pld"
  std::string summary;                  // one line
  std::string source;                   // paper, section
  Lossless lossless = Lossless::kBoth;  // with every parameter at its default
  std::string needs;               // "nothing", "a draft model (--draft PATH or draft=layers:N)"
  bool takes_draft_model = false;  // whether --draft is for it
  std::string notes = {};  // what a reader of papers should know: which rows mean this method
  std::vector<ParamInfo> params;  // Parameters<...>::infos(), whose bound() makes what follows
  std::string version = "1";      // bumped when its numbers can change
  std::function<std::unique_ptr<DecodingMethod>(const MethodParams&, const MethodBuildContext&)>
      build;
  // What single parameters cannot say (one against another); throws usage_error. May be
  // empty. Called by parse_method, before any model is loaded.
  std::function<void(const MethodParams&)> check = {};
  // The model this method decodes where that is not the run's own (SPACE changes the target); null
  // or empty = the run's own. `build` gets the run's own in its context all the same.
  std::function<std::shared_ptr<const engine::Model>(const MethodParams&,
                                                     const MethodBuildContext&)>
      tuned = {};
  // Plain decoding of that model, as on the command line: what such a method is compared with.
  std::function<std::string(const MethodParams&)> plain = {};
  // Files named by the parameters, as name -> content hash: part of the arm's key, so that a corpus
  // that was built anew does not resume an old run. May be empty.
  std::function<std::map<std::string, std::string>(const MethodParams&, const MethodBuildContext&)>
      files = {};
  // Where parameters give losslessness up; empty = they never do.
  std::function<Lossless(const MethodParams&)> lossless_with = {};
};

const base::Registry<MethodInfo>& method_registry();

// "pld:k=10,ngram=3" -> name and parameters with defaults filled in; throws usage_error with
// suggestions for unknown methods and parameters.
struct MethodSpec {
  const MethodInfo* info = nullptr;
  MethodParams params;
  std::string canonical() const;  // "pld:k=4,match=first,min_ngram=1,ngram=3": every parameter
  std::string label() const;      // "pld:k=4": those that are not the default, for tables
  Steps steps() const;            // what its parameters leave of it
  Lossless lossless() const;
};
MethodSpec parse_method(std::string_view text);
// The model a method decodes: the run's own, or what it makes of it.
std::shared_ptr<const engine::Model> decoded_model(const MethodSpec& spec,
                                                   const MethodBuildContext& context);
// "ar,pld:k=4,sps:draft=layers:4" -> items. A comma followed by key= continues the parameters of
// the method before it. Braces are expanded (engine/base/braces.h): "pld:k={2,4}" is two items.
std::vector<std::string> split_method_list(std::string_view text);

}  // namespace evalrun::methods
