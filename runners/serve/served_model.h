// The one model that a server has.
#pragma once
#include <memory>
#include <string>

#include "engine/model/model.h"

namespace evalrun::runners {

// What requests are read against.
struct ServedModel {
  std::string name;                            // as GET /v1/models lists it
  std::shared_ptr<const engine::Model> model;  // with a tokenizer
  int context = 0;                             // tokens of a prompt and its answer
};

}  // namespace evalrun::runners
