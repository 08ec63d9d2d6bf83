// Small tables of published numbers for tests, and the collection beside the checkout.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string>

#include "reports/claims/claims.h"

namespace evalrun::reports {

inline constexpr const char* kClaimsHeader =
    "paper,place,model,dataset,category,method,config,metric,value,sd,unit,hardware,note\n";

inline Claims claims_of(std::initializer_list<const char*> lines) {
  std::string text = kClaimsHeader;
  for (const char* line : lines) text += std::string(line) + "\n";
  return parse_claims(text, "test.csv");
}

// "" where it is not there.
inline std::string published_claims() {
  const char* shared = std::getenv("EVALRUN_SHARED");
  const std::string path =
      std::string(shared != nullptr ? shared : EVALRUN_SOURCE_DIR "/../shared") +
      "/data/paper_claims/claims.csv";
  return std::filesystem::exists(path) ? path : "";
}

}  // namespace evalrun::reports
