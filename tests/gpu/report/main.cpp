// gpu_report: what the CUDA engine takes and reaches on this machine's GPU, as Markdown and JSON.
// Run by tests/gpu/run.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>

#include "build_commit.h"
#include "engine/base/error.h"
#include "engine/cpu/caches.h"
#include "engine/cuda/memory_plan.h"
#include "engine/cuda/runtime/check.h"
#include "engine/cuda/runtime/devices.h"
#include "engine/cuda/runtime/nvml.h"
#include "engine/cuda/runtime/product_path.h"
#include "tests/gpu/report/expected_before.h"
#include "tests/gpu/report/expected_hopper.h"
#include "tests/gpu/report/expected_times.h"
#include "tests/gpu/report/markdown.h"
#include "tests/gpu/report/predicted_bits.h"
#include "tests/gpu/report/program.h"

namespace evalrun::engine::gpu_report {
namespace {

constexpr const char* kUsage =
    R"(usage: gpu_report [--only WHAT] [--out DIR] [--part N/M] [--model PATH] [--seconds N] [--tiny]
       gpu_report --plan
       gpu_report --expected
       gpu_report --once SHAPE

  --only WHAT   of the report's three parts one: predicted (bits of logits beside those that were
                predicted), bits (rows of trees beside the row alone), times
  --out DIR     where gpu-report.md and gpu-report.json go (default: here); with --only and --part
                gpu-report-WHAT-NofM
  --part N/M    only each M-th shape, from the N-th on
  --model PATH  a real model (GGUF file or Hugging Face folder) as bf16, too
  --seconds N   budget (default 240); what does not fit is listed as not measured
  --tiny        shapes of a few kilobytes, to try the program
  --plan        what models take of a GPU's memory; needs none
  --expected    what steps are expected to take on known GPUs; needs none
  --once SHAPE  for a profiler: two layers of SHAPE ("Llama-2-7B bf16"), one step of 1, 16 and 64
                rows each, kernel by kernel, between cudaProfilerStart and cudaProfilerStop
)";

constexpr const char *kOnlyPredicted = "predicted", *kOnlyBits = "bits", *kOnlyTimes = "times";

struct Options {
  std::string out = ".", model, only;
  int part = 1, parts = 1;
  double seconds = 240;
  bool tiny = false;
  bool wants(const char* what) const { return only.empty() || only == what; }
};

int whole_number(const std::string& option, std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1)
    throw base::usage_error(fmt::format("{}: '{}' is no number from 1 on", option, text), kUsage);
  return value;
}

Options parse(const std::vector<std::string>& arguments) {
  Options o;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i];
    if (name == "--tiny") {
      o.tiny = true;
      continue;
    }
    if (name != "--only" && name != "--out" && name != "--part" && name != "--model" &&
        name != "--seconds")
      throw base::usage_error(fmt::format("unknown option '{}'", name), kUsage);
    if (i + 1 == arguments.size())
      throw base::usage_error(fmt::format("{} needs a value", name), kUsage);
    const std::string& value = arguments[++i];
    if (name == "--only" && value != kOnlyPredicted && value != kOnlyBits && value != kOnlyTimes)
      throw base::usage_error(fmt::format("--only: there is no part '{}'", value), kUsage);
    if (name == "--only") o.only = value;
    if (name == "--out") o.out = value;
    if (name == "--model") o.model = value;
    if (name == "--seconds") o.seconds = whole_number(name, value);
    if (name == "--part") {
      const size_t slash = value.find('/');
      if (slash == std::string::npos)
        throw base::usage_error(fmt::format("--part: '{}' is not of the form N/M", value), kUsage);
      o.part = whole_number(name, std::string_view(value).substr(0, slash));
      o.parts = whole_number(name, std::string_view(value).substr(slash + 1));
      if (o.part > o.parts)
        throw base::usage_error(fmt::format("--part: there is no part {} of {}", o.part, o.parts),
                                kUsage);
    }
  }
  return o;
}

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

Json describe(const cuda::Device& d, const cuda::DeviceList& list) {
  const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(); };
  const cuda::GpuFacts facts =
      cuda::Nvml::of_this_machine().facts(d.pci_bus_id).value_or(cuda::GpuFacts{});
  return {{"GPU", d.name},
          {"compute capability", fmt::format("{}.{}", d.compute_major, d.compute_minor)},
          {"memory, GiB", static_cast<double>(d.memory_bytes) / 0x1p30},
          {"CUDA of the build", list.runtime_version},
          {"CUDA of the driver", list.driver_version},
          {"driver", facts.driver_version},
          {"products (EVALRUN_CUDA_PATH)", cuda::name_of(cuda::product_path())},
          {"SM clock, most, MHz", or_null(facts.sm_mhz_max)},
          {"memory clock, MHz", or_null(facts.memory_mhz)},
          {"power limit, W", or_null(facts.power_limit_w)},
          {"ECC", d.ecc}};
}

