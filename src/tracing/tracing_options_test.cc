#include "tracing/tracing_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace tandem {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Pair;
using Environment = std::map<std::string, std::string>;

Result<std::optional<TracingOptions>> Read(const Environment& environment, const std::string& endpoint = {}) {
  return ReadTracingOptions(endpoint, "1.2", [&environment](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TracingOptions ReadGood(const Environment& environment, const std::string& endpoint = "http://host:4318") {
  auto options = Read(environment, endpoint);
  EXPECT_TRUE(options.ok()) << options.error().message;
  EXPECT_TRUE(options->has_value());
  return **options;
}

std::string UrlOf(const Environment& environment, const std::string& endpoint = {}) {
  const ServerUrl url = ReadGood(environment, endpoint).otlp.url;
  return (url.https ? "https " : "http ") + url.Authority() + url.path;
}

TEST(TracingOptions, WithoutAnEndpointNothingIsWanted) {
  for (const Environment& environment :
       {Environment{}, Environment{{"OTEL_EXPORTER_OTLP_ENDPOINT", ""}, {"OTEL_SERVICE_NAME", "x"}},
        Environment{{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://host"}, {"OTEL_SDK_DISABLED", "true"}},
        Environment{{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://host"}, {"OTEL_TRACES_EXPORTER", "none"}}}) {
    const auto options = Read(environment);
    ASSERT_TRUE(options.ok()) << options.error().message;
    EXPECT_FALSE(options->has_value());
  }
}

TEST(TracingOptions, TheEndpointIsTheFlagsThenThatForTracesThenThatForAll) {
  Environment environment = {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4318/prefix/"}};
  EXPECT_EQ(UrlOf(environment), "http all:4318/prefix/v1/traces");
  environment["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = "https://traces/as/it/is";
  EXPECT_EQ(UrlOf(environment), "https traces:443/as/it/is");
  EXPECT_EQ(UrlOf(environment, "http://flag:1/x"), "http flag:1/x");
  EXPECT_EQ(UrlOf(environment, "http://flag:4318"), "http flag:4318/v1/traces");
  EXPECT_EQ(UrlOf({{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:4318"}}), "http traces:4318/");
  EXPECT_EQ(UrlOf({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://all"}}), "http all:80/v1/traces");
}

TEST(TracingOptions, HeadersAreDecoded) {
  Environment environment = {{"OTEL_EXPORTER_OTLP_HEADERS", " api-key = key%3D%2C , , x=y=z"}};
  EXPECT_THAT(ReadGood(environment).otlp.headers, ElementsAre(Pair("api-key", "key=,"), Pair("x", "y=z")));
  environment["OTEL_EXPORTER_OTLP_TRACES_HEADERS"] = "Authorization=Bearer%20abc";
  EXPECT_THAT(ReadGood(environment).otlp.headers, ElementsAre(Pair("Authorization", "Bearer abc")));
}

TEST(TracingOptions, TheResourceHasTheServicesName) {
  const auto name_of = [](const Environment& environment) {
    for (const auto& [key, value] : ReadGood(environment).otlp.resource) {
      if (key == "service.name") return std::get<std::string>(value);
    }
    return std::string();
  };
  EXPECT_EQ(name_of({}), "tandem");
  EXPECT_EQ(name_of({{"OTEL_RESOURCE_ATTRIBUTES", "service.name=a,deployment.environment.name=test"}}), "a");
  EXPECT_EQ(name_of({{"OTEL_RESOURCE_ATTRIBUTES", "service.name=a"}, {"OTEL_SERVICE_NAME", "b"}}), "b");
  const Attributes resource =
      ReadGood({{"OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=a%20b"}}).otlp.resource;
  EXPECT_THAT(resource, Contains(Pair("deployment.environment.name", AttributeValue("a b"))));
  EXPECT_THAT(resource, Contains(Pair("service.version", AttributeValue("1.2"))));
}

TEST(TracingOptions, LimitsAndSamplerAreRead) {
  const TracingOptions options = ReadGood({{"OTEL_BSP_MAX_QUEUE_SIZE", "100"},
                                           {"OTEL_BSP_SCHEDULE_DELAY", "250"},
                                           {"OTEL_EXPORTER_OTLP_TIMEOUT", "2000"},
                                           {"OTEL_EXPORTER_OTLP_CERTIFICATE", "ca.pem"},
                                           {"OTEL_TRACES_SAMPLER", "always_off"}});
  EXPECT_EQ(options.otlp.max_queued_spans, 100U);
  EXPECT_EQ(options.otlp.max_batch_spans, 100U) << "no batch is larger than the queue";
  EXPECT_EQ(options.otlp.delay, std::chrono::milliseconds(250));
  EXPECT_EQ(options.otlp.timeout, std::chrono::milliseconds(2000));
  EXPECT_EQ(options.otlp.ca_file, "ca.pem");
  EXPECT_FALSE(options.sampler.Samples(NewTraceId(), std::nullopt));
  const Sampler by_default = ReadGood({}).sampler;
  EXPECT_TRUE(by_default.Samples(NewTraceId(), std::nullopt));
  EXPECT_FALSE(by_default.Samples(NewTraceId(), TraceContext{.sampled = false}));
}

TEST(TracingOptions, ErrorsNameTheVariable) {
  for (const auto& [name, value] : Environment{{"OTEL_EXPORTER_OTLP_HEADERS", "x"},
                                               {"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x=a%0d%0ab"},
                                               {"OTEL_RESOURCE_ATTRIBUTES", "=x"},
                                               {"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
                                               {"OTEL_EXPORTER_OTLP_TIMEOUT", "0"},
                                               {"OTEL_BSP_SCHEDULE_DELAY", "-1"},
                                               {"OTEL_BSP_MAX_QUEUE_SIZE", "many"},
                                               {"OTEL_TRACES_SAMPLER", "some"}}) {
    const auto options = Read({{name, value}}, "http://host:4318");
    ASSERT_FALSE(options.ok()) << name;
    EXPECT_EQ(options.error().param, name);
  }
  EXPECT_EQ(Read({}, "host:4317").error().param, "otlp-traces-endpoint");
  EXPECT_EQ(Read({{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "grpc://host"}}).error().param,
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
}

}  // namespace
}  // namespace tandem
