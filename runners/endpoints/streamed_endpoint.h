// What the APIs share: a request is a JSON body, its answer a stream of events with a JSON object
// each. Retries with back-off, faults and their remedies, limits and time are here; an API says
// what is sent and what an event means.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/net/event_stream.h"
#include "engine/net/http_client.h"
#include "runners/endpoints/arriving_answer.h"
#include "runners/endpoints/endpoint.h"
#include "runners/endpoints/endpoint_faults.h"

namespace evalrun::runners {

struct EndpointSetup {
  EndpointSpec spec;
  EndpointTools tools;
  std::string key;  // "" = none
};

class StreamedEndpoint : public Endpoint {
 public:
  explicit StreamedEndpoint(const EndpointSetup& setup);
  const EndpointSpec& spec() const final { return setup_.spec; }
  std::string check(double wait_s) final;
  EndpointReply complete(const EndpointRequest& request) final;
  void settle() final { pause(setup_.spec.settle_s); }

 protected:
  struct Paths {
    std::string complete;
    std::string health;   // answers 200 when it is ready; "" = none
    std::string models;   // the models that it serves
    std::string guarded;  // wants the key where `models` does not; "" = `models` does
  };
  virtual Paths paths() const = 0;
  // Called once for each attempt.
  virtual nlohmann::json body(const EndpointRequest& request) = 0;
  // One event. Throws base::Error where it is not what the API promises.
  virtual void read(const nlohmann::json& event, ArrivingAnswer& answer) = 0;
  // Names in the answer of paths().models, the default first. Throws as read() does.
  virtual std::vector<std::string> models(const nlohmann::json& listed) const = 0;
  // Why this request cannot be asked in this API; "" = it can.
  virtual std::string cannot(const EndpointRequest& request) const;
  // Whether requests must name a model, and whether the last event is "[DONE]".
  virtual bool needs_model() const { return false; }
  virtual bool ends_with_done() const { return false; }
  // Whether each event holds the whole answer so far.
  virtual bool repeats() const { return false; }
  // Around an attempt, outside its time; after() where it is complete.
  virtual void before() {}
  virtual void after(EndpointReply& /*reply*/) {}

  net::HttpResponse get(const std::string& path);
  // False when the user stopped.
  bool pause(double seconds) const;
  // The model that requests name; "" = none is named.
  const std::string& model() const { return model_; }
  const EndpointSetup& setup() const { return setup_; }

 private:
  EndpointFailure probe();
  EndpointFailure probe_models();
  EndpointReply attempt(const EndpointRequest& request);
  // False = nothing more is wanted.
  bool take(std::string_view data, int64_t ns, ArrivingAnswer& answer, EndpointFailure& failure);
  EndpointFailure outcome(const net::HttpResponse& response, const net::EventStream& events,
                          const ArrivingAnswer& answer) const;
  EndpointFailure judge(const EndpointRequest& request, const EndpointReply& reply) const;
  void hide_key(EndpointReply& reply) const;
  EndpointReply failed(const EndpointFailure& failure) const;
  EndpointFailure malformed(const base::Error& error) const;
  bool stopped() const;

  const EndpointSetup setup_;
  net::HttpClient client_;
  std::string model_;
  std::vector<std::string> served_;  // as check() last saw them
};

}  // namespace evalrun::runners