std::string clocks(const cuda::Device& d) {
  const auto s = cuda::Nvml::of_this_machine().sample(d.pci_bus_id);
  if (!s) return "not known";
  const auto text = [](const std::optional<double>& value, const char* unit) {
    return value ? fmt::format("{:.0f} {}", *value, unit) : std::string("-");
  };
  const std::string reasons = s->reasons ? cuda::words_of_reasons(*s->reasons) : "";
  return fmt::format("{}, {}, {}, {}", text(s->sm_mhz, "MHz"), text(s->temperature_c, "C"),
                     text(s->power_w, "W"), reasons.empty() ? "full speed" : reasons);
}

constexpr double kAssumedMhz = 1700;  // where NVML says nothing

GpuFacts facts(const cuda::Device& d, const Copies& copies, const DensePeak& peak) {
  cudaDeviceProp properties;
  EVALRUN_CUDA(cudaGetDeviceProperties(&properties, d.index));
  const cuda::GpuFacts nvml =
      cuda::Nvml::of_this_machine().facts(d.pci_bus_id).value_or(cuda::GpuFacts{});
  return {.name = d.name,
          .multiprocessors = properties.multiProcessorCount,
          .ghz = static_cast<double>(nvml.sm_mhz_max.value_or(kAssumedMhz)) / 1e3,
          .read_bytes_per_s = copies.read_bytes_per_second(),
          .flops_per_s = peak.flops_per_second,
          .overlaps = cuda::launches_overlap()};
}

// What was expected of it beside what was measured.
void add_expected(Json& result, const Model& model, const GpuFacts& gpu) {
  const auto expected = [&](const Json& of) {
    const int rows = of.at("rows").get<int>(), context = of.at("context").get<int>();
    return cuda::product_path() == cuda::ProductPath::kHopper
               ? expected_hopper_step(model.config(), model.format(), rows, context, gpu)
               : expected_step(model.config(), model.format(), rows, context, gpu);
  };
  const auto at_once_us = [&](const Json& of) {
    return cuda::product_path() == cuda::ProductPath::kPersistent
               ? expected_persistent_us(model.config(), model.format(), of.at("rows").get<int>(),
                                        of.at("context").get<int>(), gpu)
               : 0.0;
  };
  const auto add_to_step = [&](Json& step) {
    if (const double us = at_once_us(step); us > 0)
      step["expected_ms"] = us / 1e3;
    else if (const ExpectedStep e = expected(step); !e.kernels.empty())
      step["expected_ms"] = e.in_graph_us() / 1e3;
  };
  for (const char* table : {"all_logits", "top_only"})
    if (result.contains(table))
      for (Json& step : result[table]) add_to_step(step);
  if (result.contains("long_context")) add_to_step(result["long_context"]);
  if (!result.contains("profiles")) return;
  for (Json& profile : result["profiles"]) {
    const ExpectedStep e = expected(profile);
    for (Json& kernel : profile["kernels"])
      if (const double us = e.alone_us(kernel.at("kernel").get<std::string>()); us > 0)
        kernel["expected_us"] = us;
  }
}

// What times are measured with and held against.
struct Bench {
  Copies copies;
  DensePeak peak;
  GpuFacts gpu;
  Bench(const cuda::Device& d, bool tiny)
      : copies(tiny ? size_t{1} << 20 : size_t{1} << 30, tiny ? 0 : 0.3),
        peak(dense_peak(tiny ? 64 : 8192)),
        gpu(facts(d, copies, peak)) {}
  void describe_in(Json& report) const {
    report["copy"] = {{"bytes", copies.bytes()}, {"bytes_per_s", copies.bytes_per_second()}};
    report["read"] = {{"bytes", copies.bytes()}, {"bytes_per_s", copies.read_bytes_per_second()}};
    report["empty_span_us"] = empty_span_us(copies);
    report["dense_peak"] = {{"n", peak.n}, {"flops_per_s", peak.flops_per_second}};
    report["expected_for"] = {
        {"multiprocessors", gpu.multiprocessors}, {"ghz", gpu.ghz}, {"overlap", gpu.overlaps}};
  }
};

