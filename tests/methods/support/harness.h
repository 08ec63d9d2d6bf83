// Shared by the tests of methods: small random models, one way to run a turn, the list of
// everything that must behave like autoregressive decoding.
#pragma once
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "engine/session.h"
#include "methods/decode_loop.h"
#include "methods/registration.h"

namespace evalrun::tests {

using Tokens = std::vector<int32_t>;

// Two layers, grouped heads, a vocabulary small enough that n-grams recur.
std::shared_ptr<const engine::Model> small_model(
    uint64_t seed, int vocab = 24, engine::WeightFormat format = engine::WeightFormat::kF32);
engine::SessionOptions session_options(int max_tokens = 256);
std::unique_ptr<engine::Session> make_session(const std::shared_ptr<const engine::Model>& model,
                                              int max_tokens = 256, int sequences = 1);

struct Arm {
  std::string name;
  std::function<std::unique_ptr<methods::DecodingMethod>(const methods::MethodBuildContext&)> build;
  bool carries_state = false;  // from answer to answer: steps depend on what ran before
  bool lossy = false;          // when sampling
};
inline void PrintTo(const Arm& arm, std::ostream* out) { *out << arm.name; }
Arm arm_of(const std::string& spec);  // as on the command line, "@name" standing for test files
// Arms of every lossless method of the registry: its defaults (a one-layer draft where one is
// needed, random weights or tokens where files are), shapes that are worth a test, and every choice
// and both states of every switch at least once; and random trees through the common verifier. What
// needs an answer is in synthetic_acceptance_test.cpp.
std::vector<Arm> all_arms();
// "method:parameter=value" of the choices and switches that no arm has.
std::vector<std::string> values_without_an_arm();
// An adaptive method whose draft model, half of a toy target or more, is asked now and then only.
inline bool is_too_dear(const Arm& arm) {
  return arm.name.find("adaptive=true") != arm.name.npos &&
         (arm.name.starts_with("sps:") || arm.name.starts_with("self_spec:"));
}
// Whether sampled texts of this arm are those of plain decoding, token by token.
bool gives_the_same_tokens(const Arm& arm, const engine::SamplingParams& sampling);
// `sampling`, drawn as this arm needs it.
engine::SamplingParams sampling_for(const Arm& arm, engine::SamplingParams sampling);
std::unique_ptr<methods::DecodingMethod> build_arm(
    const Arm& arm, const std::shared_ptr<const engine::Model>& model, int max_tokens = 256,
    int slots = 1);
std::unique_ptr<methods::DecodingMethod> build_method(
    const std::string& spec, const std::shared_ptr<const engine::Model>& model,
    int max_tokens = 256);

// Request with spans over vectors it owns.
struct Turn {
  Tokens prompt;
  int keep = 0;
  int max_new = 48;
  Tokens stop_ids = {};
  engine::SamplingParams sampling = {};
  uint64_t seed = 0;
  methods::StopText* stop_text = nullptr;
};
methods::TurnRequest request_of(const Turn& turn);  // of which it must outlive the request
results::TurnRecord run(methods::DecodingMethod& method, engine::Session& session,
                        const Turn& turn);
// All turns, each in the slot that is free first; in their order.
std::vector<results::TurnRecord> run_batch(
    const std::vector<std::unique_ptr<methods::DecodingMethod>>& slots, engine::Session& session,
    const std::vector<Turn>& turns, methods::BatchMode mode);

// Letters and digits of `name`, as GoogleTest wants them.
std::string test_name(const std::string& name);

Tokens random_tokens(base::Rng& rng, int n, int vocab);

}  // namespace evalrun::tests
