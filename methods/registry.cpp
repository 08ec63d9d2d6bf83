#include "methods/builtin_methods.h"

namespace evalrun::methods {

const base::Registry<MethodInfo>& method_registry() {
  static const base::Registry<MethodInfo> registry = [] {
    base::Registry<MethodInfo> r("method");
    for (MethodInfo info :
         {autoregressive_method(), prompt_lookup_method(), speculative_sampling_method()}) {
      const std::string name = info.name;
      r.add(name, std::move(info));
    }
    return r;
  }();
  return registry;
}

}  // namespace evalrun::methods
