// Small random models that cover the families' features, and helpers to compare forwards bit by
// bit.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "engine/base/rng.h"
#include "engine/devices.h"
#include "engine/model/model.h"
#include "engine/session.h"
#include "tests/sample.h"

namespace evalrun::engine::testing {

// A path's name as the name of a test may have it.
inline std::string as_test_name(std::string path) {
  std::replace(path.begin(), path.end(), '-', '_');
  return path;
}

// The CUDA kernels on the CPU (tests/gpu/emulator) take a thousand times their time: sweeps are
// cut.
#ifdef EVALRUN_CUDA_EMULATED
constexpr bool kFewCases = true;
#else
constexpr bool kFewCases = false;
#endif

struct NamedModel {
  std::string name;
  std::shared_ptr<const Model> model;
};

inline ModelConfig small_config() {
  ModelConfig c;
  c.architecture = "llama";
  c.name = "random";
  c.n_layers = 2;
  c.d_model = 48;  // multiples of 16 and not, below: both kernel tails are met
  c.n_heads = 4;
  c.n_kv_heads = 2;
  c.head_dim = 16;
  c.d_ffn = 80;
  c.vocab_size = 101;
  c.max_context = 2048;
  c.tied_head = true;
  return c;
}

// An instruction set path, a weight format and a format of the KV cache ("" = the usual one): the
// parameter of the engine's property tests.
struct Path {
  std::string isa;
  WeightFormat format;
  std::string kv_dtype = {};
  bool one_isa = false;
  std::string device = "cpu";
  // Plain loops, far slower than the other paths.
  bool slow() const { return isa == "reference" || isa == "portable"; }
  // Results are not the reference's bits, only its numbers but for rounding.
  bool own_bits() const { return one_isa || (device != "cpu" && format != WeightFormat::kF32); }
  std::string name() const {
    std::string n = fmt::format("{}_{}", device == "cpu" ? isa : device, name_of(format));
    if (!kv_dtype.empty()) n += "_kv_" + kv_dtype;
    if (one_isa) n += "_one_isa";
    std::replace(n.begin(), n.end(), '-', '_');
    return n;
  }
};
inline void PrintTo(const Path& path, std::ostream* out) { *out << path.name(); }
// Weights as a file has them are in tests/formats/k_model_test.cpp.
inline std::vector<Path> cuda_paths() {
  std::vector<Path> paths;
  for (const WeightFormatSpec& spec : rounded_formats())
    paths.push_back({"", spec.format, "", false, "cuda"});
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16})
    for (const char* kv : {"int8", "fp8"}) paths.push_back({"", format, kv, false, "cuda"});
  return paths;
}
inline std::vector<Path> all_paths() {
#ifdef EVALRUN_TEST_CUDA_PATHS  // tests/gpu
  return cuda_paths();
#endif
  std::vector<Path> paths;
  for (const std::string& isa : available_isas())
    for (const WeightFormatSpec& spec : rounded_formats()) paths.push_back({isa, spec.format});
  for (const std::string& isa : one_isa_paths())
    paths.push_back({isa, WeightFormat::kBf16, "", true});
  // The cache is no matter of the weights.
  for (const std::string& isa : available_isas()) {
    paths.push_back({isa, WeightFormat::kInt8, "int8"});
    paths.push_back({isa, WeightFormat::kInt8, "fp8"});
    paths.push_back({isa, WeightFormat::kInt8, "int4"});
    paths.push_back({isa, WeightFormat::kInt8, "f32"});
  }
  return paths;
}

// Whether this is the path that a usual run tests with the largest sizes; another one in other
// runs.
inline bool in_full(const Path& path, const std::string& test) {
  std::vector<std::string> names;
  for (const Path& p : all_paths()) names.push_back(p.name());
  const auto at = std::find(names.begin(), names.end(), path.name()) - names.begin();
  return tests::in_sample(static_cast<size_t>(at), names.size(), 1, test);
}

// cuda_checked looks at every access, which takes ten times the emulator's time. It is to launch
// every kernel over borders of its blocks; that results are right is shown by the other run.
inline bool looks_at_accesses() { return std::getenv("CUDA_EMULATOR_EVERY_KERNEL") != nullptr; }

