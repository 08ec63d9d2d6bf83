// What a load asks, of whom and when, decided before the first request.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "results/load_records.h"
#include "runners/endpoints/endpoint.h"

namespace evalrun::runners {

struct LoadPrompt {
  std::string id;
  EndpointRequest request;
};

struct LoadPlan {
  results::LoadSetup setup;
  std::vector<EndpointSpec> servers;  // those of the setup, in its order
  std::vector<LoadPrompt> prompts;
  std::vector<results::LoadPlace> order;  // of all blocks
  int64_t requests() const;               // of all blocks, without repeated attempts
};

struct LoadRequestLimits {
  int block = 0;                  // prompts of a block; 0 = chosen by slices_for()
  int64_t max_requests = 10'000;  // a plan above it is refused
};

// Into how many slices `prompts` are cut at a level: as many blocks of `block` prompts as there
// are, at least one. block = 0: a quarter of the prompts, but four for each client at least, so
// that the end of a block, where clients have nothing left to ask, stays a small part of it.
int slices_for(int prompts, const results::LoadLevel& level, int block);
// [begin, end) of slice i of n: sizes differ by one at most.
std::pair<size_t, size_t> slice_of(size_t prompts, int slices, int i);

// Every slice is asked of all servers one after the other. Within a level, over its slices and over
// the repeats, every server stands in every place equally often (runners/plan/schedule.h), so that
// drift falls on all alike. Levels take turns within a repeat.
std::vector<results::LoadPlace> load_order(const results::LoadSetup& setup);

// When the requests of a slice arrive, in nanoseconds: a Poisson process of `rate` a second. The
// same for all servers; other slices and repeats have others.
std::vector<int64_t> arrival_times(const results::LoadSetup& setup, const results::LoadPlace& place,
                                   size_t n);

// Fills in what follows from the setup's servers, levels, repeats and seed, and the prompts. Throws
// usage_error: no server, two of one name, no prompt, a level of 0, more requests than allowed.
LoadPlan make_load_plan(results::LoadSetup setup, std::vector<EndpointSpec> servers,
                        std::vector<LoadPrompt> prompts, const LoadRequestLimits& limits);

// "1,2,4" and "0.5,1": usage_error naming `where` for 0, for words and for the same number twice.
std::vector<results::LoadLevel> closed_levels(std::span<const std::string> words,
                                              const std::string& where);
std::vector<results::LoadLevel> open_levels(std::span<const std::string> words, int max_clients,
                                            const std::string& where);

}  // namespace evalrun::runners
