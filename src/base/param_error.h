// An error that names the flag or request field at fault.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "base/result.h"

namespace tandem {

// param: as the flag or the field is spelled; ends up in Error::param.
template <typename... Args>
Error MakeParamError(ErrorCode code, std::string_view param, fmt::format_string<Args...> format,
                     Args&&... args) {
  Error error = MakeError(code, format, std::forward<Args>(args)...);
  error.param = param;
  return error;
}

}  // namespace tandem
