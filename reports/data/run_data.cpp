#include "reports/data/run_data.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::reports {

const ArmInfo* RunData::baseline() const {
  for (const ArmInfo& a : arms)
    if (a.role == "baseline") return &a;
  return nullptr;
}

namespace {

bool same_batch(const ArmInfo& a, const ArmInfo& b) {
  return a.batch == b.batch && batch_mode(a) == batch_mode(b);
}

// Of the arm's model, among arms that `fits` holds for.
template <typename Fits>
const ArmInfo* first_plain(const std::vector<ArmInfo>& arms, const ArmInfo& arm, const Fits& fits) {
  const auto base = std::find_if(arms.begin(), arms.end(),
                                 [&](const ArmInfo& a) { return a.role == "baseline" && fits(a); });
  if (arm.method != kTunedPlain && base != arms.end() && base->model_hash == arm.model_hash)
    return &*base;
  const bool own = arm.method == kTunedPlain && fits(arm);
  for (const ArmInfo& a : arms)
    if (own ? a.id == arm.id : a.method == kTunedPlain && a.model_hash == arm.model_hash && fits(a))
      return &a;
  return base == arms.end() ? nullptr : &*base;
}

}  // namespace

const ArmInfo* RunData::reference(const ArmInfo& arm) const {
  const ArmInfo* found =
      first_plain(arms, arm, [&](const ArmInfo& a) { return same_batch(a, arm); });
  return found != nullptr ? found : baseline();
}

const ArmInfo* RunData::reference_alone(const ArmInfo& arm) const {
  return first_plain(arms, arm, [](const ArmInfo& a) { return a.batch == 1; });
}

namespace {

// Labels of older runs hold the whole path of a file, newer ones its end.
bool same_but_for_folders(std::string_view a, std::string_view b) {
  const std::vector<std::string> x = base::split(a, ','), y = base::split(b, ',');
  return std::equal(
      x.begin(), x.end(), y.begin(), y.end(), [](const std::string& one, const std::string& other) {
        if (one == other) return true;
        const auto& [file, path] =
            std::minmax(one, other, [](auto& s, auto& t) { return s.size() < t.size(); });
        const size_t equals = file.find('=');
        return equals != file.npos && path.starts_with(file.substr(0, equals + 1)) &&
               path.ends_with("/" + file.substr(equals + 1));
      });
}

}  // namespace

const ArmInfo* arm_of(const std::vector<ArmInfo>& arms, std::string_view label) {
  const ArmInfo* found = nullptr;
  int n = 0;
  for (const ArmInfo& a : arms) {
    if (a.label == label) return &a;
    if (!same_but_for_folders(a.label, label)) continue;
    found = &a;
    ++n;
  }
  return n == 1 ? found : nullptr;
}

const ArmInfo* RunData::arm(std::string_view label) const { return arm_of(arms, label); }

std::string arm_setting(const ArmInfo& arm, const char* name) {
  const nlohmann::json settings = nlohmann::json::parse(arm.settings, nullptr, false);
  if (!settings.is_object() || !settings.contains(name) || !settings[name].is_string()) return "";
  return settings[name].get<std::string>();
}

std::string batch_mode(const ArmInfo& arm) {
  return arm.batch > 1 ? arm_setting(arm, "batch_mode") : "";
}

std::string label_without_batch(const ArmInfo& arm) {
  if (arm.batch == 1) return arm.label;
  const std::string batch = fmt::format(", batch {}", arm.batch);
  const size_t at = arm.label.rfind(batch);
  if (at == std::string::npos) return arm.label;
  // Behind it: the mode, where it is not the usual one, and what else the label ends with.
  constexpr std::string_view kContinuous = " continuous";
  std::string_view rest = std::string_view(arm.label).substr(at + batch.size());
  if (rest.starts_with(kContinuous)) rest.remove_prefix(kContinuous.size());
  return arm.label.substr(0, at) + std::string(rest);
}

bool in_batches(const std::vector<ArmInfo>& arms) {
  return std::any_of(arms.begin(), arms.end(), [](const ArmInfo& a) { return a.batch > 1; });
}

std::string varying_steps(const ArmInfo& arm) { return arm_setting(arm, "steps"); }

bool promises_tokens(const ArmInfo& arm) {
  return !arm.lossy() && (arm.greedy() || arm_setting(arm, "sampled") == "same tokens");
}

bool synthetic(const ArmInfo& arm) { return !arm_setting(arm, "synthetic").empty(); }

Standing standing(const ArmInfo& arm) {
  if (synthetic(arm)) return Standing::kSynthetic;
  return arm.lossy() && !is_server(arm) ? Standing::kLossy : Standing::kLossless;
}

bool is_server(const ArmInfo& arm) { return arm.method == results::kEndpointMethod; }

bool is_plain_label(std::string_view label) {
  return label.empty() || label == "ar" || label.starts_with("ar,");
}

bool replayed(const ArmInfo& arm) { return !arm_setting(arm, "replay").empty(); }