// Those that give the bits of the reference.
inline std::vector<Path> paths_of_reference_bits() {
  std::vector<Path> paths = all_paths();
  std::erase_if(paths, [](const Path& path) { return path.own_bits(); });
  return paths;
}

inline std::vector<NamedModel> feature_models(WeightFormat format = WeightFormat::kF32) {
  std::vector<NamedModel> models;
  models.push_back({"gqa_tied", make_random_model(small_config(), 1, format)});
  ModelConfig qwen2 = small_config();
  qwen2.architecture = "qwen2";
  qwen2.qkv_bias = true, qwen2.tied_head = false, qwen2.d_model = 40, qwen2.d_ffn = 72;
  models.push_back({"qkv_bias_untied_odd_sizes", make_random_model(qwen2, 2, format)});
  ModelConfig qwen3 = small_config();
  qwen3.architecture = "qwen3";
  qwen3.qk_norm = true, qwen3.head_dim = 24, qwen3.n_kv_heads = 1;
  models.push_back({"qk_norm_head_dim_24_mqa", make_random_model(qwen3, 3, format)});
  ModelConfig mistral = small_config();
  mistral.architecture = "mistral";
  mistral.sliding_window = 16, mistral.n_kv_heads = 4;
  models.push_back({"sliding_window_16_mha", make_random_model(mistral, 4, format)});
  return models;
}

// Where sweeps are cut: on the emulator, and in a usual run with slow paths. The other paths have
// all of a sweep.
inline bool few_cases(const Path& path) {
  return kFewCases || (path.slow() && !tests::test_everything());
}

// Half of them: other ones for other paths, formats and tests. Where cases are few, one.
inline std::vector<NamedModel> some_models(const Path& path) {
  return tests::sample(feature_models(path.format), few_cases(path) ? 1 : 2);
}

inline std::vector<float> copy(std::span<const float> x) { return {x.begin(), x.end()}; }

// Activations as a model has them: normal, and a few inputs far outside (the wide ones).
inline std::vector<float> random_floats(int n, uint64_t seed) {
  base::Rng rng(seed);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = static_cast<float>(rng.uniform() - 0.5);
  for (int i = 0; i < n / 40; ++i)
    x[static_cast<size_t>(rng.below(static_cast<uint64_t>(n)))] *= 30.0f;
  return x;
}

inline std::vector<int32_t> random_tokens(size_t n, int vocab, uint64_t seed) {
  base::Rng rng(seed);
  std::vector<int32_t> tokens(n);
  for (int32_t& t : tokens) t = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab)));
  return tokens;
}

inline std::unique_ptr<Session> open(const std::shared_ptr<const Model>& model, const Path& path,
                                     int threads = 2, int max_tokens = 512, int sequences = 1) {
  SessionOptions o;
  o.device = path.device;
  o.isa = path.isa, o.kv_dtype = path.kv_dtype, o.one_isa = path.one_isa, o.n_threads = threads,
  o.max_tokens = max_tokens, o.n_sequences = sequences;
  return Session::create(model, o);
}