class Report {
 public:
  Report(Options options, const cuda::DeviceList& list)
      : o_(std::move(options)),
        device_(list.devices.front()),
        work_(workload(o_.tiny)),
        deadline_(o_.seconds) {
    json_ = {{"date", utc_now()},
             {"commit", EVALRUN_COMMIT},
             {"part", fmt::format("{}/{}", o_.part, o_.parts)},
             {"only", o_.only},
             {"seconds", 0.0},
             {"device", describe(device_, list)},
             {"predicted_bits", Json::object()},
             {"shapes", Json::array()},
             {"not_measured", Json::array()}};
  }

  // True when nothing was found wrong. What says most comes first: whether bits are right.
  bool run() {
    std::shared_ptr<const Model> real;
    if (!o_.model.empty()) {  // first: a path that is wrong shall not be found minutes later
      LoadOptions options;
      options.format = WeightFormat::kBf16;
      options.need_tokenizer = options.hash_weights = false;
      real = load_model(o_.model, options);
    }
    if (o_.wants(kOnlyPredicted) && o_.part == 1) compare_predictions();
    std::vector<Shape> shapes;
    int number = 0;
    for (Shape& shape : report_shapes(o_.tiny))
      if (number++ % o_.parts == o_.part - 1) shapes.push_back(std::move(shape));
    if (o_.wants(kOnlyBits)) {
      for (const Shape& shape : shapes)
        if (shape.bit_layers == 0)
          (void)shape_named(shape.name);  // whose rows are not, which is said
        else
          compare(shape.name,
                  [&] { return make_shape_model(shape, 0, 1, shape.bit_layers).model; });
      if (real) compare(o_.model, [&] { return real; });
    }
    if (o_.wants(kOnlyTimes)) {
      const Bench bench(device_, o_.tiny);
      bench.describe_in(json_);
      const size_t least =
          std::max<size_t>(o_.tiny ? 0 : size_t{1} << 30,
                           static_cast<size_t>(cpu::kTimesTheCaches * device_.cache_bytes));
      for (const Shape& shape : shapes)
        measure(shape.name, bench, [&] { return make_shape_model(shape, least, 1); });
      if (real) measure(o_.model, bench, [&] { return ShapeModel{real, real->config().n_layers}; });
    }
    write();
    return good_;
  }

 private:
  void compare_predictions() {
    const TensorCores how = cuda::testing::tensor_cores_of_device(device_.compute_major);
    Json& result = json_["predicted_bits"];
    result["model"] = name_of(how);
    if (how == TensorCores::kExact) return;
    const base::EmbeddedFile& file = embedded_predictions().front();
    const Predictions predictions = parse_predictions(file.name, file.text);
    result["made_from"] = predictions.made_from;
    result["cases"] = Json::array();
    for (const BitCase& c : bit_cases(!o_.tiny)) {
      Json j = {{"case", c.name}};
      try {
        deadline_.check();
        const CaseComparison compared =
            compare_with_prediction(c, compute_bits(c), predictions, how);
        j["compared"] = compared.compared, j["equal"] = compared.equal;
        if (!compared.why_not.empty()) j["why_not"] = compared.why_not;
        if (compared.first) j["first"] = compared.first->text();
        good_ = good_ && !compared.first;
      } catch (const base::DeviceFault&) {
        throw;
      } catch (const std::exception& e) {  // no time, or it does not fit
        j["compared"] = j["equal"] = 0, j["why_not"] = e.what();
      }
      result["cases"].push_back(std::move(j));
    }
    std::printf("%s\n", predicted_bits_line(result).c_str());
    std::fflush(stdout);
    write();
  }

  Json& shape_named(const std::string& name) {
    for (Json& shape : json_["shapes"])
      if (shape.at("shape") == name) return shape;
    json_["shapes"].push_back({{"shape", name}});
    return json_["shapes"].back();
  }

  template <typename Work>
  void try_to(const std::string& name, const char* what, const Work& work) {
    try {
      deadline_.check();
      work();
    } catch (const base::DeviceFault&) {
      throw;
    } catch (const OutOfTime& e) {
      leave_out(name, what, e.what());
    } catch (const base::Error& e) {  // does not fit this GPU, as a rule
      leave_out(name, what, e.what());
      good_ = good_ && e.code() == base::ExitCode::kData;
    }
    write();
  }

  // `make` gives the model whose rows are compared, bit by bit.
  template <typename Make>
  void compare(const std::string& name, const Make& make) {
    say_begin(name, kOnlyBits);
    Json& result = shape_named(name);
    try_to(name, "bit identity", [&] {
      compare_bits(make(), work_, deadline_, result);
      const Json& b = result.at("bit_identity");
      good_ = good_ && b.at("equal") == b.at("compared");
      std::printf("          %d of %d rows equal\n", b.at("equal").get<int>(),
                  b.at("compared").get<int>());
    });
  }

