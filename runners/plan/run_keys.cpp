// Keys: SHA-256 over canonical JSON (sorted names) of everything that changes a figure. Equal keys
// resume, unequal keys never mix.
#include <nlohmann/json.hpp>

#include "engine/base/text.h"
#include "runners/plan/plan.h"

namespace evalrun::runners {
namespace {

std::string hash_json(const nlohmann::json& json) {
  // Prompts may hold bytes that are not UTF-8; a replaced byte only costs a collision between two
  // broken texts, a throw would cost the run.
  return base::sha256_hex(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

// A server that was started again listens at another port, and is the same one. How long it takes
// to start changes no figure.
nlohmann::json without_ports(nlohmann::json suite) {
  if (const auto list = suite.find("endpoints"); list != suite.end())
    for (nlohmann::json& item : *list) {
      EndpointSpec spec = parse_endpoint(item.get<std::string>(), "suite");
      const std::string host = host_of(spec);
      spec.url.clear();
      spec.start_s.reset();
      item = to_string(spec) + " on " + host;
    }
  return suite;
}

}  // namespace

std::string arm_key(const results::ArmRecord& arm) {
  // Byte counts are results, not settings, and the label repeats method and role.
  return hash_json({{"method", arm.method},
                    {"params", arm.params},
                    {"method_version", arm.method_version},
                    {"role", arm.role},
                    {"model_hash", arm.model_hash},
                    {"draft_hash", arm.draft_hash},
                    {"dtype", arm.dtype},
                    {"isa", arm.isa},
                    {"device", arm.device},
                    {"threads", arm.threads},
                    {"batch", arm.batch},
                    {"kv_cache", arm.kv_cache},
                    {"temperature", arm.temperature},
                    {"top_p", arm.top_p},
                    {"top_k", arm.top_k},
                    {"max_new", arm.max_new},
                    {"ignore_eos", arm.ignore_eos},
                    {"settings", arm.settings}});
}

std::string plan_arm_key(const results::ArmRecord& arm) {
  results::ArmRecord anywhere = arm;
  anywhere.threads = 0;
  anywhere.device = arm.device.substr(0, arm.device.find(':'));
  // Else every path gives the same bits.
  const auto bits = arm.settings.find("bits");
  if (bits == arm.settings.end() || bits->second != "one-isa") anywhere.isa.clear();
  return arm_key(anywhere);
}

std::string prompt_key(const results::PromptRecord& record, const datasets::Prompt& prompt) {
  // Later turns cannot be rendered before the model answers, so their messages are hashed as they
  // are.
  nlohmann::json later = nlohmann::json::array();
  for (size_t i = 1; i < record.turns.size(); ++i) later.push_back(record.turns[i]);
  nlohmann::json key = {{"task", record.task},
                        {"id", record.id},
                        {"rendered", record.rendered_hash},
                        {"later_turns", later}};
  // Where an answer ends changes its figures, and so does how later turns are rendered. Prompts
  // without such rules keep the keys they had.
  if (const datasets::StopRules& stop = prompt.stop; !stop.empty())
    key["stop"] = {{"strings", stop.strings}, {"closing_brace", stop.closing_brace}};
  if (!prompt.chat_template.empty()) key["chat_template"] = prompt.chat_template;
  return hash_json(key);
}

std::string plan_key(const Suite& suite, const RunKeyParts& parts) {
  RunKeyParts anywhere = parts;
  anywhere.machine = "any";
  return run_key(suite, anywhere);
}

std::string run_key(const Suite& suite, const RunKeyParts& parts) {
  return hash_json({{"suite", without_ports(to_json(suite))},
                    {"arms", parts.arm_keys},
                    {"prompts", parts.prompt_keys},
                    {"build", parts.build},
                    {"machine", parts.machine},
                    {"label", parts.label},
                    {"nonce", parts.nonce},
                    {"faults", parts.faults},
                    {"evaluators", parts.evaluator_versions}});
}

}  // namespace evalrun::runners
