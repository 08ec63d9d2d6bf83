// gpu_large_shapes: products and one layer of a large model's shape on the emulated device, against
// plain references. What small shapes cannot show: indices of such sizes. Its kernels and host code
// are compiled to stop at a signed number that overflows. Needs no GPU; takes minutes to hours.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/base/units.h"
#include "engine/cuda/kernels/device_code.h"
#include "engine/cuda/kernels/device_matrix.h"
#include "engine/cuda/kernels/products.h"
#include "engine/cuda/kernels/row_ops.h"
#include "engine/cuda/runtime/queue.h"
#include "engine/devices.h"
#include "engine/model/parallel_for.h"
#include "engine/model/shape_model.h"
#include "engine/model/shapes.h"
#include "engine/session.h"
#include "tests/gpu/emulator/include/emulator.h"
#include "tests/gpu/product_definition.h"
#include "tests/gpu/report/program.h"
#include "tests/gpu/report/shapes.h"

namespace evalrun::engine::gpu_report {
namespace {

using cuda::DeviceBuffer;
using cuda::DeviceMatrix;
using cuda::Joint;
using cuda::testing::DefinedOutput;

constexpr const char* kUsage = R"(usage: gpu_large_shapes SHAPE FORMAT VOCABULARY ROWS...

  SHAPE       one of engine/model/shapes.json, such as llama-2-70b
  FORMAT      bf16, int8, q4
  VOCABULARY  outputs of the output matrix; 0: no output matrix
  ROWS        rows of a step, 1 to 64; several

Each product of a layer, and the output matrix: every output of three rows of the largest step, and
some tiles of all its rows, against their definition in double; rows of smaller steps must have
the same bits. Then a step of one layer after a short prompt, against the same weights in float32 on
the CPU. Exit code 1 where something differs.
)";

constexpr int kMostRows = 64, kTilesOfAllRows = 32, kContext = 16, kLayerVocabulary = 2048;
constexpr uint64_t kSeed = 70;

// Numbers that matrices take their rows from, each from another place: no two rows are alike.
class Pool {
 public:
  explicit Pool(int widest) {
    base::Rng rng(kSeed);
    values_.resize(kPlaces + static_cast<size_t>(widest));
    for (float& v : values_) v = static_cast<float>(rng.uniform() - 0.5);
  }
  std::span<const float> row(uint64_t matrix, int o, int in) const {
    const uint64_t place = base::combine_seeds({matrix, static_cast<uint64_t>(o)}) % kPlaces;
    return std::span(values_).subspan(place, static_cast<size_t>(in));
  }

