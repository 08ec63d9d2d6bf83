#include "runners/endpoints/endpoint_faults.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/utf8.h"

namespace evalrun::runners {
namespace {

constexpr size_t kLongestQuote = 300;  // bytes of a server's words in a message

// In words of our own: those of the client name the URL and a remedy, which come later.
EndpointFailure failure_of_transport(const net::HttpResponse& response) {
  switch (response.failure) {
    case net::HttpFailure::kRefused:
      return {EndpointFault::kDown, "nobody listens there, or the name has no address", 0};
    case net::HttpFailure::kTimeout:
      return {EndpointFault::kTimeout,
              response.first_byte_ns == 0 ? "did not answer in time"
                                          : "stopped in the middle of an answer",
              0};
    case net::HttpFailure::kBroken:
      return {EndpointFault::kBroken, "the connection ended in the middle of an answer", 0};
    case net::HttpFailure::kTooLong:
      return {EndpointFault::kOverLimit, "sends more bytes than an answer can have", 0};
    case net::HttpFailure::kStopped:
      return {EndpointFault::kStopped, "interrupted", 0};
    case net::HttpFailure::kNone:
    case net::HttpFailure::kOther:
      break;
  }
  return {response.status == 0 ? EndpointFault::kDown : EndpointFault::kBroken, response.problem,
          0};
}

std::string refusal_remedy(const EndpointSpec& spec, long status) {
  if (status == 401 || status == 403)
    return spec.key_env.empty()
               ? "it wants a key: key-env=NAME of the environment variable that holds it"
               : fmt::format("check the key in the environment variable {}", spec.key_env);
  if (status == 404) return "is api= that of this server, and model= one that it serves?";
  if (status >= 300 && status < 400) return "redirects are not followed: give the address itself";
  return "the server will not take this request: check api=, model= and the lengths asked for";
}

}  // namespace

const char* to_string(EndpointFault fault) {
  switch (fault) {
    case EndpointFault::kNone:
      return "none";
    case EndpointFault::kDown:
      return "down";
    case EndpointFault::kLoading:
      return "loading";
    case EndpointFault::kRefused:
      return "refused";
    case EndpointFault::kBusy:
      return "busy";
    case EndpointFault::kServerError:
      return "server error";
    case EndpointFault::kTimeout:
      return "timeout";
    case EndpointFault::kBroken:
      return "broken";
    case EndpointFault::kMalformed:
      return "malformed";
    case EndpointFault::kOtherModel:
      return "other model";
    case EndpointFault::kOverLimit:
      return "over the limit";
    case EndpointFault::kStopped:
      return "stopped";
  }
  EVALRUN_CHECK(false, "fault {}", static_cast<int>(fault));
}

bool may_pass(EndpointFault fault) {
  switch (fault) {
    case EndpointFault::kDown:
    case EndpointFault::kLoading:
    case EndpointFault::kBusy:
    case EndpointFault::kServerError:
    case EndpointFault::kTimeout:
    case EndpointFault::kBroken:
      return true;
    default:
      return false;
  }
}

EndpointFault fault_of_status(long status, std::string_view body) {
  if (status == 429) return EndpointFault::kBusy;
  // llama-server says "Loading model" until its model is there.
  if (status == 503)
    return body.find("oading") != std::string_view::npos ? EndpointFault::kLoading
                                                         : EndpointFault::kBusy;
  // 424: Text Generation Inference, "Generation Error".
  if (status >= 500 || status == 424) return EndpointFault::kServerError;
  return status >= 300 ? EndpointFault::kRefused : EndpointFault::kMalformed;
}

EndpointFailure failure_of(const net::HttpResponse& response) {
  if (response.status != 0 && response.status != 200)
    return {fault_of_status(response.status, response.body),
            fmt::format("answered {}: {}", response.status, server_message(response.body)),
            response.status};
  return failure_of_transport(response);
}

std::string server_message(std::string_view body) {
  const nlohmann::json parsed = nlohmann::json::parse(body, nullptr, false);
  if (!parsed.is_object()) return std::string(body);
  // OpenAI and llama-server: error.message; TGI: error; FastAPI: detail; SGLang: message.
  for (const char* key : {"error", "message", "detail"}) {
    const auto it = parsed.find(key);
    if (it == parsed.end() || it->is_null()) continue;
    if (it->is_string()) return it->get<std::string>();
    if (it->is_object() && it->contains("message") && it->at("message").is_string())
      return it->at("message").get<std::string>();
    return std::string(body);  // not dump(): it is recursive, and the depth is the server's
  }
  return std::string(body);
}

std::string fault_remedy(const EndpointSpec& spec, const EndpointFailure& failure) {
  switch (failure.fault) {
    case EndpointFault::kNone:
      return "";
    case EndpointFault::kDown:
      return "start the server there, or correct the URL";
    case EndpointFault::kLoading:
      return "its model is not loaded yet: wait, or look into its log";
    case EndpointFault::kRefused:
      return refusal_remedy(spec, failure.status);
    case EndpointFault::kBusy:
      return "it has too much to do: send it less at once, or ask later";
    case EndpointFault::kServerError:
      return "look into the server's log";
    case EndpointFault::kTimeout:
      return "it is too slow or hangs: look into its log, or ask for shorter answers";
    case EndpointFault::kBroken:
      return "was the server stopped or restarted? look into its log";
    case EndpointFault::kMalformed:
      return fmt::format("is api={} that of this server?", spec.api);
    case EndpointFault::kOtherModel:
      return "name the model that it serves with model=, or leave that out";
    case EndpointFault::kOverLimit:
      return fmt::format("it ignores limits of length: is api={} that of this server?", spec.api);
    case EndpointFault::kStopped:
      return "run the same command again to go on";
  }
  EVALRUN_CHECK(false, "fault {}", static_cast<int>(failure.fault));
}

std::string fault_detail(const EndpointFailure& failure, std::string_view key) {
  // The key first: after a cut, a part of it would not be found.
  std::string text = net::without_key(failure.detail, key);
  if (text.size() > kLongestQuote) {
    text.resize(kLongestQuote);
    text.resize(text.size() - base::utf8_incomplete_tail(text));
    text += "...";
  }
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  text = base::utf8_repair(text);
  return text.empty() ? to_string(failure.fault) : text;
}

std::string fault_problem(const EndpointSpec& spec, const EndpointFailure& failure,
                          std::string_view key) {
  return fmt::format("{}: {}; {}", spec.url, fault_detail(failure, key),
                     fault_remedy(spec, failure));
}

}  // namespace evalrun::runners
