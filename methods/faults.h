// Planted faults: decorators that make a method slow, wrong or dishonest, so that tests and
// `evalrun check --self-test` can prove the gate sees it. Never reachable from `evalrun run`; every
// row they touch is stamped (GenerationRecord::fault).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "methods/method.h"

namespace evalrun::methods {

// "slow:10%" (each step takes that much longer), "wrong-accept" (now and then a rejected draft
// token is kept), "wrong-accept:25%" (that share of the rejected draft tokens is kept, and nothing
// else changed: the negative control of `evalrun verify`), "miscount" (reports one accepted token
// too many), "device-fault" (the third step of a generation throws a DeviceFault), and those of
// methods/verifier_faults.h. Throws usage_error for anything else.
std::unique_ptr<DecodingMethod> plant_fault(std::unique_ptr<DecodingMethod> method,
                                            const std::string& fault);
std::vector<std::string> known_faults();

}  // namespace evalrun::methods
