#include "cli/tracing_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <variant>
#include <vector>

#include "cli/command_line.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

CommandLine ParseServe(const std::vector<const char*>& flags) {
  std::vector<const char*> words = {"tandem", "serve", "model"};
  words.insert(words.end(), flags.begin(), flags.end());
  return ParseCommandLine(static_cast<int>(words.size()), words.data());
}

class TracingFlagsTest : public testing::Test {
 protected:
  ~TracingFlagsTest() override {
    for (const char* name : set_) unsetenv(name);
  }
  void Set(const char* name, const char* value) {
    setenv(name, value, 1);
    set_.push_back(name);
  }

 private:
  std::vector<const char*> set_;
};

TEST_F(TracingFlagsTest, TracingIsOffUntilAnEndpointIsNamed) {
  const CommandLine off = ParseServe({});
  EXPECT_FALSE(std::get<ServeOptions>(off).server.tracing.has_value());
  const CommandLine on = ParseServe({"--otlp-traces-endpoint", "http://host:4318"});
  const auto& tracing = std::get<ServeOptions>(on).server.tracing;
  ASSERT_TRUE(tracing.has_value());
  EXPECT_EQ(tracing->otlp.url.Authority(), "host:4318");
  EXPECT_FALSE(tracing->otlp.version.empty());
}

TEST_F(TracingFlagsTest, TheEnvironmentNamesItToo) {
  Set("OTEL_EXPORTER_OTLP_ENDPOINT", "http://standard:4318");
  const CommandLine standard = ParseServe({});
  EXPECT_EQ(std::get<ServeOptions>(standard).server.tracing->otlp.url.host, "standard");
  Set("TANDEM_OTLP_TRACES_ENDPOINT", "http://own:4318");
  const CommandLine own = ParseServe({});
  EXPECT_EQ(std::get<ServeOptions>(own).server.tracing->otlp.url.host, "own");
}

TEST_F(TracingFlagsTest, ErrorsNameTheFlagOrTheVariable) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(std::get<int>(ParseServe({"--otlp-traces-endpoint", "host:4317"})), 2);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("tandem: --otlp-traces-endpoint: 'host:4317'"));
  Set("OTEL_TRACES_SAMPLER", "some");
  testing::internal::CaptureStderr();
  EXPECT_EQ(std::get<int>(ParseServe({"--otlp-traces-endpoint", "http://host"})), 2);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              StartsWith("tandem: OTEL_TRACES_SAMPLER: 'some' is no"));
}

}  // namespace
}  // namespace tandem
