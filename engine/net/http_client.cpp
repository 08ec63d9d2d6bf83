#include "engine/net/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <exception>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/base/utf8.h"

namespace evalrun::net {

namespace {

constexpr size_t kLongestHead = 256 << 10;  // bytes of all header lines; answers have a few hundred
constexpr size_t kShownBytes = 200;         // of a body, in a message
constexpr int kLookMs = 50;                 // longest time between two looks at the limits

// Limits hold in real time, whatever clock a test hands in.
int64_t real_ns() { return base::SteadyClock().now_ns(); }

double seconds_between(int64_t from_ns, int64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) * 1e-9;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

// RFC 9110, section 10.2.3. A date is not read: 0, as without the header.
double retry_after(std::string_view value) {
  double seconds = 0;
  const char* end = value.data() + value.size();
  const auto [rest, error] = std::from_chars(value.data(), end, seconds);
  return error == std::errc() && rest == end && std::isfinite(seconds) && seconds > 0 ? seconds : 0;
}

// A user and a password in an address stay out of messages.
std::string shown_url(std::string_view url) {
  const size_t slashes = url.find("//");
  const size_t host = slashes == std::string_view::npos ? 0 : slashes + 2;
  const std::string_view rest = url.substr(host);
  const size_t at = rest.substr(0, rest.find_first_of("/?#")).rfind('@');
  if (at == std::string_view::npos) return std::string(url);
  return std::string(url.substr(0, host)).append(rest.substr(at + 1));
}

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; }, ' ');
  return base::utf8_repair(text);
}

const char* remedy(HttpFailure failure) {
  switch (failure) {
    case HttpFailure::kRefused:
      return "; is the server up, and does it listen at this address?";
    case HttpFailure::kTimeout:
      return "; see the server's log, or allow it more time";
    case HttpFailure::kBroken:
      return "; see the server's log: it may have ended or started again";
    case HttpFailure::kTooLong:
    case HttpFailure::kOther:
      return "; is this the right server, and the right address?";
    case HttpFailure::kStopped:
    case HttpFailure::kNone:
      break;
  }
  return "";
}

HttpFailure failure_of(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
      return HttpFailure::kRefused;
    case CURLE_OPERATION_TIMEDOUT:  // only the connection has a limit there
      return HttpFailure::kTimeout;
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
      return HttpFailure::kBroken;
    case CURLE_OUT_OF_MEMORY:  // libcurl says so of a header line that it will not hold
#if LIBCURL_VERSION_NUM >= 0x080600
    case CURLE_TOO_LARGE:
#endif
      return HttpFailure::kTooLong;
    default:
      return HttpFailure::kOther;
  }
}

// A request and what has come back so far.
struct Exchange {
  const HttpRequest& request;
  const OnBytes& on_bytes;
  base::Clock& clock;
  CURL* curl = nullptr;
  HttpResponse response = {};
  std::string reason = {};    // of a failure
  std::string location = {};  // where a redirect points
  size_t head_bytes = 0, body_bytes = 0;
  // Of the real clock: the beginning; the newest bytes, or the request where none came. 0 = none.
  int64_t begin_ns = real_ns(), newest_ns = 0;
  std::exception_ptr thrown = {};  // by the receiver

  bool fail(HttpFailure failure, std::string why) {
    response.failure = failure;
    reason = std::move(why);
    return false;
  }

  // Connected, and the request not sent yet. Comes again where a connection that was kept turns out
  // to be dead: libcurl asks once more over a new one.
  void begin_request() {
    response.sent_ns = clock.now_ns();
    newest_ns = real_ns();
  }

