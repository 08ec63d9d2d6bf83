// An answer other than 200, in OpenAI's form.
#pragma once
#include <exception>
#include <string>
#include <utility>

namespace evalrun::runners {

// {"error": {"message", "type", "param", "code"}} (OpenAI API reference, "Error codes").
struct ApiError {
  int status = 400;
  std::string message;
  std::string param = {};    // the field it is about; "" = null
  std::string code = {};     // "" = null
  int retry_after_s = 0;     // Retry-After; 0 = none
  std::string allow = {};    // methods that the path has, of a 405
  std::string body() const;  // JSON
};

// Thrown while a request is read.
class ApiRefusal : public std::exception {
 public:
  explicit ApiRefusal(ApiError error) : error_(std::move(error)) {}
  const ApiError& error() const { return error_; }
  const char* what() const noexcept override { return error_.message.c_str(); }

 private:
  ApiError error_;
};

}  // namespace evalrun::runners
