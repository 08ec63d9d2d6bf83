// One block of a load: clients in threads, each with a connection of its own, ask a slice of the
// prompts. They connect before the block's time begins. While a stream runs its client waits for it
// and does nothing else.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "results/load_records.h"
#include "runners/endpoints/endpoint.h"
#include "runners/load/load_plan.h"

namespace evalrun::runners {

struct LoadTools {
  base::Clock& clock;
  // One per client, made before the block's time begins.
  std::function<std::unique_ptr<Endpoint>(const EndpointSpec&)> make = {};
  std::function<bool()> stop = {};  // true = ask nothing more; asked by several threads
};

struct LoadBlockRequest {
  const EndpointSpec& server;
  results::LoadLevel level;
  std::span<const LoadPrompt> prompts;
  std::span<const int64_t> arrivals;  // of an open loop, one per prompt
  results::LoadPlace place;
};

struct LoadBlockResult {
  results::LoadBlock block;
  bool complete = false;             // every prompt was asked and answered
  std::optional<base::Error> error;  // why not: the server is gone
};

// `done` gets each request as it ends, one at a time, after its times were taken. A server that
// nobody answers for ends the block; every other fault is a failed request of it.
LoadBlockResult run_load_block(const LoadBlockRequest& request, const LoadTools& tools,
                               const std::function<void(const results::LoadRequest&)>& done);

// What is kept of a reply. `sent_ns` is when complete() was called, `end_ns` when it came back.
results::LoadRequest load_request_of(const EndpointReply& reply, int64_t scheduled_ns,
                                     int64_t sent_ns, int64_t end_ns);

}  // namespace evalrun::runners
