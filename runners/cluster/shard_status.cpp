#include "runners/cluster/shard_status.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::runners {

namespace fs = std::filesystem;

std::string status_path(const std::string& database) {
  return fs::path(database).replace_extension(".status.json").string();
}

void write_status(const std::string& path, const ShardStatus& s) {
  const nlohmann::ordered_json json = {{"shard", s.shard},
                                       {"state", s.state},
                                       {"message", s.message},
                                       {"host", s.host},
                                       {"job", s.job},
                                       {"planned", s.planned},
                                       {"stored", s.stored},
                                       {"measured", s.measured},
                                       {"failed", s.failed},
                                       {"seconds", s.seconds},
                                       {"updated_unix_s", s.updated_unix_s}};
  base::write_file_atomic(
      path, json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

std::optional<ShardStatus> read_status(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  try {
    const nlohmann::json json = nlohmann::json::parse(base::read_file(path));
    ShardStatus s;
    json.at("shard").get_to(s.shard);
    json.at("state").get_to(s.state);
    json.at("message").get_to(s.message);
    json.at("host").get_to(s.host);
    json.at("job").get_to(s.job);
    json.at("planned").get_to(s.planned);
    json.at("stored").get_to(s.stored);
    json.at("measured").get_to(s.measured);
    json.at("failed").get_to(s.failed);
    json.at("seconds").get_to(s.seconds);
    json.at("updated_unix_s").get_to(s.updated_unix_s);
    return s;
  } catch (const nlohmann::json::exception& e) {
    throw base::data_error(path, "", fmt::format("is no status of a shard: {}", e.what()),
                           "remove it; the process that measures the shard writes it anew");
  }
}

}  // namespace evalrun::runners