 private:
  static constexpr size_t kPlaces = size_t{1} << 22;
  std::vector<float> values_;
};

struct Product {
  std::string name;
  int in;
  std::vector<int> outs;  // of its parts
  Joint joint;
  WeightStorage storage;
};

std::vector<Product> products_of(const ModelConfig& c, WeightFormat format, int vocabulary) {
  const WeightFormatSpec& spec = spec_of(format);
  std::vector<Product> products = {
      {"q, k, v", c.d_model, {c.q_dim(), c.kv_dim(), c.kv_dim()}, Joint::kBehind, spec.layers},
      {"o", c.q_dim(), {c.d_model}, Joint::kBehind, spec.layers},
      {"gate, up", c.d_model, {c.d_ffn, c.d_ffn}, Joint::kTurns, spec.layers},
      {"down", c.d_ffn, {c.d_model}, Joint::kBehind, spec.layers}};
  if (vocabulary > 0)
    products.push_back({"output", c.d_model, {vocabulary}, Joint::kBehind, spec.head});
  return products;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// What differs, first of all; counted from several threads.
class Differences {
 public:
  void add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (++n_ <= 10) std::printf("  DIFFERENT: %s\n", text.c_str());
  }
  long count() const { return n_; }

 private:
  std::mutex mutex_;
  long n_ = 0;
};

// --- products ------------------------------------------------------------------------------------

std::vector<WeightMatrix> make_parts(const Product& p, const Pool& pool) {
  std::vector<WeightMatrix> parts;
  for (const int out : p.outs) {
    WeightMatrix& w = parts.emplace_back(WeightMatrix::storage_for_values(p.storage), out, p.in);
    const uint64_t matrix = base::combine_seeds(
        {static_cast<uint64_t>(p.in), static_cast<uint64_t>(out), parts.size()});
    parallel_for(allowed_cores(), static_cast<size_t>(out), [&](size_t o) {
      w.set_row(static_cast<int>(o), pool.row(matrix, static_cast<int>(o), p.in));
    });
  }
  return parts;
}

std::vector<float> on_device(const DeviceMatrix& m, const std::vector<float>& x, int rows,
                             cudaStream_t stream) {
  const auto n = static_cast<size_t>(rows);
  const DeviceBuffer from(n * static_cast<size_t>(m.in()) * sizeof(float));
  from.upload(x.data(), from.bytes());
  const DeviceBuffer in(n * static_cast<size_t>(m.padded_in()) * sizeof(uint16_t));
  const DeviceBuffer y(n * static_cast<size_t>(m.outputs()) * sizeof(float));
  cuda::ProductWorkspace workspace;
  workspace.ensure(cuda::product_geometry(m.storage(), m.ref().tiles, m.ref().blocks, rows));
  const cuda::WaitOnError before_they_go(stream);
  cuda::round_rows(from.as<float>(), m.in(), m.in(), 1.0f, {in.as<void>(), m.padded_in(), true},
                   rows, stream);
  cuda::Epilogue e;
  e.y = y.as<float>(), e.ldy = e.outputs = m.outputs();
  cuda::multiply({m.ref(), in.as<void>(), rows, e}, workspace, stream);
  EVALRUN_CUDA(cudaStreamSynchronize(stream));
  std::vector<float> values(n * static_cast<size_t>(m.outputs()));
  EVALRUN_CUDA(cudaMemcpy(values.data(), y.as<void>(), values.size() * sizeof(float),
                          cudaMemcpyDeviceToHost));
  return values;
}

// Where the device has output o of a part.
int device_output(const DeviceMatrix& m, Joint joint, size_t part, int o) {
  return m.part(part) + (joint == Joint::kTurns ? o / 8 * cuda::kTile + o % 8 : o);
}

// Tiles of a part whose outputs are looked at in every row: its ends, and some between.
std::set<int> tiles_of_all_rows(int out) {
  const int tiles = (out + cuda::kTile - 1) / cuda::kTile;
  std::set<int> chosen = {0, tiles - 1};
  for (int i = 1; i < kTilesOfAllRows; ++i)
    chosen.insert(static_cast<int>(int64_t{i} * tiles / kTilesOfAllRows));
  return chosen;
}

void check_product(const Product& p, const std::vector<int>& steps, const Pool& pool,
                   Differences& differences) {
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<WeightMatrix> parts = make_parts(p, pool);
  std::vector<const WeightMatrix*> pointers;
  for (const WeightMatrix& w : parts) pointers.push_back(&w);
  const cuda::Queue queue(false);
  const DeviceMatrix m(pointers, p.joint, queue.stream());
  const int most = steps.back();
  std::vector<float> x;
  for (int r = 0; r < most; ++r) {
    const auto row = pool.row(kSeed, r, p.in);
    x.insert(x.end(), row.begin(), row.end());
  }
  std::printf("%s: %d inputs, %d outputs, %s on the device; made in %.0f s\n", p.name.c_str(), p.in,
              m.outputs(), base::format_bytes(static_cast<double>(m.bytes())).c_str(),
              seconds_since(begin));
  std::fflush(stdout);

  std::map<int, std::vector<float>> y;
  for (const int rows : steps) {
    const auto start = std::chrono::steady_clock::now();
    y[rows] = on_device(m, x, rows, queue.stream());
    std::printf("  %d rows: %.0f s\n", rows, seconds_since(start));
    std::fflush(stdout);
  }
  const auto start = std::chrono::steady_clock::now();
  const std::vector<float>& all = y[most];
  const auto at = [&](int r, int output) {
    return all[static_cast<size_t>(r) * static_cast<size_t>(m.outputs()) +
               static_cast<size_t>(output)];
  };
  for (const auto& [rows, of_step] : y)
    if (std::memcmp(of_step.data(), all.data(), of_step.size() * sizeof(float)) != 0)
      differences.add(fmt::format("{}: bits of {} rows beside those of {}", p.name, rows, most));

  for (float& value : x) value = cuda::bf16_to_float(cuda::float_to_bf16(value));
  const std::set<int> whole = {0, most / 2, most - 1};
  std::mutex mutex;
  long looked_at = 0;
  double worst = 0;  // of what is allowed
  for (size_t part = 0; part < parts.size(); ++part) {
    const WeightMatrix& w = parts[part];
    const std::set<int> tiles = tiles_of_all_rows(w.out());
    parallel_for(allowed_cores(), static_cast<size_t>(w.out()), [&](size_t index) {
      const int o = static_cast<int>(index), output = device_output(m, p.joint, part, o);
      const DefinedOutput defined(w, o);
      const bool every_row = tiles.count(o / cuda::kTile) != 0;
      long n = 0;
      double most_off = 0;
      for (int r = 0; r < most; ++r) {
        if (!every_row && whole.count(r) == 0) continue;
        const DefinedOutput::Value want = defined.of(std::span(x).subspan(
            static_cast<size_t>(r) * static_cast<size_t>(p.in), static_cast<size_t>(p.in)));
        const float got = at(r, output);
        if (!want.holds(got))
          differences.add(fmt::format("{}: part {}, output {}, row {}: {} instead of {} +- {}",
                                      p.name, part, o, r, got, want.sum, want.tolerance));
        most_off =
            std::max(most_off, std::fabs(static_cast<double>(got) - want.sum) / want.tolerance);
        ++n;
      }
      const std::lock_guard lock(mutex);
      looked_at += n, worst = std::max(worst, most_off);
    });
  }
  std::printf("  %ld outputs beside their definition: the worst %.3f of what is allowed; %.0f s\n",
              looked_at, worst, seconds_since(start));
  std::fflush(stdout);
}

// --- one layer -----------------------------------------------------------------------------------

double relative_error(std::span<const float> got, std::span<const float> want) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double g = got[i], w = want[i];
    difference += (g - w) * (g - w), size += w * w;
  }
  return std::sqrt(difference / size);
}

