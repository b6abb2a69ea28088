// Where the answers of the text oracles are kept: tests/fixtures/text, made by its make_text_fixtures.py.
#pragma once

#include <string>

namespace tandem {

inline const std::string kTextFixtures = std::string(TANDEM_SOURCE_DIR) + "/tests/fixtures/text/";

}  // namespace tandem
