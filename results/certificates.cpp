#include "results/certificates.h"

#include <nlohmann/json.hpp>

#include "engine/base/text.h"
#include "results/read_rows.h"

namespace evalrun::results {
namespace {

// Settings of a run that change no token's distribution.
bool is_of_the_run(const std::string& name) {
  return name == "seed" || name == "order" || name == "max_turns" || name == "steps" ||
         name == "replay" || name == "sampler" || name == "sampled" || name.starts_with("max_new.");
}

bool has_grades(const StoredCertificate& certificate) {
  const auto document = nlohmann::json::parse(certificate.document, nullptr, false);
  return document.is_object() && document.contains("grades");
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
             {key}, [](const Row& row) {
               StoredCertificate c{row.text(0), row.text(1), row.text(2),
                                   row.text(3), row.text(4), row.text(5)};
               if (!has_grades(c)) c.proven = c.proven.starts_with("greedy") ? "greedy" : "";
               return c;
             });
}

std::string shown_by(const StoredCertificate& certificate) {
  const auto document = nlohmann::json::parse(certificate.document, nullptr, false);
  if (document.is_object() && document.contains("shown") && document["shown"].is_string())
    return document["shown"].get<std::string>();
  return certificate.proven;
}

}  // namespace evalrun::results