  bool take_body(std::string_view bytes, int64_t arrival_ns) {
    newest_ns = real_ns();
    if (body_bytes == 0) {
      response.first_byte_ns = arrival_ns;
      curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &response.status);
    }
    if (bytes.size() > request.longest_body - body_bytes)
      return fail(HttpFailure::kTooLong,
                  fmt::format("an answer of more than {} bytes", request.longest_body));
    body_bytes += bytes.size();
    if (!on_bytes || response.status != 200)
      response.body.append(bytes);
    else if (!on_bytes(bytes, arrival_ns))
      return fail(HttpFailure::kStopped, "ended by the receiver");
    return true;
  }

  bool take_header(std::string_view line) {
    newest_ns = real_ns();
    head_bytes += line.size();
    if (head_bytes > kLongestHead)
      return fail(HttpFailure::kTooLong,
                  fmt::format("more than {} bytes of headers", kLongestHead));
    if (line.starts_with("HTTP/")) {  // the answer itself comes behind "100 Continue"
      response.content_type.clear();
      response.retry_after_s = 0;
      location.clear();
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return true;
    const std::string name = lower(line.substr(0, colon));
    const std::string_view value = base::trim(line.substr(colon + 1));
    if (name == "content-type")
      response.content_type = lower(base::trim(value.substr(0, value.find(';'))));
    else if (name == "retry-after")
      response.retry_after_s = retry_after(value);
    else if (name == "location")
      location = value;
    return true;
  }

  // Whether a limit or the user ends it.
  bool is_over(const std::function<bool()>& stop) {
    const int64_t now = real_ns();
    if (stop && stop())
      fail(HttpFailure::kStopped, "stopped");
    else if (seconds_between(begin_ns, now) > request.total_s)
      fail(HttpFailure::kTimeout, fmt::format("timed out: no whole answer within {} s, {} bytes of "
                                              "it came",
                                              request.total_s, body_bytes));
    else if (newest_ns != 0 && seconds_between(newest_ns, now) > request.stall_s)
      fail(HttpFailure::kTimeout, fmt::format("timed out: no byte for {} s after {} bytes of the "
                                              "answer",
                                              request.stall_s, body_bytes));
    return response.failure != HttpFailure::kNone;
  }

  void close(CURLcode code, const char* detail) {
    response.end_ns = clock.now_ns();
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &response.status);
    if (thrown || response.failure != HttpFailure::kNone || code == CURLE_OK) return;
    std::string why = detail[0] != '\0' ? detail : curl_easy_strerror(code);
    if (code == CURLE_OPERATION_TIMEDOUT)
      why = fmt::format("timed out: no connection within {} s", request.connect_s);
    if (code == CURLE_OUT_OF_MEMORY) why = "a header line that is too long";
    fail(failure_of(code), std::move(why));
  }

  std::string problem() const {
    std::string text = shown_url(request.url);
    if (response.failure != HttpFailure::kNone) {
      text += ": " + reason + remedy(response.failure);
    } else if (response.status != 200) {
      text += fmt::format(": HTTP {}", response.status);
      // Keys before cutting, so that no part of one is left at the edge.
      const auto shown = [&](const std::string& foreign) {
        return without_key(foreign, request.key).substr(0, kShownBytes);
      };
      if (response.status / 100 == 3 && !location.empty())
        text += fmt::format(", a redirect to {}, which is not followed: give the right address",
                            shown(location));
      if (!response.body.empty()) text += ": " + shown(response.body);
    } else {
      return "";
    }
    return one_line(without_key(std::move(text), request.key));
  }
};

// libcurl calls these through C: no exception may leave them. 0 ends the transfer.
template <class Take>
size_t guarded(Exchange& exchange, size_t bytes, const Take& take) {
  try {
    return take() ? bytes : 0;
  } catch (...) {
    exchange.thrown = std::current_exception();
    return 0;
  }
}

size_t on_body(char* data, size_t size, size_t n, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  const int64_t arrival_ns = exchange.clock.now_ns();  // before anything else
  return guarded(exchange, size * n, [&] {
    return exchange.take_body({data, size * n}, arrival_ns);
  });
}

size_t on_header(char* data, size_t size, size_t n, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  return guarded(exchange, size * n, [&] { return exchange.take_header({data, size * n}); });
}

int on_connected(void* user, char*, char*, int, int) {
  static_cast<Exchange*>(user)->begin_request();
  return CURL_PREREQFUNC_OK;
}

using HeaderList = std::unique_ptr<curl_slist, void (*)(curl_slist*)>;

HeaderList header_list(const HttpRequest& request) {
  // No "Expect: 100-continue": servers that do not know it cost a second.
  curl_slist* list = curl_slist_append(nullptr, "Expect:");
  if (request.method != "GET") list = curl_slist_append(list, "Content-Type: application/json");
  if (!request.key.empty())
    list = curl_slist_append(list, ("Authorization: Bearer " + request.key).c_str());
  return {list, &curl_slist_free_all};
}

void set_options(Exchange& exchange, curl_slist* headers, char* detail) {
  const HttpRequest& request = exchange.request;
  CURL* curl = exchange.curl;
  curl_easy_reset(curl);
  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "https,http");
  curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  // Not to a proxy: the key would leave this machine in clear.
  if (is_local(request.url)) curl_easy_setopt(curl, CURLOPT_PROXY, "");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_TCP_NODELAY, 1L);
  // The other limits are in Exchange::is_over(). 0 would be libcurl's own.
  const double connect_ms = std::ceil(std::clamp(request.connect_s, 0.001, 1e6) * 1000);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(connect_ms));
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "evalrun");
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  if (request.method == "GET") {
    curl_easy_setopt(curl, CURLOPT_HTTPGET, 1L);
  } else {
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(request.body.size()));
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.body.c_str());
  }
  detail[0] = '\0';
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, detail);
  curl_easy_setopt(curl, CURLOPT_PREREQFUNCTION, &on_connected);
  curl_easy_setopt(curl, CURLOPT_PREREQDATA, &exchange);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &exchange);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &on_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &exchange);
}