// The bounds are those that small models have (tests/gpu/backend_test.cpp).
void check_layer(ModelConfig c, WeightFormat format, const std::vector<int>& steps,
                 Differences& differences) {
  c.n_layers = 1, c.vocab_size = kLayerVocabulary;
  const auto model =
      engine::make_shape_model(c, {.format = format, .n_threads = allowed_cores(), .seed = kSeed});
  SessionOptions o;
  o.device = "cuda", o.max_tokens = kContext + 2 * kMostRows, o.n_threads = allowed_cores();
  const auto device = Session::create(model, o);
  o.device = "cpu", o.isa = "reference", o.n_threads = 1;
  const auto plain = Session::create(convert_model(*model, WeightFormat::kF32), o);
  std::vector<int32_t> prompt;
  base::Rng rng(kSeed);
  for (int i = 0; i < kContext; ++i)
    prompt.push_back(static_cast<int32_t>(rng.below(kLayerVocabulary)));
  auto start = std::chrono::steady_clock::now();
  device->prefill(prompt);
  std::printf("one layer: prompt of %d tokens in %.0f s\n", kContext, seconds_since(start));
  std::fflush(stdout);

  std::vector<Row> tree = random_tree(steps.back(), kLayerVocabulary, kSeed);
  for (Row& row : tree) row.hidden = true;
  const int layers[] = {0, 1};
  std::map<int, std::vector<std::vector<float>>> values;  // of a step's rows: all that is compared
  const auto run = [&](Session& s, int rows) {
    const ForwardResult result = s.forward(
        {.rows = std::span(tree).first(static_cast<size_t>(rows)), .residual_layers = layers});
    std::vector<std::vector<float>> all;
    for (int r = 0; r < rows; ++r)
      for (const auto& view : {result.logits_row(r), result.hidden_row(r),
                               result.residual[0].row(r), result.residual[1].row(r)})
        all.emplace_back(view.begin(), view.end());
    return all;
  };
  for (const int rows : steps) {
    start = std::chrono::steady_clock::now();
    values[rows] = run(*device, rows);
    std::printf("  %d rows: %.0f s\n", rows, seconds_since(start));
    std::fflush(stdout);
  }
  for (const auto& [rows, of_step] : values)
    for (size_t i = 0; i < of_step.size(); ++i)
      if (of_step[i] != values[steps.back()][i])
        differences.add(fmt::format("layer: bits of row {} among {}", i / 4, rows));

  start = std::chrono::steady_clock::now();
  plain->prefill(prompt);
  const auto want = run(*plain, steps.back());
  double sum = 0, worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = relative_error(values[steps.back()][i], want[i]);
    sum += error, worst = std::max(worst, error);
    if (!(error < 0.06)) differences.add(fmt::format("layer: row {} is {} off", i / 4, error));
  }
  const double mean = sum / static_cast<double>(want.size());
  if (!(mean < 0.015)) differences.add(fmt::format("layer: rows are {} off", mean));
  std::printf("  beside float32 on the CPU: %.2f %% off, the worst row %.2f %%; %.0f s\n",
              100 * mean, 100 * worst, seconds_since(start));
  std::fflush(stdout);
}

int number_of(const std::string& text, int least, int most) {
  char* end = nullptr;
  const long n = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || n < least || n > most)
    throw base::usage_error(fmt::format("'{}': expected a number from {} to {}", text, least, most),
                            kUsage);
  return static_cast<int>(n);
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 4) throw base::usage_error("four arguments and more are needed", kUsage);
  const ModelConfig c = find_shape(arguments[0]).config;
  const WeightFormat format = weight_format_by_name(arguments[1]);
  if (format == WeightFormat::kAuto || spec_of(format).layers == WeightStorage::kF32)
    throw base::usage_error(fmt::format("'{}': one of bf16, int8, q4", arguments[1]), kUsage);
  const int vocabulary = number_of(arguments[2], 0, 1 << 20);
  std::vector<int> steps;
  for (size_t i = 3; i < arguments.size(); ++i)
    steps.push_back(number_of(arguments[i], 1, kMostRows));
  std::sort(steps.begin(), steps.end());
  (void)setenv("EVALRUN_CUDA_CUBLAS", "0", 1);  // the prompt, too, goes by our kernels
  emulator::set_device_memory(size_t{16} << 30);
  cuda::prepare_products();

  std::printf("%s, %s\n", arguments[0].c_str(), arguments[1].c_str());
  Differences differences;
  const Pool pool(std::max(c.d_ffn, c.d_model));
  for (const Product& p : products_of(c, format, vocabulary))
    check_product(p, steps, pool, differences);
  check_layer(c, format, steps, differences);
  std::printf("%ld differences\n", differences.count());
  return differences.count() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace evalrun::engine::gpu_report

int main(int argc, char** argv) {
  using namespace evalrun::engine::gpu_report;
  return run_program(argc, argv, kUsage, run);
}
