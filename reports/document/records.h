// Figures for programs: rows of JSON objects as the Table that CSV is written from.
#pragma once
#include "reports/document/document.h"
#include "reports/json_values.h"

namespace evalrun::reports {

// A column per key of the first of `rows`, an array of objects. A nested object's keys follow its
// own with an underscore between; lists are joined by semicolons; null is an empty cell.
Table records(const Json& rows);

}  // namespace evalrun::reports
