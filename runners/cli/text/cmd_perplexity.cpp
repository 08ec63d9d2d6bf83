// evalrun perplexity: how well a model predicts a text, and how far one storage format is from
// another. The number that shows first when a loader, a kernel or a quantization is wrong.
//
// Two conventions. Default: the text as one sequence, every token but the first predicted from all
// before it. --chunk C, as llama.cpp counts: consecutive chunks of C tokens, each on its own and
// without a begin token, a shorter remainder dropped; only predictions of the second half of a
// chunk count (tokens C/2+1 .. C-1), and one newline at the end of the file is dropped.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>

#include "engine/base/stats.h"
#include "engine/base/text.h"
#include "engine/sampling.h"
#include "engine/tokenizer/tokenizer.h"
#include "runners/cli/cli.h"
#include "runners/cli/output.h"

namespace evalrun::cli {
namespace {

constexpr int kRowsAtOnce = 256;  // rows per forward: bounds the logits held at a time
constexpr int kMinChunk = 4;

struct PerplexityArguments {
  ModelOptions model;
  std::string file;
  int chunk = 0;  // 0 = whole text
  std::string against;
};

struct Sums {
  int64_t scored = 0, same_top1 = 0;
  double nll = 0, nll_ref = 0, kl = 0;
  std::vector<double> differences;  // nll - nll_ref of every token: the two are paired
};

// exp of the mean difference, and its standard error: that of the mean, carried through exp (the
// delta method). Tokens are taken as independent, which short texts are not quite.
struct Ratio {
  double value = 1;
  std::optional<double> standard_error;  // not from one token
};
Ratio perplexity_ratio(const std::vector<double>& differences) {
  Ratio ratio;
  ratio.value = std::exp(base::mean(differences));
  if (differences.size() > 1)
    ratio.standard_error = ratio.value * base::sample_sd(differences) /
                           std::sqrt(static_cast<double>(differences.size()));
  return ratio;
}

// log of the sum of exp(logits), float64.
double log_sum_exp(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - top);
  return top + std::log(sum);
}

// KL(reference || other) from the logits of both.
double divergence(std::span<const float> reference, double reference_lse,
                  std::span<const float> other, double other_lse) {
  double sum = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double log_ref = static_cast<double>(reference[i]) - reference_lse;
    const double log_other = static_cast<double>(other[i]) - other_lse;
    sum += std::exp(log_ref) * (log_ref - log_other);
  }
  return sum;
}

// Scores the predictions of tokens[first..], first >= 1, of one sequence in empty sessions.
void score_sequence(engine::Session& session, engine::Session* reference,
                    std::span<const int32_t> tokens, int first, Sums& sums) {
  const int n = static_cast<int>(tokens.size());
  for (engine::Session* s : {&session, reference}) {
    if (s == nullptr) continue;
    s->reset();
    if (first > 1) s->prefill(tokens.first(static_cast<size_t>(first - 1)));
  }
  for (int begin = first - 1; begin < n - 1; begin += kRowsAtOnce) {
    const int count = std::min(kRowsAtOnce, n - 1 - begin);
    std::vector<engine::Row> rows(static_cast<size_t>(count));
    std::vector<int> path(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
      rows[static_cast<size_t>(i)].token = tokens[static_cast<size_t>(begin + i)];
      rows[static_cast<size_t>(i)].parent = i - 1;
      path[static_cast<size_t>(i)] = i;
    }
    engine::ForwardRequest request;
    request.rows = rows;
    const engine::ForwardResult result = session.forward(request);
    std::optional<engine::ForwardResult> ref;
    if (reference != nullptr) ref = reference->forward(request);
    for (int i = 0; i < count; ++i) {
      const auto next = static_cast<size_t>(tokens[static_cast<size_t>(begin + i + 1)]);
      const std::span<const float> logits = result.logits_row(i);
      const double lse = log_sum_exp(logits);
      const double nll = lse - static_cast<double>(logits[next]);
      sums.nll += nll;
      ++sums.scored;
      if (!ref) continue;
      const std::span<const float> ref_logits = ref->logits_row(i);
      const double ref_lse = log_sum_exp(ref_logits);
      const double nll_ref = ref_lse - static_cast<double>(ref_logits[next]);
      sums.nll_ref += nll_ref;
      sums.differences.push_back(nll - nll_ref);
      sums.kl += divergence(ref_logits, ref_lse, logits, lse);
      sums.same_top1 += engine::argmax(ref_logits) == engine::argmax(logits) ? 1 : 0;
    }
    session.commit(path);
    if (reference != nullptr) reference->commit(path);
  }
}

