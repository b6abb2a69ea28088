#include "server/authority.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(Authority, HostsAndPorts) {
  const auto plain = ParseAuthority("LocalHost.:8000");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->host, "localhost");
  EXPECT_EQ(plain->port, 8000);
  EXPECT_FALSE(plain->is_ip_literal);
  const auto v6 = ParseAuthority("[::1]:80");
  ASSERT_TRUE(v6);
  EXPECT_EQ(v6->host, "::1");
  EXPECT_TRUE(v6->is_ip_literal);
  EXPECT_TRUE(ParseAuthority("10.0.0.7")->is_ip_literal);
  EXPECT_FALSE(ParseAuthority("10.0.0.7.evil.test")->is_ip_literal);
  EXPECT_FALSE(ParseAuthority("host:")->port);
  EXPECT_TRUE(ParseAuthority("my_service:8000"));
}

TEST(Authority, MalformedOnesAreNone) {
  for (const char* text : {"",        ".",      ":80",         "a b", "a/b", "a@b",     "user@localhost",
                           "[::1",    "[::1]x", "[localhost]", "::1", "a:b", "a:99999", "a:-1",
                           "a:80:80", "a\x01",  "\xff",        "[]",  "a?b", "a#b",     "a\\b"}) {
    EXPECT_FALSE(ParseAuthority(text)) << text;
  }
}

TEST(Authority, LoopbackIsWhatNoNameServerDecides) {
  for (const char* text : {"localhost", "LOCALHOST.", "app.localhost", "127.0.0.1", "127.8.9.1:80", "[::1]",
                           "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]"}) {
    EXPECT_TRUE(IsLoopback(*ParseAuthority(text))) << text;
  }
  for (const char* text : {"localhost.evil.test", "notlocalhost", "127.0.0.1.nip.io", "127.evil.test",
                           "10.0.0.1", "128.0.0.1", "0.0.0.0", "[::]", "[::2]", "[::ffff:10.0.0.1]"}) {
    EXPECT_FALSE(IsLoopback(*ParseAuthority(text))) << text;
  }
}

TEST(WebOrigin, SchemesOwnPorts) {
  const auto same = [](const char* a, const char* b) {
    return SameOrigin(*ParseWebOrigin(a), *ParseWebOrigin(b));
  };
  EXPECT_TRUE(same("https://Chat.example", "HTTPS://chat.example:443"));
  EXPECT_FALSE(same("https://chat.example", "http://chat.example"));
  EXPECT_FALSE(same("https://chat.example", "https://chat.example:444"));
  for (const char* text :
       {"null", "", "chat.example", "https://", "://x", "https://a/b", "https://a?b", "ht tp://a"}) {
    EXPECT_FALSE(ParseWebOrigin(text)) << text;
  }
  EXPECT_TRUE(ParseWebOrigin("chrome-extension://abcdef"));
}

TEST(WebOrigin, AProxyMayHaveEndedTls) {
  const auto of_host = [](const char* origin, const char* host) {
    return IsOriginOfHost(*ParseWebOrigin(origin), *ParseAuthority(host));
  };
  EXPECT_TRUE(of_host("https://chat.example", "chat.example"));
  EXPECT_TRUE(of_host("http://chat.example", "chat.example"));
  EXPECT_TRUE(of_host("https://chat.example", "chat.example:443"));
  EXPECT_TRUE(of_host("http://10.0.0.1:8000", "10.0.0.1:8000"));
  EXPECT_FALSE(of_host("http://chat.example:3000", "chat.example"));
  EXPECT_FALSE(of_host("http://chat.example", "chat.example:8000"));
  EXPECT_FALSE(of_host("https://evil.test", "chat.example"));
  EXPECT_FALSE(of_host("chrome-extension://chat.example", "chat.example"));
}

}  // namespace
}  // namespace tandem
