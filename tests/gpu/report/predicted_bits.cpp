#include "tests/gpu/report/predicted_bits.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/cuda/kernels/products.h"
#include "engine/devices.h"
#include "engine/model/shape_model.h"
#include "engine/model/shapes.h"
#include "engine/session.h"
#include "tests/gpu/report/shapes.h"
#include "tests/scoped_variable.h"

namespace evalrun::engine::gpu_report {
namespace {

constexpr uint64_t kSeed = 41;
constexpr TensorCores kPredicted[] = {TensorCores::kHopper, TensorCores::kAmpere};

ModelConfig small_config(const char* family, int d_model, int heads, int kv_heads, int head_dim,
                         int d_ffn, int vocabulary) {
  ModelConfig c;
  c.architecture = family, c.name = family;
  c.n_layers = 2, c.d_model = d_model, c.n_heads = heads, c.n_kv_heads = kv_heads;
  c.head_dim = head_dim, c.d_ffn = d_ffn, c.vocab_size = vocabulary, c.max_context = 1024;
  return c;
}
// Sizes are multiples of 16 and of 32, and not; heads as the families have them.
std::vector<ModelConfig> small_families() {
  std::vector<ModelConfig> families = {
      small_config("llama", 96, 4, 2, 64, 160, 131), small_config("qwen2", 40, 4, 2, 16, 72, 101),
      small_config("qwen3", 64, 2, 1, 128, 96, 101), small_config("mistral", 64, 4, 4, 32, 96, 96)};
  families[0].tied_head = true;
  families[1].qkv_bias = true;
  families[2].qk_norm = true;
  families[3].sliding_window = 16;
  return families;
}

class Hash {
 public:
  void add(uint64_t word) { state_ = base::mix64(state_ ^ word); }
  void add(std::span<const std::byte> bytes) {
    for (size_t i = 0; i < bytes.size(); i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + i, std::min<size_t>(8, bytes.size() - i));
      add(word);
    }
  }
  void add(std::span<const float> values) { add(std::as_bytes(values)); }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0;
};

uint64_t hash_of_inputs(const Model& model, int positions) {
  Hash hash;
  hash.add(model.embedding().bytes());
  hash.add(model.head().bytes());
  for (int l = 0; l < model.config().n_layers; ++l) {
    const LayerWeights& w = model.layer(l);
    for (const WeightMatrix* m : w.matrices()) hash.add(m->bytes());
    for (const auto* bias : {&w.q_bias, &w.k_bias, &w.v_bias}) hash.add(std::span(*bias));
  }
  const RopeTable angles = make_rope_table(model.config(), positions);
  hash.add(std::span(angles.cos)), hash.add(std::span(angles.sin));
  return hash.value();
}

RowBits bits_of(std::span<const float> logits) {
  RowBits bits{};
  for (size_t i = 0; i < kFirstLogits; ++i) bits.first[i] = std::bit_cast<uint32_t>(logits[i]);
  Hash hash;
  hash.add(logits);
  bits.hash = hash.value();
  return bits;
}

// Products over several thread blocks, small matrices, too.
class Across {
 public:
  explicit Across(bool all) : usual_(cuda::small_matrix()) {
    if (all) cuda::small_matrix() = 0;
  }
  ~Across() { cuda::small_matrix() = usual_; }
  Across(const Across&) = delete;
  Across& operator=(const Across&) = delete;

