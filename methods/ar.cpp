// Autoregressive decoding, the baseline: the same step as every method, with nothing drafted. And
// the same of a target that an adapter changed, the baseline of methods that decode that one.
#include "methods/builtin_methods.h"
#include "methods/tuned_target.h"

namespace evalrun::methods {
namespace {

class NoDrafter final : public Drafter {
 public:
  void start(const GenerationContext&) override {}
  void draft(std::span<const int32_t>, int, TokenTree&) override {}
};

std::unique_ptr<DecodingMethod> build(const MethodParams&, const MethodBuildContext&) {
  return make_speculative_method(std::make_unique<NoDrafter>());
}

}  // namespace

MethodInfo autoregressive_method() {
  MethodInfo info;
  info.name = "ar";
  info.summary = "plain autoregressive decoding, one token per step (the baseline)";
  info.source = "definition";
  info.needs = "nothing";
  info.build = build;
  return info;
}

MethodInfo tuned_autoregressive_method() {
  MethodInfo info;
  info.name = "ar_tuned";
  info.summary = "plain autoregressive decoding of a tuned target (the baseline of space)";
  info.source = "definition";
  info.needs = "a tuned target (scripts/train space), or a checkpoint with a mask token (mask_id)";
  info.notes =
      "Added to a run by itself where space needs it. Its own speedup and same tokens are against "
      "itself, its quality against the original target: adapter= takes controls that were trained "
      "without masks (scripts/train space --p-ar 1), too.";
  info.params = tuned_target_parameters();
  info.build = build;
  info.tuned = tuned_by_parameters;
  info.files = tuned_target_file;
  return info;
}

}  // namespace evalrun::methods
