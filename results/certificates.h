// Certificates of losslessness as stored (`evalrun verify` writes them, reports show them beside
// the arms they hold for).
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "results/records.h"
#include "results/store.h"

namespace evalrun::results {

struct StoredCertificate {
  std::string key, created, method, outcome;
  std::string proven;    // by equal tokens or audited decisions; "" = nothing
  std::string document;  // JSON, all that was looked at
};

// What a certificate shows: what is proven, and laws that tests did not refute, with the smallest
// fault that they would have found. "" = nothing.
std::string shown_by(const StoredCertificate& certificate);

// How answers are drawn, as runs and certificates say it.
struct AnswerSampling {
  double temperature = 0;  // 0 = greedy
  int64_t top_k = 0;
  double top_p = 1;
  std::string sampler = {};  // "" = inverse
};

// Hash of what decides which tokens an arm emits: the build's commit, method with parameters and
// version, weights of target, draft and adapters, engine mode. Not of what is measured with it
// (prompts, lengths, seed, order, threads, which change no token's distribution), nor of how it was
// sampled (temperature, sampler): the greedy part holds for runs that sample in any way.
std::string certificate_key(const ArmRecord& arm, const std::string& commit);
// What a certificate of that arm is stored by: one for each way of sampling. Without sampling it is
// the arm's key, as in every file of 1.0.
std::string stored_key(const std::string& arm_key, const AnswerSampling& sampling);

// One of the same stored key is replaced. Certificates before version 2 called a law proven that a
// test had not refuted; what is read of them as proven is their greedy part.
void put_certificate(ResultStore& store, const StoredCertificate& certificate);
std::optional<StoredCertificate> find_certificate(const ResultStore& store, const std::string& key);
// What stands beside a run of the arm: the certificate that was sampled as the run is; without it
// the newest that tells of greedy decoding, which holds for runs that sample in any way; without
// it the newest. What was shown of sampling says by itself at which temperature.
std::optional<StoredCertificate> certificate_beside(const ResultStore& store,
                                                    const std::string& arm_key,
                                                    const AnswerSampling& sampling);

}  // namespace evalrun::results
