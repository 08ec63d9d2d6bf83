// `hybrid`: several drafters of the list of methods draft one tree (methods/joined_draft.h).
//
//   hybrid:drafts=pld(match=recent;candidates=3)+eagle2,mode=merge
//
// A part is a method; its parameters stand in parentheses, with semicolons between them, because a
// comma ends a parameter of `hybrid` itself.
#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "methods/builtin_methods.h"
#include "methods/joined_draft.h"

namespace evalrun::methods {
namespace {

constexpr size_t kFewestParts = 2, kMostParts = 3;
constexpr const char* kPartsForm =
    "write the parts as pld+eagle2, parameters in parentheses: "
    "pld(match=recent;candidates=3)+eagle2";

struct HybridShape {
  std::string drafts = "pld+eagle2";
  JoinOptions join;
};

[[noreturn]] void refuse_drafts(const std::string& drafts, const std::string& what,
                                const std::string& hint = kPartsForm) {
  throw base::usage_error(fmt::format("hybrid: drafts={}: {}", drafts, what), hint);
}

// At each + that is outside parentheses.
std::vector<std::string> split_parts(const std::string& drafts) {
  std::vector<std::string> pieces(1);
  int open = 0;
  for (const char c : drafts) {
    open += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (open < 0) refuse_drafts(drafts, "a closing parenthesis without an opening one");
    if (c == '+' && open == 0)
      pieces.emplace_back();
    else
      pieces.back() += c;
  }
  if (open > 0) refuse_drafts(drafts, "an opening parenthesis without a closing one");
  return pieces;
}

// "pld(k=4;ngram=2)" as parse_method() wants it.
std::string as_method(const std::string& drafts, std::string_view piece) {
  piece = base::trim(piece);
  if (piece.empty()) refuse_drafts(drafts, "an empty part");
  const size_t open = piece.find('(');
  const std::string name(base::trim(piece.substr(0, open)));
  if (name.find_first_of(":=;") != name.npos)
    refuse_drafts(drafts, fmt::format("'{}' is no name of a method", name));
  if (open == piece.npos) return name;
  if (piece.back() != ')')
    refuse_drafts(drafts, fmt::format("'{}' does not end with its parameters", piece));
  std::string parameters(piece.substr(open + 1, piece.size() - open - 2));
  if (base::trim(parameters).empty())
    refuse_drafts(drafts, fmt::format("'{}' has empty parentheses", piece));
  std::replace(parameters.begin(), parameters.end(), ';', ',');
  return name + ":" + parameters;
}

std::string as_part(const MethodSpec& spec) {
  std::string text = spec.label();
  const size_t colon = text.find(':');
  if (colon == text.npos) return text;
  std::replace(text.begin() + static_cast<std::ptrdiff_t>(colon), text.end(), ',', ';');
  text[colon] = '(';
  return text + ")";
}

void check_part(const std::string& drafts, const MethodSpec& part) {
  const MethodInfo& info = *part.info;
  if (!info.drafter)
    refuse_drafts(drafts, fmt::format("{} cannot be a part: {}", info.name, info.alone),
                  "parts are drafters whose drafts the common verifier takes: pld, rest, eagle2, "
                  "medusa, sps, ...");
  if (part.lossless() != Lossless::kBoth)
    refuse_drafts(drafts, fmt::format("{} is lossy with these parameters", as_part(part)),
                  "joined drafts are verified exactly: leave the lossy rule out");
  const bool adapts = std::ranges::any_of(
      info.params, [](const ParamInfo& parameter) { return parameter.name == "adaptive"; });
  if (adapts && part.params.text("adaptive") == "true")
    refuse_drafts(drafts, fmt::format("{} chooses what to verify by itself", as_part(part)),
                  "leave adaptive=true out: hybrid chooses among the nodes of all parts");
}

std::vector<MethodSpec> parts_of(const std::string& drafts) {
  std::vector<MethodSpec> parts;
  for (const std::string& piece : split_parts(drafts)) {
    const std::string method = as_method(drafts, piece);
    try {
      parts.push_back(parse_method(method));
    } catch (const base::Error& e) {
      refuse_drafts(drafts, e.message(), e.hint());
    }
    check_part(drafts, parts.back());
    for (size_t i = 0; i + 1 < parts.size(); ++i)
      if (parts[i].canonical() == parts.back().canonical())
        refuse_drafts(drafts, fmt::format("the part {} is given twice", as_part(parts.back())));
  }
  if (parts.size() < kFewestParts)
    refuse_drafts(drafts, "one part has nothing to be joined with",
                  fmt::format("give {} or {} parts, or use {} as it is", kFewestParts, kMostParts,
                              parts.front().info->name));
  if (parts.size() > kMostParts)
    refuse_drafts(drafts, fmt::format("{} parts, at most {} are joined", parts.size(), kMostParts));
  return parts;
}

std::string joined_text(const std::vector<MethodSpec>& parts) {
  std::string text;
  for (const MethodSpec& part : parts) text += (text.empty() ? "" : "+") + as_part(part);
  return text;
}

std::unique_ptr<DecodingMethod> build_hybrid(const HybridShape& shape,
                                             const MethodBuildContext& context) {
  std::vector<std::unique_ptr<Drafter>> drafters;
  for (const MethodSpec& part : parts_of(shape.drafts))
    drafters.push_back(part.info->drafter(part.params, context));
  return make_speculative_method(make_joined(std::move(drafters), shape.join, context.row_cost));
}

// Those of the parts. Where two have files of one name, the later one's has its part's number. And
// each part in full with its version: the text of `drafts` leaves defaults out.
std::map<std::string, std::string> hybrid_files(const HybridShape& shape,
                                                const MethodBuildContext& context) {
  std::map<std::string, std::string> all;
  int number = 0;
  for (const MethodSpec& part : parts_of(shape.drafts)) {
    ++number;
    all[fmt::format("part_{}", number)] =
        fmt::format("{} version {}", part.canonical(), part.info->version);
    if (!part.info->files) continue;
    for (const auto& [name, value] : part.info->files(part.params, context))
      if (const auto [at, is_new] = all.emplace(name, value); !is_new && at->second != value)
        all[fmt::format("part_{}_{}", number, name)] = value;
  }
  return all;
}

// Row costs decide in any case. What a part carries from answer to answer is carried here, too.
StepReproducibility hybrid_steps(const HybridShape& shape) {
  StepReproducibility steps = StepReproducibility::kFollowMachine;
  for (const MethodSpec& part : parts_of(shape.drafts)) steps = std::max(steps, part.steps());
  return steps;
}

bool hybrid_takes_draft(const HybridShape& shape) {
  return std::ranges::any_of(parts_of(shape.drafts), &MethodSpec::takes_draft_model);
}

// Plain decoding's tokens, whatever the parts draw by (methods/joined_draft.h). They may refuse the
// run's sampler.
SampledAnswers hybrid_answers(const HybridShape& shape, const engine::SamplingParams& sampling) {
  for (const MethodSpec& part : parts_of(shape.drafts)) part.sampled(sampling);
  return SampledAnswers::kSameTokens;
}

}  // namespace

MethodInfo joined_drafts_method() {
  MethodInfo info;
  info.name = "hybrid";
  info.version = "2";
  info.summary = "two or three drafters draft one tree; the nodes that pay are verified";
  info.source =
      "evalrun (methods/joined_draft.h); nodes by estimated acceptance as in EAGLE-2, arXiv "
      "2406.16858; mode=bandit after Not-a-Bandit, arXiv 2510.20064, and TapOut, arXiv 2511.02017";
  info.needs = "what its parts need";
  info.takes_draft_model = true;
  info.notes =
      "No row of any paper. Drawn drafts of parts are verified by sample and match, whatever rule "
      "the part has alone.";
  info.alone = "its parts can be given here directly";
  const auto parameters =
      Parameters<HybridShape>{}
          .add("drafts", &HybridShape::drafts,
               "the parts, look-ups before trained drafters: pld+eagle2; with parameters: "
               "pld(match=recent;candidates=3)+eagle2")
          .add(Parameters<JoinOptions>{}
                   .add("enough", &JoinOptions::enough, {0, 1},
                        "mode=first: how often a first token must be accepted so that the parts "
                        "after it are not asked")
                   .choice("mode", &JoinOptions::mode,
                           {{"merge", JoinMode::kMerge},
                            {"first", JoinMode::kFirst},
                            {"bandit", JoinMode::kBandit}},
                           "merge: every part that pays drafts; first: a part drafts only where "
                           "those before it are not sure enough; bandit: one part drafts at a "
                           "time, that which gave the most for its cost lately"),
               &HybridShape::join);
  info.params = parameters.infos();
  info.spelled = [parameters, infos = info.params](const MethodParams& params) {
    const HybridShape shape = parameters.of(params);
    return MethodParams(infos,
                        {{"drafts", joined_text(parts_of(shape.drafts))},
                         {"enough", params.text("enough")},
                         {"mode", params.text("mode")}},
                        {"hybrid"});
  };
  info.build = parameters.bound(build_hybrid);
  info.files = parameters.bound(hybrid_files);
  info.steps_with = parameters.bound(hybrid_steps);
  info.takes_draft_with = parameters.bound(hybrid_takes_draft);
  info.sampled = parameters.bound(hybrid_answers);
  return info;
}

}  // namespace evalrun::methods
