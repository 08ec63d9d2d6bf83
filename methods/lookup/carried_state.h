// What a look-up keeps from prompt to prompt, as a parameter `state` of the methods that grow a
// table or a text: an axis of its own, because a warm cache can explain a speedup alone.
//
// cold: each conversation begins with nothing. warm: each slot of a batch keeps what it learnt from
// the prompts that it had, in their order. shared: all slots of a batch keep one. They take it in
// in the order in which they draft, which is that of the slots, so that the same batches give the
// same steps. In a batch of one, shared is warm.
//
// With warm and shared the steps depend on what ran before (StepReproducibility::kCarryState). The
// tokens never do.
#pragma once
#include <memory>

#include "methods/registration.h"

namespace evalrun::methods {

enum class CarriedState { kCold, kWarm, kShared };

// The parameter, bound to Shape::state. `what` is kept: "answers".
template <typename Shape>
Parameters<Shape> state_parameter(const std::string& what) {
  return Parameters<Shape>{}
      .choice("state", &Shape::state,
              {{"cold", CarriedState::kCold},
               {"warm", CarriedState::kWarm},
               {"shared", CarriedState::kShared}},
              what +
                  " that drafts may come from: of this conversation; of earlier prompts of this "
                  "sequence's slot as well; of those of all slots of a batch. Runs of the last "
                  "two depend on order")
      .with(&ParamInfo::steps_at, {"warm", StepReproducibility::kCarryState, "shared"});
}

// What another slot keeps: the first one's store, or one of its own, which `make` makes.
template <typename Store, typename Make>
std::shared_ptr<Store> store_of_slot(CarriedState state, const std::shared_ptr<Store>& first,
                                     const Make& make) {
  return state == CarriedState::kShared ? first : make();
}

}  // namespace evalrun::methods
