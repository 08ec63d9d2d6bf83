// -m, --draft, --draft-dtype, --device, --dtype, --isa, -t, --chat-template: the same for every
// command.
#include <algorithm>
#include <filesystem>

#include "engine/base/home.h"
#include "engine/base/text.h"
#include "engine/devices.h"
#include "engine/session_options.h"
#include "runners/cli/cli.h"

namespace evalrun::cli {
namespace {

constexpr const char* kGroup = "Model";
constexpr const char* kDefaultModel = "SmolLM2-135M-Instruct.Q4_1.gguf";

std::string join(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

template <typename T>
CLI::Option* listed(CLI::Option* option, const std::optional<T>&) {
  return option;
}
// Without extra arguments: the word after the value is the suite's name.
template <typename T>
CLI::Option* listed(CLI::Option* option, const std::vector<T>&) {
  return option->delimiter(',')->allow_extra_args(false);
}

void add_model_option(CLI::App& app, std::string& model) {
  app.add_option("-m,--model", model, "GGUF file or Hugging Face folder (default: SmolLM2-135M)")
      ->group(kGroup);
}

// `o`: ModelOptions or ModelLists.
template <typename Options>
void add_draft_options(CLI::App& app, Options& o) {
  CLI::Option* const draft =
      app.add_option("--draft", o.draft, "Second model, for methods that draft with one")
          ->group(kGroup);
  std::vector<std::string> names = {kDefaultDtype};
  for (const engine::WeightFormatSpec& spec : engine::weight_formats())
    names.emplace_back(spec.name);
  app.add_option("--draft-dtype", o.draft_dtype,
                 "Weight format of that model (default: as --dtype); of the target's own copy, "
                 "sps:draft=self,draft_dtype=q4")
      ->check(CLI::IsMember(names))
      ->needs(draft)
      ->group(kGroup);
}

// `o`: ModelOptions or ModelLists.
template <typename Options>
void add_engine_options(CLI::App& app, Options& o) {
  const auto option = [&](const char* name, auto& value, const std::string& text) {
    return listed(app.add_option(name, value, text), value)->group(kGroup);
  };
  option("--device", o.device, "Where to compute: cpu, cuda (the first GPU) or cuda:N")
      ->default_str(kDefaultDevice);
  option("--isa", o.isa, "Instruction set path (default: the best this machine has)")
      ->envname("EVALRUN_ISA");
  option("--reproducible", o.bits,
         "cross-isa: the same results on every path; one-isa: faster bf16 where the path has it "
         "(AMX), with results of its own")
      ->check(CLI::IsMember({"cross-isa", "one-isa"}))
      ->default_str(kDefaultBits);
  option("--kv-dtype", o.kv_dtype,
         fmt::format("Keys and values as {} (default: f32 with --dtype f32, else bf16)",
                     fmt::join(engine::kv_dtypes(), ", ")));
  option("-t,--threads", o.threads,
         "Threads (default: the cores this process may use); with a GPU only loading takes them")
      ->check(CLI::Range(0, 1024));
  app.add_option("--chat-template", o.chat_template,
                 "Chat template instead of the model's own: a name (evalrun list templates), or a "
                 "file with Jinja text")
      ->group(kGroup);
}

template <typename Options>
void add_dtype_option(CLI::App& app, Options& o) {
  listed(app.add_option("--dtype", o.dtype, "Weight format to compute with: " + describe_formats()),
         o.dtype)
      ->default_str(kDefaultDtype)
      ->group(kGroup);
}

engine::LoadOptions load_options(const ModelOptions& o, const std::string& dtype) {
  return {.format = engine::weight_format_by_name(dtype),
          .n_threads = o.threads.value_or(0),
          .chat_template = o.chat_template.value_or("")};
}

}  // namespace

const std::vector<IsaInfo>& known_isas() {
  static const std::vector<IsaInfo> known = {
      {"amx", "AMX tiles (amx_tile, amx_int8, amx_bf16)"},
      {"avx512-bf16", "AVX-512 with avx512_bf16"},
      {"avx512", "AVX-512 (avx512f, bw, vl, dq, avx512_vnni)"},
      {"avx2-vnni", "AVX2, FMA and AVX-VNNI"},
      {"avx2", "AVX2 and FMA"},
      {"portable", "nothing"},
      {"reference", "nothing"},
  };
  return known;
}

void check_isa(const std::string& isa) {
  const std::vector<std::string> here = engine::available_isas();
  if (std::find(here.begin(), here.end(), isa) != here.end()) return;
  const auto& known = known_isas();
  const auto found = std::find_if(known.begin(), known.end(),
                                  [&](const IsaInfo& info) { return info.name == isa; });
  throw base::usage_error(
      found != known.end()
          ? fmt::format("this processor cannot run the instruction set path '{}': it needs {}", isa,
                        found->needs)
          : fmt::format("unknown instruction set path '{}' (--isa, EVALRUN_ISA)", isa),
      "available here: " + join(here));
}

std::string describe_formats() {
  std::string text =
      "auto = stored for files with Q4_K, Q5_K or Q6_K in their layers, q4 for "
      "4-bit files it keeps exactly, else int8";
  for (const engine::WeightFormatSpec& spec : engine::weight_formats())
    text += fmt::format("; {} = {}", spec.name, spec.summary);
  return text;
}

std::string default_model_path() {
  const std::filesystem::path home = base::home_folder();
  if (home.empty())
    throw base::data_error(kDefaultModel, "", "nobody knows where the default model is",
                           "set EVALRUN_HOME, or name a model with -m");
  return (home / "models" / kDefaultModel).string();
}

std::string model_path(const std::string& name) {
  if (name == "default") return ModelOptions().path();
  std::vector<std::string> places = {name};
  if (const std::filesystem::path home = base::home_folder(); !home.empty()) {
    places.push_back((home / "models" / name).string());
    places.push_back(places.back() + ".gguf");
  }
  std::error_code ignored;
  for (const std::string& path : places)
    if (std::filesystem::exists(path, ignored)) return path;
  throw base::data_error(name, "", "there is no such model", "looked for " + join(places));
}

void add_data_root(CLI::App& app, std::string& data_root) {
  app.add_option("--data-root", data_root, "Folder of the tasks' files (default: EVALRUN_DATA)")
      ->check(CLI::ExistingDirectory);
}

void ModelOptions::add(CLI::App& app) {
  add_without_draft(app);
  add_draft_options(app, *this);
}

void ModelOptions::add_without_draft(CLI::App& app) {
  add_without_formats(app);
  add_dtype_option(app, *this);
}

void ModelOptions::add_without_formats(CLI::App& app) {
  add_model(app);
  add_engine_options(app, *this);
}

void ModelOptions::add_model(CLI::App& app) { add_model_option(app, model); }

void ModelLists::add(CLI::App& app) {
  app.add_option("-m,--model", model,
                 "GGUF file or Hugging Face folder (default: SmolLM2-135M); again for another")
      ->allow_extra_args(false)
      ->group(kGroup);
  add_engine_options(app, *this);
  add_dtype_option(app, *this);
  add_draft_options(app, *this);
}

std::string ModelOptions::path() const {
  const std::string path = model.empty() ? default_model_path() : model;
  std::error_code ignored;
  if (model.empty() && !std::filesystem::exists(path, ignored))
    throw base::data_error(path, "", "the default model is not there",
                           "fetch it with `evalrun data model`, or name a model with -m");
  return path;
}

std::shared_ptr<const engine::Model> ModelOptions::load() const {
  engine::check_device(device.value_or(kDefaultDevice));
  const engine::LoadOptions options = load_options(*this, dtype.value_or(kDefaultDtype));
  return engine::load_model(path(), options);
}

std::vector<std::string> ModelOptions::words() const {
  std::vector<std::string> words;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {name, value});
  };
  add("--draft", draft);
  add("--draft-dtype", draft_dtype.value_or(""));
  add("--device", device.value_or(""));
  add("--dtype", dtype.value_or(""));
  add("--isa", isa.value_or(""));
  add("--reproducible", bits.value_or(""));
  add("--kv-dtype", kv_dtype.value_or(""));
  add("--chat-template", chat_template.value_or(""));
  if (threads.value_or(0) != 0) add("-t", std::to_string(*threads));
  return words;
}

std::shared_ptr<const engine::Model> ModelOptions::load_draft() const {
  if (draft.empty()) return nullptr;
  return engine::load_model(
      draft, load_options(*this, draft_dtype.value_or(dtype.value_or(kDefaultDtype))));
}

engine::SessionOptions ModelOptions::session_options(int max_tokens) const {
  engine::SessionOptions options;
  options.max_tokens = max_tokens;
  options.n_threads = threads.value_or(0);
  options.device = device.value_or(kDefaultDevice);
  options.isa = isa.value_or("");
  options.one_isa = bits.value_or(kDefaultBits) == "one-isa";
  options.kv_dtype = kv_dtype.value_or("");
  options.time_device = engine::is_gpu(options.device);
  engine::check_device(options.device);
  if (!options.isa.empty() && !engine::is_gpu(options.device)) check_isa(options.isa);
  return options;
}

}  // namespace evalrun::cli
