// Result<T>: how Tandem reports bad input, files and capacity. Broken invariants use base/check.h.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace tandem {

enum class ErrorCode {
  kInvalidArgument,    // a flag, a request field, a value out of range
  kNotFound,           // a file, a tensor, a model name
  kMalformedFile,      // a file whose content contradicts its format
  kUnsupported,        // well-formed, but not something this program does
  kResourceExhausted,  // memory, blocks, a full queue
  kUnavailable,        // loading, draining, stopped
  kIo,                 // the operating system said no
};

std::string_view ErrorCodeName(ErrorCode code);

// One clear sentence that names what is wrong and where.
struct Error {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string message;
  // The request field or flag at fault, empty if none ("param" of an OpenAI error body).
  std::string param;
};

template <typename... Args>
Error MakeError(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...), {}};
}

template <typename T>
class [[nodiscard]] Result {
 public:
  // Implicit, so that `return value;` and `return MakeError(...);` read naturally.
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    TANDEM_CHECK(ok(), "value() of an error: {}", std::get<1>(state_).message);
    return std::get<0>(state_);
  }
  const T& value() const& {
    TANDEM_CHECK(ok(), "value() of an error: {}", std::get<1>(state_).message);
    return std::get<0>(state_);
  }
  T&& value() && {
    TANDEM_CHECK(ok(), "value() of an error: {}", std::get<1>(state_).message);
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const {
    TANDEM_CHECK(!ok(), "error() of a value");
    return std::get<1>(state_);
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    TANDEM_CHECK(!ok(), "error() of a value");
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace tandem

#define TANDEM_CONCAT_INNER(a, b) a##b
#define TANDEM_CONCAT(a, b) TANDEM_CONCAT_INNER(a, b)

// TANDEM_ASSIGN_OR_RETURN(auto x, F()): x = value, or returns the error from the enclosing function.
#define TANDEM_ASSIGN_OR_RETURN(lhs, expr) \
  TANDEM_ASSIGN_OR_RETURN_IMPL(TANDEM_CONCAT(tandem_result_, __LINE__), lhs, expr)
#define TANDEM_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                                 \
  if (!tmp.ok()) return tmp.error();                 \
  lhs = std::move(tmp).value()

#define TANDEM_RETURN_IF_ERROR(expr)                       \
  do {                                                     \
    auto tandem_status = (expr);                           \
    if (!tandem_status.ok()) return tandem_status.error(); \
  } while (false)
