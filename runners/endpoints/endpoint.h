// A server that people already run, as something evalrun can ask: how it is named on a command line
// or in a suite, one completion, what it counts about drafts. One file per API
// (runners/endpoints/api_*.cpp) and a line in api.cpp.
//
// llama:  llama.cpp's llama-server, POST /completion (its tools/server/README.md).
// vllm:   vLLM's POST /v1/completions with return_token_ids, and GET /metrics (Prometheus).
// openai: POST /v1/completions of any server that has it; text in, text out. Run against `evalrun
//         serve` alone.
// sglang: POST /generate with input_ids (SGLang's native API). Not run against a real server.
// tgi:    POST /generate_stream (Text Generation Inference). Not run against a real server.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/clock.h"
#include "engine/sampling.h"

namespace evalrun::runners {

// "NAME=URL[,api=llama][,model=...][,key-env=VAR][,cache=off|declared-off|kept][,settle=SECONDS]
//  [,start=SECONDS]"
struct EndpointSpec {
  std::string name;  // letters, digits, "-", "_", "."; the arm's label
  std::string url;   // "http://127.0.0.1:8080", without a path and a slash at the end
  std::string api = "openai";
  std::string model;    // as the server calls it; "" = the first one that it lists
  std::string key_env;  // name of the environment variable that holds the key; "" = no key
  // The server's prompt cache. kOff: every request asks not to use one; a usage_error where the API
  // cannot ask. kDeclaredOff: the user says that the server was started without one. kKept: left
  // on. Rows say which.
  enum class Cache { kOff, kDeclaredOff, kKept };
  Cache cache = Cache::kOff;
  // After an answer the server still keeps processors busy for so long, waiting for the next one
  // (vLLM on CPUs: a second). Nobody is asked meanwhile, no other server of this machine either.
  double settle_s = 0;
  // How long it may take until it answers for the first time; absent: the command's own choice.
  std::optional<double> start_s = {};
  bool operator==(const EndpointSpec&) const = default;
};
// Throws usage_error naming the field and what is allowed.
EndpointSpec parse_endpoint(std::string_view text, std::string_view where);
std::string to_string(const EndpointSpec& spec);  // what parse_endpoint() reads; never a key
// Where it runs: results::kThisMachine, or the host of the URL. Not the port: a server that was
// started again is the same one.
std::string host_of(const EndpointSpec& spec);

// What an API can do; where it cannot, a row says so instead of pretending.
struct EndpointAbilities {
  bool takes_ids = false;      // prompts as token ids
  bool gives_ids = false;      // ids of the answer
  bool ignores_eos = false;    // can be told to go on after the stop token
  bool seeded = false;         // a seed makes the same answer again
  bool counts_drafts = false;  // drafted and accepted tokens of a request
  bool log_probs = false;      // log-probabilities of the best tokens
  bool cache_off = false;      // can be asked not to use a prompt cache
  bool verified = false;       // run against the real server
};

struct EndpointRequest {
  std::vector<int32_t> prompt_ids;  // rendered by evalrun, BOS included
  std::string prompt_text;          // the same as text, for APIs without ids
  int max_new = 0;
  engine::SamplingParams sampling;
  uint64_t seed = 0;
  std::vector<std::string> stop_texts;
  bool ignore_eos = false;
  int log_probs = 0;  // this many best tokens with each token; 0 = none
};

// Tokens that came in one piece. Speculation makes pieces of several.
struct EndpointArrival {
  int64_t ns = 0;      // since the request was sent
  int32_t tokens = 0;  // 0 where the server does not say which tokens a piece has
  std::string text;
};

struct EndpointLogProb {
  int32_t token = -1;  // -1 where the API gives text alone
  std::string text;
  double log_prob = 0;
};

// What the server itself counted about one request.
struct EndpointCounts {
  std::optional<int64_t> prompt_tokens, cached_tokens, new_tokens;
  std::optional<int64_t> drafted, accepted;  // draft tokens tested, and kept
  std::optional<int64_t> drafts;             // steps that had a draft
  std::optional<double> prompt_ms, decode_ms;
};

enum class EndpointStop { kStopToken, kStopText, kLimit, kUnknown };

enum class EndpointFault {
  kNone,
  kDown,         // nobody listens
  kLoading,      // it says that it is not ready
  kRefused,      // 4xx: this request, key or model is not to its liking; asking again is of no use
  kBusy,         // 429 or 503
  kServerError,  // other 5xx
  kTimeout,
  kBroken,      // the stream ended in the middle
  kMalformed,   // not what the API promises
  kOtherModel,  // it answered with another model than the one asked for
  kOverLimit,   // it ignored max_new
  kStopped,     // interrupted by the user
};
const char* to_string(EndpointFault fault);

struct EndpointReply {
  EndpointFault fault = EndpointFault::kNone;
  std::string problem;  // with the URL and a remedy; never the key
  double retry_after_s = 0;
  std::string text;          // of the answer, invalid UTF-8 replaced
  std::vector<int32_t> ids;  // empty where the API has none
  std::vector<EndpointArrival> arrivals;
  std::vector<std::vector<EndpointLogProb>> log_probs;  // by token: the token itself, then the best
  EndpointStop stop = EndpointStop::kUnknown;
  EndpointCounts counts;
  std::string model;     // as the server named it
  int64_t total_ns = 0;  // from sending to the last byte
  int attempts = 1;      // requests sent; only the last one is timed
  long status = 0;       // of a refusal: HTTP's, or the one that an error event names; 0 = none
  bool ok() const { return fault == EndpointFault::kNone; }
};

struct EndpointPatience {
  double connect_s = 10, total_s = 600, stall_s = 60;
  int retries = 4;  // after kDown, kLoading, kBusy, kServerError, kTimeout and kBroken
  double first_wait_s = 0.5, longest_wait_s = 30;  // doubles; Retry-After counts where it is longer
};

// One server, for one thread at a time. What a server does never throws; it is in the reply.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual const EndpointSpec& spec() const = 0;
  virtual EndpointAbilities abilities() const = 0;
  // Asks whether the server is up and which model it has. Throws data_error with URL and remedy
  // where it is down, loading after `wait_s` seconds, refuses the key, or has another model.
  virtual std::string check(double wait_s) = 0;
  // Streams, and takes the time of each piece when it arrives.
  virtual EndpointReply complete(const EndpointRequest& request) = 0;
  // Waits spec().settle_s, or until the user stops.
  virtual void settle() {}
};

struct EndpointTools {
  base::Clock& clock;
  std::function<bool()> stop = {};  // true = give up at once
  EndpointPatience patience = {};
  // Nobody else asks the server while a request runs. Counters of the whole server (vLLM's
  // /metrics) say something about one request then alone; without it they are not read.
  bool alone = true;
};
// Throws usage_error: unknown API, a key that is not set, a key over an unencrypted connection.
std::unique_ptr<Endpoint> make_endpoint(const EndpointSpec& spec, const EndpointTools& tools);
std::vector<std::string> endpoint_apis();

// Steps of the target that made an answer of `tokens` tokens by the server's own counts: every step
// emits its accepted draft tokens and one of its own. Absent where it does not count drafts.
// tau = tokens / steps; alpha = accepted / drafted.
std::optional<int64_t> target_steps(int64_t tokens, const EndpointCounts& counts);

}  // namespace evalrun::runners
