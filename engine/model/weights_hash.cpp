#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/home.h"
#include "engine/base/text.h"
#include "engine/model/loaders.h"

namespace evalrun::engine {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uintmax_t kRememberFrom = 16u << 20;  // smaller files are hashed in a few milliseconds

// The cache is only a memory: whatever is wrong with it, it is started anew.
json read_cache(const fs::path& path) {
  try {
    json cache = json::parse(base::read_file(path.string()), nullptr, false);
    if (cache.is_object()) return cache;
  } catch (const base::Error&) {
  }
  return json::object();
}

void write_cache(const fs::path& path, const json& cache) {
  try {
    fs::create_directories(path.parent_path());
    base::write_file_atomic(path.string(),
                            cache.dump(1, ' ', false, json::error_handler_t::replace) + "\n");
  } catch (const std::exception&) {
    // A read-only home costs a second per start, not the run.
  }
}

}  // namespace

std::string weights_sha256(const std::string& path) {
  static std::mutex mutex;  // several models may be loaded at once
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  const uintmax_t size = error ? 0 : fs::file_size(real, error);
  const fs::path home = base::home_folder(), cache_path = home / "hashes.json";
  if (error || size < kRememberFrom || home.empty()) return base::sha256_file(path);
  const auto modified = fs::last_write_time(real, error).time_since_epoch().count();
  const std::string key = real.string();
  const std::string stamp = fmt::format("{}:{}", size, modified);

  const std::lock_guard lock(mutex);
  json cache = read_cache(cache_path);
  if (const auto it = cache.find(key); it != cache.end() && it->is_object() &&
                                       it->value("stamp", json()) == stamp &&
                                       it->value("sha256", json()).is_string())
    return it->at("sha256").get<std::string>();
  const std::string hash = base::sha256_file(path);
  cache[key] = {{"stamp", stamp}, {"sha256", hash}};
  write_cache(cache_path, cache);
  return hash;
}

}  // namespace evalrun::engine
