#include "runners/cli/measure/run/run_settings.h"

#include <algorithm>

namespace evalrun::cli {
namespace {

constexpr size_t kMostSettings = 64;

// Each setting once with every value of this option.
template <typename T, typename Set>
void multiply(std::vector<RunSetting>& settings, const std::string& option,
              const std::vector<T>& values, const Set& set) {
  if (values.empty()) return;
  std::vector<RunSetting> all;
  for (const RunSetting& before : settings)
    for (auto value = values.begin(); value != values.end(); ++value) {
      if (std::find(values.begin(), value, *value) != value)
        throw base::usage_error(fmt::format("--{} names {} twice", option, *value),
                                "each value is a run of its own; name it once");
      RunSetting& one = all.emplace_back(before);
      set(one, *value);
      if (values.size() > 1)
        one.name += fmt::format("{}{}={}", one.name.empty() ? "" : ",", option, *value);
    }
  if (all.size() > kMostSettings)
    throw base::usage_error(
        fmt::format("these options stand for {} runs, more than {}", all.size(), kMostSettings),
        "give fewer values, in several commands");
  settings = std::move(all);
}

}  // namespace

std::vector<RunSetting> every_setting(const ModelLists& model, const std::vector<int>& max_new,
                                      const std::vector<double>& temperature) {
  RunSetting first;
  if (model.model.size() == 1) first.model.model = model.model.front();
  first.model.draft = model.draft;
  first.model.draft_dtype = model.draft_dtype;
  first.model.chat_template = model.chat_template;
  std::vector<RunSetting> settings = {first};
  const auto option = [&](const char* name, const std::vector<std::string>& values,
                          std::optional<std::string> ModelOptions::*field) {
    multiply(settings, name, values,
             [&](RunSetting& s, const std::string& v) { s.model.*field = v; });
  };
  option("device", model.device, &ModelOptions::device);
  option("dtype", model.dtype, &ModelOptions::dtype);
  option("isa", model.isa, &ModelOptions::isa);
  option("reproducible", model.bits, &ModelOptions::bits);
  option("kv-dtype", model.kv_dtype, &ModelOptions::kv_dtype);
  multiply(settings, "threads", model.threads, [](RunSetting& s, int v) { s.model.threads = v; });
  multiply(settings, "max-new", max_new, [](RunSetting& s, int v) { s.max_new = v; });
  multiply(settings, "temperature", temperature,
           [](RunSetting& s, double v) { s.temperature = v; });
  return settings;
}

}  // namespace evalrun::cli
