#include "results/load_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/json_fields.h"
#include "engine/base/text.h"

namespace evalrun::results {
namespace {

using LoadJson = nlohmann::ordered_json;

constexpr int kLoadFormat = 1;
constexpr const char* kLoadHint = "a file of `evalrun load --out`? name another one";

LoadJson setup_json(const LoadSetup& s) {
  LoadJson servers = LoadJson::array(), levels = LoadJson::array();
  for (const LoadServer& x : s.servers)
    servers.push_back({{"name", x.name},
                       {"spec", x.spec},
                       {"model", x.model},
                       {"cache", x.cache},
                       {"again", x.again},
                       {"verified", x.verified}});
  for (const LoadLevel& x : s.levels) levels.push_back({{"clients", x.clients}, {"rate", x.rate}});
  return {{"format", kLoadFormat},
          {"servers", std::move(servers)},
          {"levels", std::move(levels)},
          {"slices", s.slices},
          {"repeats", s.repeats},
          {"prompts", s.prompts},
          {"tasks", s.tasks},
          {"prompts_hash", s.prompts_hash},
          {"max_new", s.max_new},
          {"ignore_eos", s.ignore_eos},
          {"retries", s.retries},
          {"timeout_s", s.timeout_s},
          {"seed", s.seed},
          {"client", s.client}};
}

LoadJson place_json(const LoadPlace& p) {
  return {{"repeat", p.repeat}, {"level", p.level}, {"slice", p.slice}, {"server", p.server}};
}

LoadJson request_json(const LoadRequest& r) {
  LoadJson arrivals = LoadJson::array();
  for (const LoadArrival& a : r.arrivals) arrivals.push_back({a.ns, a.tokens});
  LoadJson json{
      {"index", r.index},       {"prompt", r.prompt},     {"scheduled_ns", r.scheduled_ns},
      {"sent_ns", r.sent_ns},   {"first_ns", r.first_ns}, {"end_ns", r.end_ns},
      {"late", r.late},         {"tokens", r.tokens},     {"arrivals", std::move(arrivals)},
      {"attempts", r.attempts}, {"fault", r.fault}};
  if (!r.problem.empty()) json["problem"] = r.problem;
  const auto add = [&](const char* key, const std::optional<int64_t>& v) {
    if (v) json[key] = *v;
  };
  add("prompt_tokens", r.prompt_tokens);
  add("cached_tokens", r.cached_tokens);
  add("drafted", r.drafted);
  add("accepted", r.accepted);
  return json;
}

// Reads a file line by line; `where` is the place of the line.
class LoadLines {
 public:
  explicit LoadLines(std::string path) : path_(std::move(path)) {}

  void read() {
    const std::string text = base::read_file(path_);
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find('\n', begin);
      if (end == text.npos) break;  // cut off
      ++line_;
      take(std::string_view(text).substr(begin, end - begin));
      begin = end + 1;
      whole_bytes_ = begin;
    }
    if (line_ == 0) throw base::data_error(path_, "", "holds no result of a load", kLoadHint);
    run_.unfinished += static_cast<int64_t>(open_.requests.size());
  }
  LoadRun& run() { return run_; }
  size_t whole_bytes() const { return whole_bytes_; }

 private:
  std::string where() const { return fmt::format("line {}", line_); }

  void take(std::string_view line) {
    nlohmann::json json;
    try {
      json = nlohmann::json::parse(line);
    } catch (const nlohmann::json::exception&) {
      throw base::data_error(path_, where(), "is not JSON", kLoadHint);
    }
    base::ObjectReader reader(json, path_, where());
    if (line_ == 1) {
      if (!reader.has("setup")) reader.fail("setup", "is missing", kLoadHint);
      take_setup(*reader.raw("setup"));
    } else if (reader.has("begin")) {
      run_.unfinished += static_cast<int64_t>(open_.requests.size());
      open_ = {.place = place_of(*reader.raw("begin"))};
    } else if (reader.has("request")) {
      open_.requests.push_back(request_of(*reader.raw("request")));
    } else if (reader.has("end")) {
      take_end(*reader.raw("end"));
    }
    reader.finish();
  }

