// What rows of servers are, which were measured over HTTP.
#pragma once
#include <string>
#include <vector>

#include "reports/figures/report.h"
#include "reports/table/comparison_table.h"

namespace evalrun::reports {

// How each server of the data set was asked, and where its figures come from; "" without servers.
std::string servers_note(const DatasetRows& rows);
// Requests that were sent again, and answers whose drafts the server did not count.
std::vector<std::string> server_remarks(const DatasetRows& rows);

}  // namespace evalrun::reports
