// Autoregressive decoding, the baseline: the same step as every method, with nothing drafted.
#include "methods/builtin_methods.h"

namespace evalrun::methods {
namespace {

class NoDrafter final : public Drafter {
 public:
  std::unique_ptr<Drafter> another(int) const override { return std::make_unique<NoDrafter>(); }
  void start(const GenerationContext&) override {}
  void draft(std::span<const int32_t>, int, TokenTree&) override {}
  LargestStep largest_step() const override { return {.rows = 1}; }
  void add_kept(KeptMemory&) const override {}
};

}  // namespace

MethodInfo autoregressive_method() {
  MethodInfo info;
  info.name = "ar";
  info.summary = "plain autoregressive decoding, one token per step (the baseline)";
  info.source = "definition";
  info.needs = "nothing";
  info.alone = "it drafts nothing";
  info.build = [](const MethodParams&, const MethodBuildContext&) {
    return make_speculative_method(std::make_unique<NoDrafter>());
  };
  return info;
}

}  // namespace evalrun::methods