std::string run_title(const RunInfo& run) {
  return fmt::format("run {}{}", run.id, run.label.empty() ? "" : fmt::format(" '{}'", run.label));
}

std::string stored_text(const RunInfo& run) {
  if (run.stored >= run.planned)
    return fmt::format("all {} generations are stored, answers are still to be judged", run.stored);
  return fmt::format("{} of {} generations are stored", run.stored, run.planned);
}

std::string resume_text(const RunInfo& run) {
  const std::string build =
      run.version + (run.commit.empty() ? "" : fmt::format(", commit {}", run.commit));
  return fmt::format("resume it with the build that began it (evalrun {}): {}", build,
                     run.command.empty() ? "the same command goes on where it was" : run.command);
}

std::string machine_name(const RunInfo& run) {
  if (run.several_machines()) return hardware_text(run.machines);
  for (const char* name : {"gpu", "cpu"})
    if (const auto it = run.environment.find(name); it != run.environment.end()) return it->second;
  return "";
}

std::map<int64_t, double> RunData::time_scales() const {
  std::map<int64_t, double> scales;
  if (!run.several_machines()) return scales;
  for (const PromptInfo& p : prompts)
    scales[p.id] = run.machines[static_cast<size_t>(p.machine)].time_scale;
  return scales;
}

namespace {

std::string machines_text(const RunInfo& run) {
  if (!run.several_machines()) return "1 machine";
  const std::string hardware = hardware_text(run.machines);
  return fmt::format("{} machines{}", run.machines.size(),
                     hardware.empty() ? "" : fmt::format(" ({})", hardware));
}

std::multiset<std::string> machine_keys(const RunInfo& run) {
  std::multiset<std::string> keys;
  for (const MachineInfo& m : run.machines) keys.insert(m.key);
  return keys;
}

}  // namespace

std::vector<OtherMachine> other_machines(const RunInfo& first, const RunInfo& second) {
  std::vector<OtherMachine> others;
  if (first.several_machines() || second.several_machines()) {
    if (machine_keys(first) == machine_keys(second)) return {};
    const std::string x = machines_text(first), y = machines_text(second);
    return {{"set of machines", x, x == y ? y + ", others" : y}};
  }
  for (const auto& [name, what] : {std::pair{"cpu", "processor"}, std::pair{"gpu", "GPU"}}) {
    const auto x = first.environment.find(name), y = second.environment.find(name);
    if (x != first.environment.end() && y != second.environment.end() && x->second != y->second)
      others.push_back({what, x->second, y->second});
  }
  return others;
}

std::map<std::string, std::string> engine_mode(const ArmInfo& a) {
  return {{"method version", a.method_version},
          {"parameters", a.params},  // labels leave defaults out, and defaults may change
          {"model", a.model_hash},
          {"draft model", a.draft_hash},
          {"dtype", a.dtype},
          {"isa", a.isa},
          {"device", a.device},
          {"threads", fmt::format("{}", a.threads)},
          {"batch", fmt::format("{}", a.batch)},
          {"KV cache", a.kv_cache ? "on" : "off"},
          {"temperature", fmt::format("{}", a.temperature)},
          {"top-k", fmt::format("{}", a.top_k)},
          {"top-p", fmt::format("{}", a.top_p)},
          {"max_new", fmt::format("{}", a.max_new)},
          {"ignore-eos", a.ignore_eos ? "on" : "off"},
          {"settings", a.settings}};
}

namespace {

nlohmann::json settings_of(const ArmInfo& arm) {
  nlohmann::json settings = nlohmann::json::parse(arm.settings, nullptr, false);
  return settings.is_object() ? settings : nlohmann::json::object();
}

std::string setting_text(const nlohmann::json& settings, const std::string& name) {
  const auto it = settings.find(name);
  if (it == settings.end()) return "not set";
  return it->is_string() ? it->get<std::string>() : it->dump();
}

// A setting of many fields (what an adapter was trained on) has no words of its own.
bool has_fields(const std::string& value) {
  return value.starts_with('{') || value.starts_with('[');
}

}  // namespace

std::vector<OtherMode> other_modes(const ArmInfo& first, const ArmInfo& second) {
  std::vector<OtherMode> others;
  const auto mode = engine_mode(first), other_mode = engine_mode(second);
  for (const auto& [name, value] : mode)
    if (name != "settings" && value != other_mode.at(name))
      others.push_back({name, value, other_mode.at(name)});
  const nlohmann::json settings = settings_of(first), other_settings = settings_of(second);
  std::set<std::string> names;
  for (const nlohmann::json* one : {&settings, &other_settings})
    for (const auto& item : one->items()) names.insert(item.key());
  for (const std::string& name : names) {
    const std::string x = setting_text(settings, name), y = setting_text(other_settings, name);
    if (x == y) continue;
    const char* of_second = has_fields(x) ? "another" : "one";
    others.push_back({name, has_fields(x) ? "one" : x, has_fields(y) ? of_second : y});
  }
  return others;
}

}  // namespace evalrun::reports