 private:
  const int64_t usual_;
};

std::vector<RowBits> compute_step(const BitCase& c, const BitStep& step,
                                  const std::shared_ptr<const Model>& model) {
  const tests::ScopedVariable own_kernels("EVALRUN_CUDA_CUBLAS", "0");
  const Across across(step.across);
  SessionOptions o;
  o.device = "cuda";
  o.max_tokens = c.context + c.most_rows();
  const auto session = Session::create(model, o);
  base::Rng rng(kSeed);
  std::vector<int32_t> prompt(static_cast<size_t>(c.context));
  for (int32_t& t : prompt)
    t = static_cast<int32_t>(rng.below(static_cast<uint64_t>(c.config.vocab_size)));
  session->prefill(prompt);
  const std::vector<Row> tree = random_tree(c.most_rows(), c.config.vocab_size, kSeed);
  const ForwardResult result =
      session->forward({.rows = std::span(tree).first(static_cast<size_t>(step.rows))});
  std::vector<RowBits> rows;
  for (int r = 0; r < step.rows; ++r) rows.push_back(bits_of(result.logits_row(r)));
  return rows;
}

std::string number_text(uint64_t bits) {
  return fmt::format("{:08x} ({:.7g})", bits, std::bit_cast<float>(static_cast<uint32_t>(bits)));
}

// The words of a text, line by line.
class Lines {
 public:
  Lines(std::string_view file, std::string_view text) : file_(file), text_(text) {}
  bool next() {
    words_ = {};
    while (words_.empty() && !text_.empty()) {
      const size_t end = std::min(text_.find('\n'), text_.size());
      words_ = text_.substr(0, end);
      text_.remove_prefix(std::min(end + 1, text_.size()));
      ++number_;
      if (words_.starts_with('#')) words_ = {};
    }
    return !words_.empty();
  }
  std::string_view rest() { return std::exchange(words_, {}); }
  std::string_view word() {
    const size_t end = std::min(words_.find(' '), words_.size());
    const std::string_view word = words_.substr(0, end);
    words_.remove_prefix(std::min(end + 1, words_.size()));
    if (word.empty()) throw error("the line ends too early");
    return word;
  }
  uint64_t hex(size_t digits) {
    const std::string_view text = word();
    uint64_t value = 0;
    const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (bad != std::errc() || end != text.data() + text.size() || text.size() != digits)
      throw error(fmt::format("'{}' are no {} hexadecimal digits", text, digits));
    return value;
  }
  void end() const {
    if (!words_.empty()) throw error(fmt::format("nothing is expected at '{}'", words_));
  }
  base::Error error(std::string_view what) const {
    return base::data_error(file_, fmt::format("line {}", number_), what,
                            "predicted_bits --write makes it anew");
  }

 private:
  std::string_view file_, text_, words_;
  int number_ = 0;
};

}  // namespace

std::string BitStep::text() const {
  return fmt::format("{} row{}{}", rows, rows == 1 ? "" : "s",
                     across ? ", across thread blocks" : "");
}

int BitCase::most_rows() const {
  int most = 0;
  for (const BitStep& s : steps) most = std::max(most, s.rows);
  return most;
}

std::vector<BitCase> bit_cases(bool large) {
  std::vector<BitCase> cases;
  for (const ModelConfig& family : small_families())
    for (const WeightFormatSpec& spec : rounded_formats())
      cases.push_back({fmt::format("{} {}", family.name, spec.name),
                       family,
                       spec.format,
                       140,  // more than a chunk of keys
                       {{1}, {2}, {12}, {17}, {17, true}}});
  if (!large) return cases;
  // Its vocabulary is of the small ones' size: the head is a product like the others.
  ModelConfig layer = find_shape("llama-2-7b").config;
  layer.name = "Llama-2-7B layer", layer.n_layers = 1, layer.vocab_size = 512;
  // 64 rows of one format: they take the emulated device minutes.
  for (const auto& [format, most] :
       {std::pair{WeightFormat::kBf16, 64}, std::pair{WeightFormat::kInt8, 17},
        std::pair{WeightFormat::kQ4, 17}}) {
    BitCase c{fmt::format("{} {}", layer.name, engine::name_of(format)), layer, format, 40, {}};
    for (const int rows : {1, 2, 17, 64})
      if (rows <= most) c.steps.push_back({rows});
    cases.push_back(std::move(c));
  }
  return cases;
}

ComputedCase compute_bits(const BitCase& c) {
  const auto model = make_shape_model(c.config, {.format = c.format,
                                                 .distinct_layers = c.config.n_layers,
                                                 .n_threads = allowed_cores(),
                                                 .seed = kSeed});
  ComputedCase computed{hash_of_inputs(*model, c.context + c.most_rows()), {}};
  for (const BitStep& step : c.steps) computed.steps.push_back(compute_step(c, step, model));
  return computed;
}

std::string_view name_of(TensorCores how) {
  switch (how) {
    case TensorCores::kExact:
      return "exact";
    case TensorCores::kAmpere:
      return "ampere";
    case TensorCores::kHopper:
      return "hopper";
  }
  return "";
}

