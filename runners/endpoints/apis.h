// One maker for each API; api.cpp lists them.
#pragma once
#include <memory>

#include "runners/endpoints/streamed_endpoint.h"

namespace evalrun::runners {

std::unique_ptr<Endpoint> make_llama_endpoint(const EndpointSetup& setup);
std::unique_ptr<Endpoint> make_vllm_endpoint(const EndpointSetup& setup);
std::unique_ptr<Endpoint> make_openai_endpoint(const EndpointSetup& setup);
std::unique_ptr<Endpoint> make_sglang_endpoint(const EndpointSetup& setup);
std::unique_ptr<Endpoint> make_tgi_endpoint(const EndpointSetup& setup);

}  // namespace evalrun::runners
