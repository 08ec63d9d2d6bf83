// -m, --draft, --device, --dtype, --isa, -t, --chat-template: the same for every command.
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "engine/base/text.h"
#include "runners/cli/cli.h"

namespace evalrun::cli {
namespace {

constexpr const char* kDefaultModel = "SmolLM2-135M-Instruct.Q4_1.gguf";

std::string join(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

void check_device(const std::string& device) {
  const std::vector<std::string> devices = engine::available_devices();
  if (std::find(devices.begin(), devices.end(), device) != devices.end()) return;
  throw base::usage_error(
      device.starts_with("cuda")
          ? fmt::format("no device '{}': this version measures on the CPU only", device)
          : fmt::format("unknown device '{}'", device),
      "devices here: " + join(devices));
}

}  // namespace

std::string evalrun_home() {
  if (const char* home = std::getenv("EVALRUN_HOME"); home != nullptr && *home != '\0') return home;
  const char* user = std::getenv("HOME");
  return std::string(user != nullptr ? user : ".") + "/.cache/evalrun";
}

std::string default_model_path() { return evalrun_home() + "/models/" + kDefaultModel; }

void ModelOptions::add(CLI::App& app) {
  const char* group = "Model";
  app.add_option("-m,--model", model, "GGUF file or Hugging Face folder (default: SmolLM2-135M)")
      ->group(group);
  app.add_option("--draft", draft, "Second model, for methods that draft with one")->group(group);
  app.add_option("--device", device, "Where to compute: cpu")->capture_default_str()->group(group);
  app.add_option("--dtype", dtype, "Number format to compute in: f32")
      ->capture_default_str()
      ->group(group);
  app.add_option("--isa", isa, "Instruction set path (default: the best this machine has)")
      ->envname("EVALRUN_ISA")
      ->group(group);
  app.add_option("-t,--threads", threads, "Threads (default: the cores this process may use)")
      ->check(CLI::Range(0, 1024))
      ->group(group);
  app.add_option("--chat-template", chat_template, "Named chat template instead of the model's own")
      ->group(group);
}

std::string ModelOptions::path() const {
  const std::string path = model.empty() ? default_model_path() : model;
  std::error_code ignored;
  if (model.empty() && !std::filesystem::exists(path, ignored))
    throw base::data_error(path, "", "the default model is not there",
                           "fetch it with scripts/get-model, or name a model with -m");
  return path;
}

std::shared_ptr<const engine::Model> ModelOptions::load() const {
  check_device(device);
  return engine::load_model(path(), {.format = engine::weight_format_by_name(dtype),
                                     .n_threads = threads,
                                     .chat_template = chat_template});
}

std::shared_ptr<const engine::Model> ModelOptions::load_draft() const {
  if (draft.empty()) return nullptr;
  return engine::load_model(draft, {.format = engine::weight_format_by_name(dtype),
                                    .n_threads = threads,
                                    .chat_template = chat_template});
}

engine::SessionOptions ModelOptions::session_options(int max_tokens) const {
  check_device(device);
  const std::vector<std::string> isas = engine::available_isas();
  if (!isa.empty() && std::find(isas.begin(), isas.end(), isa) == isas.end())
    throw base::usage_error(fmt::format("no instruction set path '{}' on this machine", isa),
                            "available: " + join(isas));
  engine::SessionOptions options;
  options.max_tokens = max_tokens;
  options.n_threads = threads;
  options.device = device;
  options.isa = isa;
  return options;
}

}  // namespace evalrun::cli