// A handle among those that are worked on. Taking it out ends what is left of its transfer.
struct Transfer {
  CURLM* multi;
  CURL* curl;
  Transfer(CURLM* m, CURL* c) : multi(m), curl(c) {
    EVALRUN_CHECK(curl_multi_add_handle(multi, curl) == CURLM_OK);
  }
  ~Transfer() { curl_multi_remove_handle(multi, curl); }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
};

}  // namespace

struct HttpClient::Impl {
  base::Clock& clock;
  std::function<bool()> stop;
  char detail[CURL_ERROR_SIZE] = "";
  // Holds the connection between requests; curl_easy_perform() looks at limits once a second only.
  std::unique_ptr<CURLM, CURLMcode (*)(CURLM*)> multi{curl_multi_init(), &curl_multi_cleanup};
  std::unique_ptr<CURL, void (*)(CURL*)> easy{curl_easy_init(), &curl_easy_cleanup};

  CURLcode run(Exchange& exchange) {
    const Transfer transfer(multi.get(), easy.get());
    int running = 1;
    while (true) {
      EVALRUN_CHECK(curl_multi_perform(multi.get(), &running) == CURLM_OK);
      if (running == 0) break;
      if (exchange.is_over(stop)) return CURLE_ABORTED_BY_CALLBACK;
      EVALRUN_CHECK(curl_multi_poll(multi.get(), nullptr, 0, kLookMs, nullptr) == CURLM_OK);
    }
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi.get(), &left))
      if (message->msg == CURLMSG_DONE) return message->data.result;
    return CURLE_FAILED_INIT;
  }
};

HttpClient::HttpClient(base::Clock& clock, std::function<bool()> stop) {
  static const CURLcode kGlobal = curl_global_init(CURL_GLOBAL_DEFAULT);
  EVALRUN_CHECK(kGlobal == CURLE_OK);
  impl_.reset(new Impl{clock, std::move(stop)});
  EVALRUN_CHECK(impl_->multi != nullptr && impl_->easy != nullptr);
}

HttpClient::~HttpClient() = default;

HttpResponse HttpClient::send(const HttpRequest& request, const OnBytes& on_bytes) {
  check_url(request.url, request.key, "address");
  EVALRUN_CHECK(request.method == "GET" || request.method == "POST", "{}", request.method);
  Exchange exchange{
      .request = request, .on_bytes = on_bytes, .clock = impl_->clock, .curl = impl_->easy.get()};
  const HeaderList headers = header_list(request);
  set_options(exchange, headers.get(), impl_->detail);
  exchange.response.sent_ns = impl_->clock.now_ns();  // stays where there is no connection
  exchange.close(impl_->run(exchange), impl_->detail);
  if (exchange.thrown) std::rethrow_exception(exchange.thrown);
  exchange.response.problem = exchange.problem();
  return std::move(exchange.response);
}

bool is_local(std::string_view url) {
  if (!url.starts_with("http://") && !url.starts_with("https://")) return false;
  const std::string_view rest = url.substr(url.find("//") + 2);
  // "http://localhost:x@elsewhere" is a user and a password.
  if (rest.substr(0, rest.find('/')).find('@') != std::string_view::npos) return false;
  for (const std::string_view host : {"127.0.0.1", "localhost", "[::1]"})
    if (rest.starts_with(host)) {
      const std::string_view behind = rest.substr(host.size());
      if (behind.empty() || behind.front() == ':' || behind.front() == '/') return true;
    }
  return false;
}

void check_url(std::string_view url, std::string_view key, std::string_view what,
               std::string_view key_source) {
  const bool https = url.starts_with("https://");
  if (!https && !url.starts_with("http://"))
    throw base::usage_error(
        fmt::format("{}: '{}' is no http address", what, without_key(shown_url(url), key)),
        "for example https://api.openai.com/v1 or http://localhost:8000");
  if (key.find_first_of("\r\n") != std::string_view::npos)
    throw base::usage_error(fmt::format("{}: the key holds a line break", what),
                            "set it again without one");
  if (!https && !key.empty() && !is_local(url))
    throw base::usage_error(
        fmt::format("{}: the key would travel unencrypted to {}", what,
                    without_key(shown_url(url), key)),
        fmt::format("use https, or unset {} if this server needs no key", key_source));
}

std::string without_key(std::string text, std::string_view key) {
  if (key.empty()) return text;
  std::string shown;  // a new text: a body may hold the key a million times
  size_t from = 0;
  for (size_t at = 0; (at = text.find(key, from)) != std::string::npos; from = at + key.size())
    shown.append(text, from, at - from).append("[key]");
  if (from == 0) return text;
  shown.append(text, from);
  return shown;
}

}  // namespace evalrun::net
