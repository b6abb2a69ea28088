// Writes the rows of the tables of request fields.
#pragma once

#include <cstdint>
#include <string_view>

#include "server/request_field_table.h"

namespace tandem {

// Rows of one route, or of several alike.
struct FieldRows {
  uint8_t routes = 0;  // as RequestField has them

  constexpr RequestField Served(std::string_view name, std::string_view note) const {
    return {name, routes, FieldState::kImplemented, note, {}};
  }
  constexpr RequestField Dropped(std::string_view name, std::string_view note) const {
    return {name, routes, FieldState::kNoEffect, note, {}};
  }
  constexpr RequestField Refused(std::string_view name, std::string_view note,
                                 std::string_view harmless = {}) const {
    return {name, routes, FieldState::kRefused, note, harmless};
  }
};

constexpr FieldRows RowsOf(RequestRoute route) {
  return {static_cast<uint8_t>(route)};
}

}  // namespace tandem
