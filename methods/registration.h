// How methods are registered: what one says of itself, and how a text names it.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/options.h"
#include "engine/base/registry.h"
#include "engine/cost/row_cost.h"
#include "methods/draft_rule.h"
#include "methods/method.h"

namespace evalrun::methods {

// How far the steps of equal generations are the same; greedy tokens are in any case.
// kFollowMachine: within a run, as the row costs were measured before it; kCarryState: not even
// there, because something goes on from prompt to prompt.
enum class StepReproducibility { kFixed, kFollowMachine, kCarryState };

// A parameter, `name:key=value`.
struct ParamInfo : base::OptionInfo {
  struct StepsAt {
    std::string value;  // empty = at none
    StepReproducibility steps = StepReproducibility::kFixed;
    std::string other = {};  // a second value with the same
  };
  StepsAt steps_at = {};  // the values at which steps are less than fixed
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
  // What a forward of n rows of the target costs here, of each of `slots` sequences, for methods
  // that choose their block size. Null when it is not known: in a plan, in tests, and when it could
  // not be measured. Outlives the method.
  const engine::RowCostTable* row_cost = nullptr;
  // Sequences that are decoded at once: the method and DecodingMethod::another() of it.
  int slots = 1;
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
  // Synthetic acceptance: it drafts from GenerationContext::known_answer, which no method can know.
  // Rows are marked so and never ranked. Runs alone give the answer.
  bool needs_answer = false;
  std::string notes = {};  // what a reader of papers should know: which rows mean this method
  std::vector<ParamInfo> params;  // Parameters<...>::infos(); its bound() makes the functions below
  std::string version = "1";      // bumped when its numbers can change
  std::function<std::unique_ptr<DecodingMethod>(const MethodParams&, const MethodBuildContext&)>
      build;
  // What it drafts by, without the verifier and never adaptive: makes it a part of joined drafts
  // (methods/joined_draft.h). Empty where it can only be used alone, and `alone` says why.
  std::function<std::unique_ptr<Drafter>(const MethodParams&, const MethodBuildContext&)> drafter =
      {};
  std::string alone = {};
  // Whether --draft is for it with these parameters; empty = as takes_draft_model.
  std::function<bool(const MethodParams&)> takes_draft_with = {};
  // What one parameter's limits cannot say (one against another); throws usage_error. May be empty.
  // Called by parse_method, before any model is loaded.
  std::function<void(const MethodParams&)> check = {};
  // The model this method decodes where that is not the run's own (SPACE changes the target); null
  // or empty = the run's own. `build` gets the run's own in its context all the same.
  std::function<std::shared_ptr<const engine::Model>(const MethodParams&,
                                                     const MethodBuildContext&)>
      tuned = {};
  // Plain decoding of that model, as on the command line: what such a method is compared with.
  std::function<std::string(const MethodParams&)> plain = {};
  // Files named by the parameters, as name -> content hash, and what these files say of themselves
  // that a report needs: part of the arm's key, so that a corpus that was built anew does not
  // resume an old run. "flatters": why figures of such an arm are too good for what the method is,
  // which reports show with its row. May be empty.
  std::function<std::map<std::string, std::string>(const MethodParams&, const MethodBuildContext&)>
      files = {};
  // What sampled answers share with plain decoding's, where nothing is lossy; empty = the tokens.
  // usage_error for a rule that needs another sampler.
  std::function<SampledAnswers(const MethodParams&, const engine::SamplingParams&)> sampled = {};
  // Where parameters give losslessness up; empty = they never do.
  std::function<Lossless(const MethodParams&)> lossless_with = {};
  // How far its steps are fixed at most, where ParamInfo::steps_at cannot say it.
  std::function<StepReproducibility(const MethodParams&)> steps_with = {};
  // The same values in one spelling, where a text holds more than one setting. Called before
  // `check`; throws usage_error.
  std::function<MethodParams(const MethodParams&)> spelled = {};
};

const base::Registry<MethodInfo>& method_registry();

// "pld:k=10,ngram=3" -> name and parameters with defaults filled in; throws usage_error with
// suggestions for unknown methods and parameters.
struct MethodSpec {
  const MethodInfo* info = nullptr;
  MethodParams params;
  std::string canonical() const;      // "pld:k=4,match=first,min_ngram=1,ngram=3": every parameter
  std::string label() const;          // "pld:k=4": those that are not the default, for tables
  StepReproducibility steps() const;  // what its parameters leave of it
  Lossless lossless() const;
  bool takes_draft_model() const;
  SampledAnswers sampled(const engine::SamplingParams& sampling) const;
};
MethodSpec parse_method(std::string_view text);
// A name for whichever method was chosen (runners/plan/auto_method.h). parse_method() refuses it.
inline constexpr std::string_view kChosenMethod = "auto";
// The model a method decodes: the run's own, or what it makes of it.
std::shared_ptr<const engine::Model> decoded_model(const MethodSpec& spec,
                                                   const MethodBuildContext& context);
// "ar,pld:k=4,sps:draft=layers:4" -> items. A comma followed by key= continues the parameters of
// the method before it. Braces are expanded (engine/base/braces.h): "pld:k={2,4}" is two items.
std::vector<std::string> split_method_list(std::string_view text);

}  // namespace evalrun::methods