void run_perplexity(const PerplexityArguments& options) {
  if (options.chunk != 0 && options.chunk < kMinChunk)
    throw base::usage_error(
        fmt::format("--chunk must be at least {}, not {}", kMinChunk, options.chunk));
  std::string text = base::read_file(options.file);
  if (options.chunk > 0 && text.ends_with('\n')) text.pop_back();

  // A wrong name is said before a model is read for seconds.
  if (!options.against.empty()) engine::weight_format_by_name(options.against);
  const std::shared_ptr<const engine::Model> model = options.model.load();
  std::shared_ptr<const engine::Model> reference_model;
  if (!options.against.empty()) {
    ModelOptions reference_options = options.model;
    reference_options.dtype = options.against;
    // The same format needs no second copy of the weights; it still gets its own session.
    const bool same = options.against == options.model.dtype ||
                      options.against == engine::name_of(model->format());
    reference_model = same ? model : reference_options.load();
  }

  engine::EncodeOptions encode;
  encode.add_special =
      options.chunk == 0;  // as the model sees a document; chunks have no begin token
  const std::vector<int32_t> tokens = model->tokenizer()->encode(text, encode);
  const int n = static_cast<int>(tokens.size());
  const int needed = options.chunk > 0 ? options.chunk : 2;
  if (n < needed)
    throw base::data_error(options.file, "",
                           fmt::format("has {} tokens, at least {} are needed", n, needed),
                           "give a longer text or a smaller --chunk");
  const int length = options.chunk > 0 ? options.chunk : n;
  if (length > model->config().max_context)
    throw base::data_error(options.file, "",
                           fmt::format("{} tokens in one pass, but the model's context holds {}",
                                       length, model->config().max_context),
                           "use --chunk 512, or a shorter text");

  const engine::SessionOptions session_options = options.model.session_options(length);
  const auto session = engine::Session::create(model, session_options);
  // The reference keeps the usual cache and bits of its format.
  engine::SessionOptions reference_options = session_options;
  reference_options.kv_dtype.clear();
  reference_options.one_isa = false;
  const auto reference =
      reference_model ? engine::Session::create(reference_model, reference_options) : nullptr;
  Sums sums;
  if (options.chunk == 0) {
    score_sequence(*session, reference.get(), tokens, 1, sums);
  } else {
    for (int begin = 0; begin + options.chunk <= n; begin += options.chunk)
      score_sequence(
          *session, reference.get(),
          std::span(tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(options.chunk)),
          options.chunk / 2 + 1, sums);
  }

  if (!std::isfinite(sums.nll))
    throw base::data_error(model->path(), "", "the model gives logits that are not numbers",
                           "the weights are damaged: run evalrun validate on the file");
  const auto scored = static_cast<double>(sums.scored);
  nlohmann::ordered_json out;
  out["dtype"] = engine::name_of(model->format());
  out["kv_dtype"] = session->options().kv_dtype;
  out["isa"] = session->isa();
  out["tokens"] = sums.scored;
  out["nll"] = sums.nll;
  out["perplexity"] = std::exp(sums.nll / scored);
  if (reference) {
    const Ratio ratio = perplexity_ratio(sums.differences);
    out["dtype_ref"] = engine::name_of(reference_model->format());
    out["perplexity_ref"] = std::exp(sums.nll_ref / scored);
    out["perplexity_ratio"] = ratio.value;
    out["perplexity_ratio_se"] =
        ratio.standard_error ? nlohmann::ordered_json(*ratio.standard_error) : nullptr;
    out["kl"] = sums.kl / scored;
    out["same_top1"] = static_cast<double>(sums.same_top1) / scored;
  }
  print_json(out);
}

}  // namespace

void add_perplexity_command(CLI::App& app, Context&) {
  auto* command = app.add_subcommand("perplexity", "How well a model predicts a text (JSON)");
  auto options = std::make_shared<PerplexityArguments>();
  options->model.add_without_draft(*command);
  command->add_option("--file", options->file, "Text file (UTF-8)")->required();
  command
      ->add_option("--chunk", options->chunk,
                   "Score chunks of C tokens, second halves only (llama.cpp's convention); "
                   "default: the whole text in one pass")
      ->type_name("C");
  command
      ->add_option(
          "--against", options->against,
          "Weight format to compare with: adds perplexity_ref, perplexity_ratio (--dtype over "
          "this format) with its standard error, kl (mean per token, reference against "
          "--dtype) and same_top1 (share)")
      ->type_name("FORMAT");
  command->footer(
      "One JSON object: tokens = predictions scored, nll = sum of their negative log-likelihoods\n"
      "(nats), perplexity = exp(nll / tokens).\n"
      "The standard error is that of the paired difference, token by token.\n\nExamples:\n"
      "  evalrun perplexity --file book.txt\n"
      "  evalrun perplexity --file wiki.test.raw --chunk 512\n"
      "  evalrun perplexity -m model.gguf --file book.txt --dtype int8 --against f32");
  command->callback([options] { run_perplexity(*options); });
}

}  // namespace evalrun::cli
