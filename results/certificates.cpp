#include "results/certificates.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "engine/base/text.h"
#include "results/read_rows.h"

namespace evalrun::results {
namespace {

// Settings of a run that change no token's distribution. A batch does not: rows of a forward do not
// depend on each other, and random numbers belong to places of an answer.
bool is_of_the_run(const std::string& name) {
  return name == "seed" || name == "order" || name == "max_turns" || name == "steps" ||
         name == "replay" || name == "batch_mode" || name == "sampler" || name == "sampled" ||
         name.starts_with("max_new.");
}

bool document_has(const StoredCertificate& certificate, const char* name) {
  const auto document = nlohmann::json::parse(certificate.document, nullptr, false);
  return document.is_object() && document.contains(name);
}

// Of a row "key, created, method, outcome, proven, document".
StoredCertificate read_certificate(const Row& row) {
  StoredCertificate c{row.text(0), row.text(1), row.text(2), row.text(3), row.text(4), row.text(5)};
  if (!document_has(c, "grades")) c.proven = c.proven.starts_with("greedy") ? "greedy" : "";
  return c;
}

}  // namespace

std::string certificate_key(const ArmRecord& arm, const std::string& commit) {
  nlohmann::json settings = nlohmann::json::object();
  for (const auto& [name, value] : arm.settings)
    if (!is_of_the_run(name)) settings[name] = value;
  const nlohmann::json key = {{"commit", commit},
                              {"method", arm.method},
                              {"params", arm.params},
                              {"method_version", arm.method_version},
                              {"model_hash", arm.model_hash},
                              {"draft_hash", arm.draft_hash},
                              {"dtype", arm.dtype},
                              {"isa", arm.isa},
                              {"device", arm.device},
                              {"kv_cache", arm.kv_cache},
                              {"settings", settings}};
  return base::sha256_hex(key.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::string stored_key(const std::string& arm_key, const AnswerSampling& sampling) {
  if (sampling.temperature == 0) return arm_key;
  return fmt::format("{}@T={} top_k={} top_p={} {}", arm_key, sampling.temperature, sampling.top_k,
                     sampling.top_p, sampling.sampler.empty() ? "inverse" : sampling.sampler);
}

void put_certificate(ResultStore& store, const StoredCertificate& c) {
  store.execute(
      "INSERT INTO certificate (key, created, method, outcome, proven, document) "
      "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET created = excluded.created, "
      "method = excluded.method, outcome = excluded.outcome, proven = excluded.proven, "
      "document = excluded.document",
      {c.key, c.created, c.method, c.outcome, c.proven, c.document});
}

std::optional<StoredCertificate> find_certificate(const ResultStore& store,
                                                  const std::string& key) {
  return one(store,
             "SELECT key, created, method, outcome, proven, document FROM certificate "
             "WHERE key = ?",
             {key}, [](const Row& row) { return read_certificate(row); });
}

std::optional<StoredCertificate> certificate_beside(const ResultStore& store,
                                                    const std::string& arm_key,
                                                    const AnswerSampling& sampling) {
  // Between these two lies what begins with the key and an '@'.
  const std::vector<StoredCertificate> newest_first =
      all(store,
          "SELECT key, created, method, outcome, proven, document FROM certificate "
          "WHERE key = ? OR (key > ? AND key < ?) ORDER BY created DESC, key",
          {arm_key, arm_key + "@", arm_key + "A"},
          [](const Row& row) { return read_certificate(row); });
  if (sampling.temperature > 0)
    for (const StoredCertificate& c : newest_first)
      if (c.key == stored_key(arm_key, sampling)) return c;
  for (const StoredCertificate& c : newest_first)
    if (document_has(c, "greedy")) return c;
  if (newest_first.empty()) return std::nullopt;
  return newest_first.front();
}

std::string shown_by(const StoredCertificate& certificate) {
  const auto document = nlohmann::json::parse(certificate.document, nullptr, false);
  if (document.is_object() && document.contains("shown") && document["shown"].is_string())
    return document["shown"].get<std::string>();
  return certificate.proven;
}

}  // namespace evalrun::results
