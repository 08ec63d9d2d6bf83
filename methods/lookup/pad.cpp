// Not a method but an ablation: n random tokens come after the prompt before plain decoding goes
// on. Self-Draft's premise (Gao et al. 2025, Figure 1) is that much of the answer survives this;
// `evalrun score RUN --against ar` says how much. Not lossless, and never ranked with what
// is.
//
// Differs from the figure: the first token of the answer is that of the bare prompt, read before
// the padding, because prefill is the same calls for every arm.
#include <utility>
#include <vector>

#include "methods/builtin_methods.h"
#include "methods/lookup/random_tokens.h"
#include "methods/wrapped_method.h"

namespace evalrun::methods {
namespace {

struct PadOptions {
  TokenSource init = TokenSource::kPrompt;
  int n = 4;
};

class PaddedMethod final : public WrappedMethod {
 public:
  PaddedMethod(const PadOptions& options, int vocab, std::unique_ptr<DecodingMethod> plain)
      : WrappedMethod(std::move(plain)),
        options_(options),
        vocab_(vocab),
        random_(options.init, vocab),
        pad_(static_cast<size_t>(options.n)) {}
  std::unique_ptr<DecodingMethod> another(int slot) const override {
    return std::make_unique<PaddedMethod>(options_, vocab_, another_wrapped(slot));
  }

  void start(const GenerationContext& context) override {
    random_.start(context.prompt);
    const int room = context.target->capacity() - context.target->length(context.sequence) - 1;
    const size_t n = std::min(pad_.size(), static_cast<size_t>(std::max(room, 0)));
    for (size_t i = 0; i < n; ++i) pad_[i] = random_.next();
    const auto pad = std::span<const int32_t>(pad_).first(n);
    if (n > 0) context.target->prefill(pad, context.sequence);
    WrappedMethod::start(context);
  }
  DecodingMethod* wrapped() override { return nullptr; }  // its text is not plain decoding's

 private:
  const PadOptions options_;
  const int vocab_;
  RandomTokens random_;
  std::vector<int32_t> pad_;
};

}  // namespace

MethodInfo padding_ablation() {
  MethodInfo info;
  info.name = "pad";
  info.summary = "ablation: plain decoding after random tokens at the prompt's end";
  info.source = "Gao et al. 2025, AAAI-25, Figure 1";
  info.lossless = Lossless::kNone;
  info.needs = "nothing";
  info.notes =
      "Not a decoding method: it shows how much of an answer survives noise in the prompt.";
  const auto parameters =
      Parameters<PadOptions>{}
          .choice("init", &PadOptions::init, token_sources(), "where the random tokens are drawn")
          .add("n", &PadOptions::n, {0, 64}, "random tokens after the prompt");
  info.params = parameters.infos();
  info.alone = "it drafts nothing";
  info.build = parameters.bound([](const PadOptions& options, const MethodBuildContext& context) {
    return std::make_unique<PaddedMethod>(options, context.target->config().vocab_size,
                                          autoregressive_method().build({}, context));
  });
  return info;
}

}  // namespace evalrun::methods
