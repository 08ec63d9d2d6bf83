// What went wrong with a server, and what can be done about it.
#pragma once
#include <string>
#include <string_view>

#include "engine/net/http_client.h"
#include "runners/endpoints/endpoint.h"

namespace evalrun::runners {

struct EndpointFailure {
  EndpointFault fault = EndpointFault::kNone;
  std::string detail;  // what was seen; may quote the server, and so the key
  long status = 0;     // of HTTP; 0 = it is not about a status
};

// Asking again may help.
bool may_pass(EndpointFault fault);
// Of a status other than 200. `body` tells a server that is loading from one that is busy.
EndpointFault fault_of_status(long status, std::string_view body);
// Of an answer that is not ok().
EndpointFailure failure_of(const net::HttpResponse& response);
// What a server says in the body of an error: its message, or the body. Not cut: half a key would
// not be found.
std::string server_message(std::string_view body);

// What can be done, in half a sentence.
std::string fault_remedy(const EndpointSpec& spec, const EndpointFailure& failure);
// What happened, on one line: of no great length, without control characters and without the key.
std::string fault_detail(const EndpointFailure& failure, std::string_view key);
// "URL: detail; remedy"
std::string fault_problem(const EndpointSpec& spec, const EndpointFailure& failure,
                          std::string_view key);

}  // namespace evalrun::runners
