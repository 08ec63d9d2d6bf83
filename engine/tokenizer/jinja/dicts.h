// Makers of dicts and namespaces.
#pragma once
#include "engine/tokenizer/jinja/values/budget.h"

namespace evalrun::engine::jinja {

// Of equal keys the last value counts, at the place of the first.
Value make_dict(Entries entries, Budget& budget);
Value make_namespace(Entries entries, Budget& budget);

}  // namespace evalrun::engine::jinja
