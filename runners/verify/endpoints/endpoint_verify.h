// Is a server's speculative mode lossless, under load? What `evalrun verify --endpoint` finds out,
// and its verdict. Parts: greedy answers (endpoint_identity.h), answers with equal seeds and the
// law of draws (endpoint_sampling.h). Nothing here proves: a server is looked at from outside, for
// as long as it was asked.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runners/verify/endpoints/endpoint_identity.h"
#include "runners/verify/endpoints/endpoint_sampling.h"

namespace evalrun::runners {

struct EndpointVerifyRequest {
  EndpointServer speculative, plain;
  std::vector<EndpointPrompt> prompts;
  bool greedy = true, seeded = true, law = true;
  EndpointIdentityOptions identity;
  EndpointSamplingOptions sampling;  // clients and noise are filled in
  int places = 4;                    // texts after which is drawn
};

// Worst last.
enum class EndpointVerdict {
  kIdentical,
  kLawNotRefuted,  // of sampling alone
  kNearTies,
  kUnseen,  // nothing spoke against it, but something could not be seen
  kDiffers,
  kStateFault,
};
// "identical", "law not refuted", "near ties only", "could not see", "differs", "state fault"
const char* to_string(EndpointVerdict verdict);

struct EndpointVerification {
  std::vector<EndpointPrompt> prompts;
  std::string speculative, plain;  // names
  std::optional<EndpointIdentity> greedy;
  std::optional<SeededAnswers> seeded;
  std::optional<EndpointSampling> sampling;
  engine::SamplingParams asked;  // of the last two
  std::string trouble() const;   // requests without an answer; "" = none
};

EndpointVerdict verdict_of(const EndpointIdentity& greedy);
// Of sampling; nullopt without it.
std::optional<EndpointVerdict> sampling_verdict(const EndpointVerification& v);
// The worst of both; of greedy answers alone where the law of draws was not refuted.
EndpointVerdict verdict_of(const EndpointVerification& v);
// What could not be seen, and what speaks against it: one line each, with an example.
std::vector<std::string> reasons_of(const EndpointVerification& v);

// Throws what its parts throw.
EndpointVerification verify_endpoint(const EndpointVerifyRequest& request);

nlohmann::ordered_json to_json(const EndpointVerification& v);

}  // namespace evalrun::runners