  template <typename Make>
  void measure(const std::string& name, const Bench& bench, const Make& make) {
    say_begin(name, kOnlyTimes);
    Json& result = shape_named(name);
    ShapeModel m;
    try_to(name, "steps and prefill", [&] {
      m = make();
      result["layers"] = m.model->config().n_layers;
      result["distinct_layers"] = m.distinct_layers;
      result["clocks"]["before"] = clocks(device_);
      measure_steps(m.model, work_, bench.copies, deadline_, result);
      result["clocks"]["after the steps"] = clocks(device_);
    });
    if (m.model == nullptr) return;
    try_to(name, "profile",
           [&] { profile_steps(m.model, work_, bench.copies, deadline_, result); });
    add_expected(result, *m.model, bench.gpu);
    write();
  }

  void say_begin(const std::string& name, const char* what) const {
    std::printf("%6.1f s  %s, %s\n", deadline_.elapsed(), name.c_str(), what);
    std::fflush(stdout);
  }

  void leave_out(const std::string& name, const char* what, const char* why) {
    std::printf("          not measured: %s: %s\n", what, why);
    json_["not_measured"].push_back(
        {{"what", fmt::format("{}, {} (the rest of it)", name, what)}, {"why", why}});
  }

  // After each part: what was written stays when the program is stopped.
  void write() {
    json_["seconds"] = deadline_.elapsed();
    std::string name = "gpu-report";
    if (!o_.only.empty()) name += "-" + o_.only;
    if (o_.parts > 1) name += fmt::format("-{}of{}", o_.part, o_.parts);
    for (const auto& [end, text] :
         {std::pair{".json", json_.dump(1) + "\n"}, {".md", markdown(json_)}}) {
      const std::string path = o_.out + "/" + name + end;
      if (!(std::ofstream(path) << text << std::flush))
        throw base::data_error(path, "", "cannot be written", "name another folder with --out");
    }
  }

  const Options o_;
  const cuda::Device& device_;
  const Workload work_;
  const Deadline deadline_;
  Json json_;
  bool good_ = true;
};

// Markdown, as in docs/gpu.md.
void print_plans() {
  std::printf(
      "| model | weights | + context 4,096 | + 32,768 | + 4 x 4,096 |\n|---|--:|--:|--:|--:|\n");
  for (const Shape& shape : planned_shapes()) {
    const auto plan = [&](int tokens, int sequences) {
      SessionOptions o;
      o.max_tokens = tokens, o.n_sequences = sequences;
      return cuda::plan_memory(shape.config, shape.format, o);
    };
    const auto gib = [](size_t bytes) { return static_cast<double>(bytes) / 0x1p30; };
    std::printf("| %s | %.2f | %.2f | %.2f | %.2f |\n", shape.name.c_str(),
                gib(plan(4096, 1).weights), gib(plan(4096, 1).total()), gib(plan(32768, 1).total()),
                gib(plan(4096, 4).total()));
  }
}

int run_once(const std::string& name) {
  for (const bool tiny : {false, true})
    for (const Shape& shape : report_shapes(tiny))
      if (shape.name == name) {
        step_once(make_shape_model(shape, 0, 1, 2).model, workload(tiny));
        return 0;
      }
  std::string names;
  for (const Shape& shape : report_shapes(false)) names += "\n  " + shape.name;
  throw base::usage_error(fmt::format("--once: there is no shape '{}'", name), "one of" + names);
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 2 && arguments[0] == "--once") return run_once(arguments[1]);
  if (arguments == std::vector<std::string>{"--expected"}) {
    std::fputs(expected_tables().c_str(), stdout);
    std::fputs(("\n" + before_and_after_tables()).c_str(), stdout);
    std::fputs(("\n" + expected_hopper_tables()).c_str(), stdout);
    return 0;
  }
  if (arguments == std::vector<std::string>{"--plan"}) {
    print_plans();
    return 0;
  }
  const Options o = parse(arguments);
  const cuda::DeviceList& list = cuda::list_devices();
  if (list.devices.empty()) {
    std::printf("SKIPPED: no GPU (%s)\n", list.error.c_str());
    return 0;
  }
  std::filesystem::create_directories(o.out);
  return Report(o, list).run() ? 0 : 1;
}

}  // namespace
}  // namespace evalrun::engine::gpu_report

int main(int argc, char** argv) {
  using namespace evalrun::engine::gpu_report;
  return run_program(argc, argv, kUsage, run);
}