std::string print_predictions(const Predictions& predictions) {
  std::string out = fmt::format(
      "# Bits of logits that GPUs are to give (tests/gpu/report/predicted_bits.h). A case is a "
      "random\n"
      "# model, with a hash of its weights and angles. A line is a row of its step: by which model "
      "of\n"
      "# tensor cores (both: the same bits by each), the row, a hash of its logits, and the first "
      "{}\n"
      "# of them, as float32 in hexadecimal. Written by predicted_bits --write.\n"
      "made-from {}\n",
      kFirstLogits, predictions.made_from);
  const auto line = [&](std::string_view by, size_t row, const RowBits& bits) {
    out += fmt::format("{} {} {:016x}", by, row, bits.hash);
    for (const uint32_t logit : bits.first) out += fmt::format(" {:08x}", logit);
    out += '\n';
  };
  for (const PredictedCase& c : predictions.cases) {
    out += fmt::format("case {:016x} {}\n", c.inputs, c.name);
    const auto& hopper = c.rows.at(TensorCores::kHopper);
    const auto& ampere = c.rows.at(TensorCores::kAmpere);
    for (size_t r = 0; r < hopper.size(); ++r) {
      const bool same = hopper[r] == ampere[r];
      line(same ? "both" : "hopper", r, hopper[r]);
      if (!same) line("ampere", r, ampere[r]);
    }
  }
  return out;
}

Predictions parse_predictions(std::string_view file, std::string_view text) {
  Predictions predictions;
  Lines lines(file, text);
  while (lines.next()) {
    const std::string_view kind = lines.word();
    if (kind == "made-from") {
      predictions.made_from = lines.rest();
    } else if (kind == "case") {
      PredictedCase& c = predictions.cases.emplace_back();
      c.inputs = lines.hex(16);
      c.name = lines.rest();
      for (const TensorCores how : kPredicted) c.rows[how] = {};
    } else {
      if (predictions.cases.empty()) throw lines.error("a row comes before the first case");
      const std::string_view row = lines.word();
      RowBits bits{};
      bits.hash = lines.hex(16);
      for (uint32_t& logit : bits.first) logit = static_cast<uint32_t>(lines.hex(8));
      lines.end();
      bool any = false;
      for (const TensorCores how : kPredicted) {
        if (kind != "both" && kind != name_of(how)) continue;
        auto& rows = predictions.cases.back().rows[how];
        if (row != fmt::format("{}", rows.size()))
          throw lines.error(fmt::format("row {} is expected here, not '{}'", rows.size(), row));
        rows.push_back(bits), any = true;
      }
      if (!any) throw lines.error(fmt::format("'{}' is no model of tensor cores", kind));
    }
  }
  if (predictions.made_from.empty()) throw lines.error("nothing says what it was made from");
  return predictions;
}

std::string BitDifference::text() const {
  if (index >= 0)
    return fmt::format("step of {}, row {}, logit {}: predicted {}, found {}", step, row, index,
                       number_text(predicted), number_text(found));
  return fmt::format(
      "step of {}, row {}, after its first {} logits: predicted hash {:016x}, found {:016x}", step,
      row, kFirstLogits, predicted, found);
}

CaseComparison compare_with_prediction(const BitCase& c, const ComputedCase& computed,
                                       const Predictions& predictions, TensorCores how) {
  CaseComparison result;
  const auto found = std::find_if(predictions.cases.begin(), predictions.cases.end(),
                                  [&](const PredictedCase& p) { return p.name == c.name; });
  if (found == predictions.cases.end()) {
    result.why_not = "nothing is predicted of it";
    return result;
  }
  if (found->inputs != computed.inputs) {
    result.why_not = fmt::format(
        "its weights or angles are others than those of the prediction (hash {:016x}, predicted "
        "{:016x})",
        computed.inputs, found->inputs);
    return result;
  }
  const std::vector<RowBits>& rows = found->rows.at(how);
  if (static_cast<int>(rows.size()) != c.most_rows()) {
    result.why_not = fmt::format("{} rows are predicted, not {}", rows.size(), c.most_rows());
    return result;
  }
  for (size_t s = 0; s < c.steps.size(); ++s)
    for (size_t r = 0; r < computed.steps[s].size(); ++r) {
      const RowBits &want = rows[r], &got = computed.steps[s][r];
      ++result.compared;
      result.equal += want == got ? 1 : 0;
      if (want == got || result.first) continue;
      BitDifference d{c.steps[s].text(), static_cast<int>(r), -1, want.hash, got.hash};
      for (size_t i = kFirstLogits; i-- > 0;)
        if (want.first[i] != got.first[i])
          d.index = static_cast<int>(i), d.predicted = want.first[i], d.found = got.first[i];
      result.first = d;
    }
  return result;
}

}  // namespace evalrun::engine::gpu_report
