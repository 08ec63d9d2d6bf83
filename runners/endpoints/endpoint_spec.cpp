#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>

#include "engine/base/error.h"
#include "engine/base/options.h"
#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "engine/net/http_client.h"
#include "results/records.h"
#include "runners/endpoints/endpoint.h"

namespace evalrun::runners {
namespace {

constexpr const char* kEndpointForm =
    "NAME=URL[,api=llama][,model=...][,key-env=VARIABLE][,cache=off|declared-off|kept]"
    "[,settle=SECONDS][,start=SECONDS], for example plain=http://127.0.0.1:8080,api=llama";
constexpr double kLongestWait_s = 600;

struct NamedCache {
  const char* name;
  EndpointSpec::Cache cache;
};
constexpr std::array<NamedCache, 3> kCaches = {{{"off", EndpointSpec::Cache::kOff},
                                                {"declared-off", EndpointSpec::Cache::kDeclaredOff},
                                                {"kept", EndpointSpec::Cache::kKept}}};

bool is_label(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

bool is_variable(std::string_view text) {
  // Capitals, so that a key given in its place is not taken for a name and shown.
  return !text.empty() && !(text.front() >= '0' && text.front() <= '9') &&
         std::ranges::all_of(text, [](char c) {
           return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
         });
}

// What a message may show of a text that may hold a password.
std::string shown_text_of(std::string_view text) {
  return text.find('@') == std::string_view::npos ? std::string(text)
                                                  : "(not shown: it holds an '@')";
}

// Paths are the API's. A user and a password in a URL would be in every log.
std::string checked_address(std::string url, const std::string& what) {
  while (url.ends_with('/') && !url.ends_with("//")) url.pop_back();
  net::check_url(url, "", what);
  const std::string_view host = std::string_view(url).substr(url.find("://") + 3);
  if (host.find('@') != std::string_view::npos)
    throw base::usage_error(fmt::format("{}: the URL holds a user or a password", what),
                            "give a key with key-env=NAME of an environment variable");
  if (host.empty() || host.find_first_of("/?# \t") != std::string_view::npos)
    throw base::usage_error(
        fmt::format("{}: the URL must be scheme, host and port alone, found '{}'", what, url),
        "evalrun adds the path of the API, such as /v1/completions");
  return url;
}

EndpointSpec::Cache parse_endpoint_cache(const std::string& text, const std::string& what) {
  std::vector<std::string> names;
  for (const NamedCache& one : kCaches) {
    if (text == one.name) return one.cache;
    names.emplace_back(one.name);
  }
  throw base::usage_error(
      fmt::format("{}: cache must be one of {}, found '{}'", what, fmt::join(names, ", "), text),
      base::suggest(text, names));
}

double parse_wait(const std::string& key, const std::string& text, const std::string& what) {
  const std::optional<double> seconds = base::parse_number<double>(text);
  if (!seconds || !(*seconds >= 0 && *seconds <= kLongestWait_s))
    throw base::usage_error(
        fmt::format("{}: {} must be 0 to {} seconds, found '{}'", what, key, kLongestWait_s, text));
  return *seconds;
}

void set_endpoint_key(EndpointSpec& spec, const std::string& key, const std::string& value,
                      const std::string& what) {
  if (value.empty()) throw base::usage_error(fmt::format("{}: {} has no value", what, key));
  if (key == "api") {
    const std::vector<std::string> apis = endpoint_apis();
    if (std::ranges::find(apis, value) == apis.end())
      throw base::usage_error(fmt::format("{}: unknown api '{}'", what, value),
                              base::suggest(value, apis));
    spec.api = value;
  } else if (key == "model") {
    spec.model = value;
  } else if (key == "key-env") {
    // Whoever gives the key itself here is told so without repeating it.
    if (!is_variable(value))
      throw base::usage_error(
          fmt::format("{}: key-env must be the name of an environment variable, in capitals", what),
          "export the key under a name, and give that name: key-env=MY_KEY");
    spec.key_env = value;
  } else if (key == "cache") {
    spec.cache = parse_endpoint_cache(value, what);
  } else if (key == "settle") {
    spec.settle_s = parse_wait(key, value, what);
  } else if (key == "start") {
    spec.start_s = parse_wait(key, value, what);
  } else {
    const std::vector<std::string> known = {"api", "model", "key-env", "cache", "settle", "start"};
    throw base::usage_error(fmt::format("{}: unknown key '{}'", what, key),
                            base::suggest(key, known));
  }
}

}  // namespace

EndpointSpec parse_endpoint(std::string_view text, std::string_view where) {
  const size_t comma = text.find(','), equals = text.find('=');
  if (equals == std::string_view::npos || equals > comma)
    throw base::usage_error(fmt::format("{}: expected NAME=URL, found '{}'", where,
                                        shown_text_of(base::trim(text.substr(0, comma)))),
                            kEndpointForm);
  EndpointSpec spec;
  spec.name = base::trim(text.substr(0, equals));
  if (!is_label(spec.name))
    throw base::usage_error(
        fmt::format("{}: a name has letters, digits, '-', '_' and '.' alone, found '{}'", where,
                    shown_text_of(spec.name)),
        kEndpointForm);
  const std::string what = fmt::format("{}: endpoint {}", where, spec.name);
  const size_t url_end = std::min(comma, text.size());
  spec.url =
      checked_address(std::string(base::trim(text.substr(equals + 1, url_end - equals - 1))), what);
  if (comma != std::string_view::npos)
    for (const auto& [key, value] :
         base::split_options(text.substr(comma + 1), {what, "key"}, kEndpointForm))
      set_endpoint_key(spec, key, value, what);
  return spec;
}

std::string host_of(const EndpointSpec& spec) {
  if (net::is_local(spec.url)) return results::kThisMachine;
  const std::string host = spec.url.substr(spec.url.find("://") + 3);
  const size_t colon = host.rfind(':');
  // Within brackets it is part of an IPv6 address.
  return colon == std::string::npos || host.find(']', colon) != std::string::npos
             ? host
             : host.substr(0, colon);
}

std::string to_string(const EndpointSpec& spec) {
  std::string text = fmt::format("{}={},api={}", spec.name, spec.url, spec.api);
  if (!spec.model.empty()) text += ",model=" + spec.model;
  if (!spec.key_env.empty()) text += ",key-env=" + spec.key_env;
  for (const NamedCache& one : kCaches)
    if (one.cache == spec.cache && one.cache != EndpointSpec::Cache::kOff)
      text += fmt::format(",cache={}", one.name);
  if (spec.settle_s > 0) text += fmt::format(",settle={}", spec.settle_s);
  if (spec.start_s) text += fmt::format(",start={}", *spec.start_s);
  return text;
}

}  // namespace evalrun::runners