  void take_setup(const nlohmann::json& json) {
    base::ObjectReader r(json, path_, where() + ": setup");
    LoadSetup& s = run_.setup;
    if (r.required<int>("format") != kLoadFormat)
      r.fail("format", fmt::format("is not {}: written by another version", kLoadFormat),
             "name another file");
    for (const nlohmann::json& item : list(r, "servers")) {
      base::ObjectReader x(item, path_, where() + ": servers");
      s.servers.push_back({x.required<std::string>("name"), x.required<std::string>("spec"),
                           x.required<std::string>("model"), x.required<std::string>("cache"),
                           x.required<bool>("again"), x.required<bool>("verified")});
      x.finish();
    }
    for (const nlohmann::json& item : list(r, "levels")) {
      base::ObjectReader x(item, path_, where() + ": levels");
      s.levels.push_back({x.required<int>("clients"), x.required<double>("rate")});
      x.finish();
    }
    s.slices = r.required<std::vector<int>>("slices");
    s.repeats = r.required<int>("repeats");
    s.prompts = r.required<int>("prompts");
    s.tasks = r.required<std::string>("tasks");
    s.prompts_hash = r.required<std::string>("prompts_hash");
    s.max_new = r.required<int>("max_new");
    s.ignore_eos = r.required<bool>("ignore_eos");
    s.retries = r.required<int>("retries");
    s.timeout_s = r.required<double>("timeout_s");
    s.seed = r.required<uint64_t>("seed");
    s.client = r.required<std::string>("client");
    r.finish();
    if (s.servers.empty()) r.fail("servers", "is empty");
    if (s.levels.empty() || s.slices.size() != s.levels.size())
      r.fail("slices", "has not a number for each level");
    for (const int n : s.slices)
      if (n < 1) r.fail("slices", "has a number below 1");
  }

  const nlohmann::json& list(base::ObjectReader& r, const char* key) {
    const nlohmann::json* found = r.raw(key);
    if (found == nullptr || !found->is_array()) r.fail(key, "must be a list");
    return *found;
  }

  LoadPlace place_of(base::ObjectReader& r) {
    const LoadPlace p{r.required<int>("repeat"), r.required<int>("level"), r.required<int>("slice"),
                      r.required<int>("server")};
    const LoadSetup& s = run_.setup;
    const auto inside = [](int v, size_t n) { return v >= 0 && static_cast<size_t>(v) < n; };
    if (!inside(p.level, s.levels.size())) r.fail("level", "is not one of the setup");
    if (!inside(p.server, s.servers.size())) r.fail("server", "is not one of the setup");
    if (p.repeat < 0) r.fail("repeat", "is below 0");
    if (p.slice < 0 || p.slice >= s.slices[static_cast<size_t>(p.level)])
      r.fail("slice", "is not one of the setup");
    return p;
  }
  LoadPlace place_of(const nlohmann::json& json) {
    base::ObjectReader r(json, path_, where());
    const LoadPlace p = place_of(r);
    r.finish();
    return p;
  }

