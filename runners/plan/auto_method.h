// The method name `auto` (kAutoMethod, runners/plan/suite.h): the choice of `evalrun tune method`
// for this model, machine and data.
#pragma once
#include <map>
#include <string>

#include "runners/machine/method_choice.h"
#include "runners/plan/plan.h"

namespace evalrun::runners {

// Key of the choice that a request asks for, or stores: its data sets are those of the suite, whole
// whatever the limit, in the suite's order. Errors as of load_dataset() and choice_key().
ChoiceKey choice_key_of(const PlanRequest& request);
// Content hashes of the files a method reads (MethodInfo::files), for MethodChoice::files.
std::map<std::string, std::string> choice_files(const PlanRequest& request,
                                                const std::string& method);

// The method that `auto` stands for, in its one spelling; "ar" where nothing pays. `file`: see
// method_choices_path(). usage_error that names the command to run and why no stored choice holds:
// none, or another model, machine, build, other prompts, weights; batches above 1; sampling.
std::string resolve_auto(const PlanRequest& request, const std::string& file);

// `request` with what `auto` stands for in its place in suite.methods; unchanged without it. The
// method is in suite.methods once in any case, plain decoding at its front. `chosen` is set to it.
PlanRequest without_auto(const PlanRequest& request, std::string& chosen);

}  // namespace evalrun::runners
