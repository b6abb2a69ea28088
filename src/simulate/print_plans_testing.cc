// Prints the plans of all scenarios and of the planned workloads: a line and a digest for each, and with
// --text FILE every row of every plan. What two states of the scheduler plan is compared with it.
//
//   print_plans [--text FILE] [--only TEXT]      TEXT: in the name

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>

#include "simulate/plan_digest_testing.h"

int main(int argc, char** argv) {
  std::string text_path;
  std::string only;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string_view(argv[i]) == "--text") text_path = argv[i + 1];
    if (std::string_view(argv[i]) == "--only") only = argv[i + 1];
  }
  std::ofstream text;
  if (!text_path.empty()) text.open(text_path);
  const auto lines = tandem::testing::DigestPlans(TANDEM_SOURCE_DIR "/tests/scenarios", only,
                                                  [&](std::string_view part) { text << part; });
  if (!lines.ok()) {
    fmt::print(stderr, "{}\n", lines.error().message);
    return 1;
  }
  for (const auto& line : *lines) fmt::print("{}\n", line.Text());
  for (const auto& line : *lines) {
    if (line.num_iterations > 100)
      fmt::print(stderr, "{}: {:.0f} us a plan, p99 {:.0f}\n", line.name, line.mean_plan_us,
                 line.p99_plan_us);
  }
  return 0;
}
