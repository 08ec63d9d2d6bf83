// Planted faults of verification under sampling, each of which leaves greedy decoding alone. They
// are what a certificate must find (docs/measurement.md, "Losslessness"). Part of methods/faults.h,
// which names them to users.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "methods/method.h"

namespace evalrun::methods {

// "verify-temperature:95%"  verifies by the target's distribution at that share of the temperature
// "verify-top-p:95%"        verifies by the likeliest tokens that have that share of it
// "drop-below:0.1%"         verifies without tokens that have less than this
// "scale-acceptance:110%"   accepts with min(1, 1.1 p/q), and draws from what that leaves
// "redraw-from-target"      draws from the target's whole distribution after a refusal
// "misreport-draft:80%"     reports q at 1/0.8 of the temperature that the draft was drawn at
struct VerifierFault {
  std::string_view name;
  std::string_view example;  // as users write it
  double most;               // percent; 0 = it takes no share
};
const std::vector<VerifierFault>& verifier_faults();

// `share`: 0.95 of "95%". usage_error for a method that lacks the common verifier.
void plant_verifier_fault(DecodingMethod& method, const VerifierFault& fault, double share);

}  // namespace evalrun::methods
