#include "http_client/server_url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

using testing::HasSubstr;

TEST(ServerUrl, HasHostPortAndPath) {
  struct Case {
    const char* text;
    const char* authority;
    const char* path;
    bool https = false;
  };
  for (const Case& good :
       {Case{"http://127.0.0.1:8000", "127.0.0.1:8000", "/v1"}, Case{"http://host", "host:80", "/v1"},
        Case{"http://host:1/v1/", "host:1", "/v1"}, Case{"http://host/a/b", "host:80", "/a/b"},
        Case{"http://[::1]:8000/", "[::1]:8000", "/v1"}, Case{"http://[::1]", "[::1]:80", "/v1"},
        Case{"https://host", "host:443", "/v1", true},
        Case{"https://host:8443/a", "host:8443", "/a", true}}) {
    const auto url = ParseServerUrl(good.text);
    ASSERT_TRUE(url.ok()) << url.error().message;
    EXPECT_EQ(url->Authority(), good.authority);
    EXPECT_EQ(url->path, good.path);
    EXPECT_EQ(url->https, good.https);
  }
}

TEST(ServerUrl, AnotherPathMayBeTheDefault) {
  for (const char* text : {"http://host", "http://host/"}) {
    EXPECT_EQ(ParseServerUrl(text, "/v1/traces")->path, "/v1/traces") << text;
  }
  EXPECT_EQ(ParseServerUrl("http://host/x", "/v1/traces")->path, "/x");
  EXPECT_EQ(ParseServerUrl("host", "/", "endpoint").error().param, "endpoint");
}

TEST(ServerUrl, ErrorsSayWhatIsWrong) {
  struct Case {
    const char* text;
    const char* message;
  };
  for (const Case& bad :
       {Case{"https://", "names no host"}, Case{"host:8000", "does not begin with http://"},
        Case{"", "does not begin"}, Case{"http://", "names no host"}, Case{"http://:8000", "names no host"},
        Case{"http://host:", "no port from 1"}, Case{"http://host:99999", "no port from 1"},
        Case{"http://host:x", "no port from 1"}, Case{"http://[::1", "bracket"},
        Case{"http://[::1]8000", "no port behind"}, Case{"http://user@host", "has a part"}}) {
    const auto url = ParseServerUrl(bad.text);
    ASSERT_FALSE(url.ok()) << bad.text;
    EXPECT_EQ(url.error().param, "url");
    EXPECT_THAT(url.error().message, HasSubstr(bad.message)) << bad.text;
  }
}

}  // namespace
}  // namespace tandem
