// What the two benchmarks do with their results.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"

namespace tandem {

// A run of minutes must not end in a file that cannot be written. An empty path is none.
Status CheckJsonWritable(const std::string& path);

// Prints the table, writes the object if there is a path. Error: requests have failed, or kIo.
Status ShowAndWriteReport(const nlohmann::ordered_json& report, const std::string& path);

}  // namespace tandem
