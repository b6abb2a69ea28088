// Judges the fields of a request by their names, before anything is read of it: what is misspelt or not
// served is refused, what is unknown is named in the answer.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"
#include "server/request_field_table.h"

namespace tandem {

// body: an object. Error: a field is refused, or within two letters of a known name, or unknown and
// reject_unknown; param is its name. Else *ignored has the unknown ones, of which there are at most 64. Any
// thread.
std::optional<ApiError> JudgeFields(const nlohmann::ordered_json& body, RequestRoute route,
                                    bool reject_unknown, std::vector<std::string>* ignored);

// The known name that an unknown one may be a misspelling of: two letters may be missing, added, exchanged or
// others; one in names of three or four letters, none in shorter ones. Capitals do not count. Empty: there is
// none. prefix: of the table's names that are meant, empty or an object's name and a dot.
std::string_view KnownNameLike(std::string_view name, RequestRoute route, std::string_view prefix = {});

// The names for the header X-Tandem-Ignored-Fields, visible ASCII of bounded length.
std::string IgnoredFieldsHeader(const std::vector<std::string>& names);

// The table of a page of docs/. tables: a route of each table (RequestFieldTable).
std::string RequestFieldsMarkdown(std::span<const RequestRoute> tables);

}  // namespace tandem