  LoadRequest request_of(const nlohmann::json& json) {
    base::ObjectReader r(json, path_, where() + ": request");
    LoadRequest q;
    q.index = r.required<int>("index");
    q.prompt = r.required<std::string>("prompt");
    q.scheduled_ns = r.required<int64_t>("scheduled_ns");
    q.sent_ns = r.required<int64_t>("sent_ns");
    q.first_ns = r.required<int64_t>("first_ns");
    q.end_ns = r.required<int64_t>("end_ns");
    q.late = r.required<bool>("late");
    q.tokens = r.required<int64_t>("tokens");
    for (const nlohmann::json& item : list(r, "arrivals")) {
      if (!item.is_array() || item.size() != 2 || !item[0].is_number_integer() ||
          !item[1].is_number_integer())
        r.fail("arrivals", "must hold pairs of whole numbers");
      q.arrivals.push_back({item[0].get<int64_t>(), item[1].get<int64_t>()});
    }
    q.attempts = r.required<int>("attempts");
    q.fault = r.required<std::string>("fault");
    q.problem = r.optional<std::string>("problem", "");
    const auto number = [&](const char* key) -> std::optional<int64_t> {
      if (!r.has(key)) return std::nullopt;
      return r.required<int64_t>(key);
    };
    q.prompt_tokens = number("prompt_tokens");
    q.cached_tokens = number("cached_tokens");
    q.drafted = number("drafted");
    q.accepted = number("accepted");
    r.finish();
    return q;
  }

  void take_end(const nlohmann::json& json) {
    base::ObjectReader r(json, path_, where() + ": end");
    const LoadPlace place = place_of(r);
    open_.wall_ns = r.required<int64_t>("wall_ns");
    open_.cpu_ns = r.required<int64_t>("cpu_ns");
    r.finish();
    if (place != open_.place) r.fail("end", "is of another block than the one that began");
    run_.blocks.push_back(std::move(open_));
    open_ = {};
  }

  std::string path_;
  int64_t line_ = 0;
  size_t whole_bytes_ = 0;
  LoadRun run_;
  LoadBlock open_;
};

// The first field in which they differ, "" for none.
std::string load_difference(const LoadSetup& a, const LoadSetup& b) {
  const LoadJson x = setup_json(a), y = setup_json(b);
  for (const auto& [key, value] : x.items())
    if (y[key] != value)
      return fmt::format("{} is {} there and {} here", key, value.dump(), y[key].dump());
  return "";
}

}  // namespace

std::string to_string(const LoadLevel& level) {
  if (level.open()) return fmt::format("{} requests/s", level.rate);
  return base::plural(level.clients, "client");
}

LoadRun read_load_file(const std::string& path) {
  LoadLines lines(path);
  lines.read();
  return std::move(lines.run());
}

LoadFile::LoadFile(std::string path, const LoadSetup& setup) : path_(std::move(path)) {
  std::error_code ignored;
  const auto size = std::filesystem::file_size(path_, ignored);
  const bool goes_on = !ignored && size > 0;
  if (goes_on) {
    LoadLines lines(path_);
    lines.read();
    if (const std::string why = load_difference(lines.run().setup, setup); !why.empty())
      throw base::data_error(path_, "", "holds another load: " + why,
                             "give the same options to go on with it, or another --out");
    for (const LoadBlock& block : lines.run().blocks) finished_.insert(block.place);
    // A line that was cut off must not run into the next one.
    if (lines.whole_bytes() < size) std::filesystem::resize_file(path_, lines.whole_bytes());
  }
  out_.open(path_, std::ios::app);
  if (!goes_on) write(LoadJson{{"setup", setup_json(setup)}}.dump());
  write("");
}

void LoadFile::write(const std::string& line) {
  if (!line.empty()) out_ << line << '\n';
  out_.flush();
  if (!out_)
    throw base::data_error(path_, "", "cannot be written",
                           "does the folder exist, and has the disk space left?");
}

void LoadFile::begin(const LoadPlace& place) {
  write(LoadJson{{"begin", place_json(place)}}.dump());
}

void LoadFile::add(const LoadRequest& request) {
  write(LoadJson{{"request", request_json(request)}}.dump(-1, ' ', false,
                                                          LoadJson::error_handler_t::replace));
}

void LoadFile::end(const LoadBlock& block) {
  LoadJson json = place_json(block.place);
  json["wall_ns"] = block.wall_ns;
  json["cpu_ns"] = block.cpu_ns;
  write(LoadJson{{"end", std::move(json)}}.dump());
  finished_.insert(block.place);
}

}  // namespace evalrun::results