inline std::unique_ptr<Session> open(const std::shared_ptr<const Model>& model,
                                     const std::string& isa, int threads = 2, int max_tokens = 512,
                                     int sequences = 1) {
  return open(model, Path{isa, model->format()}, threads, max_tokens, sequences);
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// The oracle of a path: the reference kernels in its format, or, for a device with bits of its own,
// the same weights in float32.
inline std::unique_ptr<Session> open_reference(const std::shared_ptr<const Model>& model,
                                               const Path& path, int max_tokens = 512) {
  if (path.device == "cpu")
    return open(model, Path{"reference", path.format, path.kv_dtype}, 1, max_tokens);
  return open(path.own_bits() ? convert_model(*model, WeightFormat::kF32) : model,
              Path{"reference", WeightFormat::kF32, path.kv_dtype}, 1, max_tokens);
}
// |got - want| / |want|
inline double relative_error(std::span<const float> got, std::span<const float> want) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - static_cast<double>(want[i]), 2);
    size += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(difference / size);
}
// What a path of own bits may differ from the oracle's numbers by: the rounding of inputs, keys and
// probabilities to bfloat16 is 1 % of these models' logits on average and up to 4 %. In a cache of
// bytes, a number that is e off has another code with probability |e| / step, and then is a whole
// step off: mean square step |e|, not e^2. Here e is .4 % of a head's root mean square and a step
// 1.6 % (the largest of 16 numbers is twice that, and 127 steps): keys and values are twice as far
// off, all numbers 1.41 to 1.49 times (means of 720 numbers of four models, emulated device,
// 2026-11-28). A step of fp8 is an eighth of a number's power of two, 7 % of the root mean square
// on average (normal heads of 16 and 24): sqrt(7 / .4) = 4.2 times as far off, all numbers
// 2.1 to 3.5 times (means of 2,880 numbers, the same models, 2026-11-28).
struct OwnError {
  double mean, most;
};
inline OwnError own_error(const Path& path) {
  const double of_bytes = path.kv_dtype == "int8" ? 1.6 : path.kv_dtype == "fp8" ? 4.2 : 1.0;
  return {0.015 * of_bytes, 0.06 * of_bytes};
}
// The oracle's bits; or its numbers.
inline ::testing::AssertionResult as_reference(const Path& path, std::span<const float> got,
                                               std::span<const float> want, bool bits = true) {
  if (bits && !path.own_bits()) {
    if (same_bits(got, want)) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "other bits than the reference";
  }
  const double error = relative_error(got, want);
  if (error < own_error(path).most) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "relative error " << error;
}

// Rows of a random forest below one root; node i's parent is drawn among the earlier ones.
inline std::vector<Row> random_tree(int n, int vocab, uint64_t seed, int fanout_bias = 0) {
  base::Rng rng(seed);
  std::vector<Row> rows(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) {
    Row& r = rows[static_cast<size_t>(i)];
    r.token = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab)));
    // bias 0: any earlier node; > 0: mostly the last few (deep trees); a chain at 1.
    const uint64_t span = fanout_bias == 0 ? static_cast<uint64_t>(i)
                                           : std::min<uint64_t>(static_cast<uint64_t>(i),
                                                                static_cast<uint64_t>(fanout_bias));
    r.parent = i == 0 ? -1 : i - 1 - static_cast<int32_t>(rng.below(span));
    r.hidden = true;
  }
  return rows;
}

// Nodes from the root to a node, both included.
inline std::vector<int> path_nodes(const std::vector<Row>& rows, int node) {
  std::vector<int> path;
  for (int i = node; i >= 0; i = rows[static_cast<size_t>(i)].parent) path.push_back(i);
  std::reverse(path.begin(), path.end());
  return path;
}

// The plain way: every token of the path alone, one forward and commit each. Logits after each.
inline std::vector<std::vector<float>> decode_each_alone(Session& s,
                                                         const std::vector<int32_t>& path) {
  const int before = s.length();
  std::vector<std::vector<float>> logits;
  for (const int32_t t : path) {
    const Row row{.token = t};
    const ForwardResult r = s.forward({.rows = {&row, 1}});
    const auto last = r.logits_row(0);
    logits.emplace_back(last.begin(), last.end());
    const int zero = 0;
    s.commit({&zero, 1});
  }
  s.rewind(before);
  return logits;
}
inline std::vector<float> decode_alone(Session& s, const std::vector<int32_t>& path) {
  return decode_each_alone(s, path).back();
}

// Every row on the way to `node` has the bits of that text decoded token by token by `plain`, a
// session with the tree's context. `compared` counts the rows.
inline ::testing::AssertionResult path_has_bits_of_plain(const ForwardResult& tree_logits,
                                                         const std::vector<Row>& tree, int node,
                                                         Session& plain, size_t& compared) {
  const std::vector<int> path = path_nodes(tree, node);
  std::vector<int32_t> tokens;
  for (const int i : path) tokens.push_back(tree[static_cast<size_t>(i)].token);
  const auto alone = decode_each_alone(plain, tokens);
  for (size_t i = 0; i < path.size(); ++i, ++compared)
    if (!same_bits(tree_logits.logits_row(path[i]), alone[i]))
      return ::testing::AssertionFailure() << "node " << path[i] << ", on the way to " << node;
  return ::testing::AssertionSuccess();
}

}  // namespace evalrun::engine::testing
