#include "server/access_rules.h"

#include <gtest/gtest.h>

#include <map>

namespace tandem {
namespace {

using Headers = std::vector<HttpHeader>;

HttpRequest MakeHead(Headers headers, std::string method = "GET", std::string target = "/v1/models") {
  HttpRequest head;
  head.method = std::move(method);
  head.target = std::move(target);
  head.headers = std::move(headers);
  if (!head.HasHeader("Host")) head.headers.push_back({"Host", "localhost:8000"});
  return head;
}

class AccessRulesTest : public testing::Test {
 protected:
  void Set(const AccessOptions& options) {
    auto rules = AccessRules::Make(options);
    ASSERT_TRUE(rules.ok()) << rules.error().message;
    rules_.emplace(std::move(*rules));
  }
  // 200: none of the rules objects.
  int Status(const HttpRequest& head, PathKind path = PathKind::kApi, bool loopback_only = true) {
    const AccessDecision decision = rules_->Judge(head, path, loopback_only);
    return decision.refusal ? decision.refusal->status : 200;
  }
  int HostStatus(const std::string& host, bool loopback_only = true) {
    return Status(MakeHead({{"Host", host}}), PathKind::kApi, loopback_only);
  }
  int OriginStatus(const std::string& origin, const std::string& host = "localhost:8000") {
    return Status(MakeHead({{"Host", host}, {"Origin", origin}}, "POST"));
  }
  std::optional<AccessRules> rules_;
};

TEST_F(AccessRulesTest, OnLoopbackNamesOfOthersAreRefused) {
  Set({});
  for (const char* host : {"localhost", "LOCALHOST:8000", "localhost.", "a.localhost", "127.0.0.1:1",
                           "[::1]:8000", "192.168.1.7"}) {
    EXPECT_EQ(HostStatus(host), 200) << host;
    EXPECT_EQ(Status(MakeHead({{"Host", host}}), PathKind::kWebPage), 200) << host;
  }
  for (const char* host : {"evil.test", "evil.test:8000", "localhost.evil.test", "127.0.0.1.evil.test"}) {
    for (const PathKind path : {PathKind::kApi, PathKind::kMetrics, PathKind::kProbe, PathKind::kWebPage}) {
      EXPECT_EQ(Status(MakeHead({{"Host", host}}), path), 403) << host;
    }
  }
  for (const char* host : {"", "a b", "a@localhost", "localhost:x"}) EXPECT_EQ(HostStatus(host), 400) << host;
}

TEST_F(AccessRulesTest, TheAuthorityOfTheTargetCountsAsWell) {
  Set({});
  EXPECT_EQ(Status(MakeHead({}, "GET", "http://localhost:8000/v1/models")), 200);
  EXPECT_EQ(Status(MakeHead({}, "GET", "http://evil.test/v1/models")), 403);
  EXPECT_EQ(Status(MakeHead({}, "GET", "http://evil.test?/v1/models")), 403);
  EXPECT_EQ(Status(MakeHead({{"Host", "evil.test"}}, "GET", "http://localhost/v1/models")), 403);
  EXPECT_EQ(Status(MakeHead({}, "GET", "http://u@localhost/v1/models")), 400);
  EXPECT_EQ(Status(MakeHead({}, "GET", "/v1/models?url=http://evil.test/")), 200);
}

TEST_F(AccessRulesTest, ElsewhereHostsAreCheckedIfTheyAreNamed) {
  Set({});
  EXPECT_EQ(HostStatus("chat.example", false), 200);
  EXPECT_EQ(HostStatus("a b", false), 400);
  Set({.keys = {{"a", "k"}}});
  EXPECT_EQ(HostStatus("chat.example"), 401) << "behind a key names do not matter";
  Set({.keys = {{"a", "k"}}, .allowed_hosts = {"Chat.Example", "*.lan"}});
  for (const bool loopback_only : {true, false}) {
    EXPECT_EQ(HostStatus("chat.example:80", loopback_only), 401);
    EXPECT_EQ(HostStatus("a.b.lan", loopback_only), 401);
    EXPECT_EQ(HostStatus("localhost", loopback_only), 401);
    EXPECT_EQ(HostStatus("lan", loopback_only), 403);
    EXPECT_EQ(HostStatus("xlan", loopback_only), 403);
    EXPECT_EQ(HostStatus("evil.test", loopback_only), 403);
  }
  Set({.allowed_hosts = {"*"}});
  EXPECT_EQ(HostStatus("evil.test"), 200);
}

TEST_F(AccessRulesTest, ForeignOriginsAreRefusedWhateverTheySend) {
  Set({});
  for (const char* origin :
       {"http://evil.test", "https://evil.test:8000", "null", "", "rubbish", "http://localhost.evil.test",
        "chrome-extension://localhost", "http://10.0.0.1:8000"}) {
    for (const char* method : {"GET", "POST", "OPTIONS", "DELETE"}) {
      for (const PathKind path : {PathKind::kApi, PathKind::kMetrics, PathKind::kProbe, PathKind::kWebPage}) {
        const AccessDecision decision = rules_->Judge(MakeHead({{"Origin", origin}}, method), path, true);
        ASSERT_TRUE(decision.refusal) << origin;
        EXPECT_EQ(decision.refusal->status, 403) << origin;
        EXPECT_TRUE(decision.headers.empty()) << origin;
      }
    }
  }
  for (const char* origin :
       {"http://localhost:3000", "https://127.0.0.1", "http://[::1]:1", "http://localhost:8000"}) {
    EXPECT_EQ(OriginStatus(origin), 200) << origin;
  }
  EXPECT_EQ(OriginStatus("http://10.0.0.1:8000", "10.0.0.1:8000"), 200) << "its own";
  EXPECT_EQ(OriginStatus("http://10.0.0.1:8001", "10.0.0.1:8000"), 403);
  EXPECT_EQ(Status(MakeHead({}, "POST")), 200) << "no browser";
}

TEST_F(AccessRulesTest, OriginsCanBeAdded) {
  Set({.allowed_origins = {"https://chat.example", "chrome-extension://abc", "http://lan:80/"}});
  for (const char* origin :
       {"https://chat.example", "https://chat.example:443", "chrome-extension://abc", "http://lan"}) {
    EXPECT_EQ(OriginStatus(origin), 200) << origin;
  }
  for (const char* origin :
       {"http://chat.example", "https://chat.example:444", "https://a.chat.example", "null"}) {
    EXPECT_EQ(OriginStatus(origin), 403) << origin;
  }
  Set({.allowed_origins = {"null"}});
  EXPECT_EQ(OriginStatus("null"), 200);
  EXPECT_EQ(OriginStatus("http://evil.test"), 403);
  Set({.allowed_origins = {"*"}});
  EXPECT_EQ(OriginStatus("http://evil.test"), 200);
  for (const char* wrong : {"chat.example", "https://a/b", ""}) {
    EXPECT_FALSE(AccessRules::Make({.allowed_origins = {wrong}}).ok()) << wrong;
  }
  for (const char* wrong : {"http://a", "a:80", "", "*.", "a.*", "**"}) {
    EXPECT_FALSE(AccessRules::Make({.allowed_hosts = {wrong}}).ok()) << wrong;
  }
}

TEST_F(AccessRulesTest, WhatAPageOfAnotherSiteLoadsIsRefused) {
  Set({});
  const Headers image = {
      {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Mode", "no-cors"}, {"Sec-Fetch-Dest", "image"}};
  const Headers frame = {
      {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Mode", "navigate"}, {"Sec-Fetch-Dest", "iframe"}};
  const Headers link = {
      {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Mode", "navigate"}, {"Sec-Fetch-Dest", "document"}};
  EXPECT_EQ(Status(MakeHead(image)), 403);
  EXPECT_EQ(Status(MakeHead(frame)), 403);
  EXPECT_EQ(Status(MakeHead(link)), 200);
  EXPECT_EQ(Status(MakeHead(link), PathKind::kWebPage), 200);
  EXPECT_EQ(Status(MakeHead({{"Sec-Fetch-Site", "same-origin"}})), 200);
  EXPECT_EQ(Status(MakeHead({{"Sec-Fetch-Site", "none"}})), 200);
}

TEST_F(AccessRulesTest, AKeyCoversAllButProbesAndThePage) {
  Set({.keys = {{"alice", "k1"}, {"bob", "k2"}}});
  for (const PathKind path : {PathKind::kApi, PathKind::kMetrics}) {
    for (const Headers& headers :
         {Headers{}, Headers{{"Authorization", "Bearer k"}}, Headers{{"Authorization", "k1"}},
          Headers{{"Authorization", "Bearer "}}, Headers{{"Authorization", "Basic k1"}},
          Headers{{"x-api-key", "k3"}}, Headers{{"x-api-key", ""}}, Headers{{"api-key", "k1"}}}) {
      EXPECT_EQ(Status(MakeHead(headers), path), 401);
    }
    EXPECT_EQ(Status(MakeHead({{"Authorization", "Bearer k1"}}), path), 200);
    EXPECT_EQ(Status(MakeHead({{"authorization", "bearer  k2"}}), path), 200);
    EXPECT_EQ(Status(MakeHead({{"X-Api-Key", "k2"}}), path), 200);
    EXPECT_EQ(Status(MakeHead({{"Authorization", "Bearer wrong"}, {"x-api-key", "k2"}}), path), 200);
  }
  for (const PathKind path : {PathKind::kProbe, PathKind::kWebPage})
    EXPECT_EQ(Status(MakeHead({}), path), 200);
  EXPECT_EQ(rules_->Judge(MakeHead({{"x-api-key", "k2"}}), PathKind::kApi, true).key_name, "bob");
  EXPECT_EQ(rules_->Judge(MakeHead({{"x-api-key", "k1"}}), PathKind::kProbe, true).key_name, "alice");
  EXPECT_EQ(OriginStatus("http://evil.test"), 403) << "one rule, with a key or without";
  Set({.keys = {{"a", "k"}}, .open_metrics = true});
  EXPECT_EQ(Status(MakeHead({}), PathKind::kMetrics), 200);
  EXPECT_EQ(Status(MakeHead({})), 401);
}

TEST_F(AccessRulesTest, SeveralKeysHaveCachesOfTheirOwnUnlessTheyShareOne) {
  Set({});
  EXPECT_FALSE(rules_->keeps_caches_apart());
  AccessOptions options{.keys = {{"alice", "k1"}}};
  Set(options);
  EXPECT_FALSE(rules_->keeps_caches_apart());
  options.keys.push_back({"bob", "k2"});
  Set(options);
  EXPECT_TRUE(rules_->keeps_caches_apart());
  options.share_prefix_cache = true;
  Set(options);
  EXPECT_FALSE(rules_->keeps_caches_apart());
}

TEST_F(AccessRulesTest, BadKeysMakeNoRules) {
  for (const std::vector<ApiKey>& keys :
       {std::vector<ApiKey>{{"a", ""}}, {{"a", "x y"}}, {{"a", "1"}, {"b", "1"}}, {{"a", "1"}, {"a", "2"}}}) {
    const auto rules = AccessRules::Make({.keys = keys});
    ASSERT_FALSE(rules.ok());
    EXPECT_EQ(rules.error().param, "api-key");
  }
}

TEST_F(AccessRulesTest, EncodedBodiesAreNotRead) {
  Set({});
  EXPECT_EQ(Status(MakeHead({{"Content-Encoding", "gzip"}}, "POST")), 415);
  EXPECT_EQ(Status(MakeHead({{"Content-Encoding", "identity, gzip"}}, "POST")), 415);
  EXPECT_EQ(Status(MakeHead({{"Content-Encoding", "Identity"}}, "POST")), 200);
}

TEST_F(AccessRulesTest, PreflightsNeedNoKeyAndGetWhatTheyAskFor) {
  Set({.keys = {{"a", "k"}}, .allowed_origins = {"https://chat.example"}});
  HttpRequest head = MakeHead({{"Origin", "https://chat.example"},
                               {"Access-Control-Request-Method", "POST"},
                               {"Access-Control-Request-Headers", "authorization,x-stainless-os"},
                               {"Access-Control-Request-Private-Network", "true"}},
                              "OPTIONS");
  const AccessDecision decision = rules_->Judge(head, PathKind::kApi, true);
  ASSERT_FALSE(decision.refusal);
  std::map<std::string, std::string> headers;
  for (const HttpHeader& header : decision.headers) headers[header.name] = header.value;
  for (const HttpHeader& header : PreflightHeaders(head, "POST, OPTIONS"))
    headers[header.name] = header.value;
  EXPECT_EQ(headers["Access-Control-Allow-Origin"], "https://chat.example");
  EXPECT_EQ(headers["Access-Control-Allow-Headers"], "authorization,x-stainless-os");
  EXPECT_EQ(headers["Access-Control-Allow-Methods"], "POST, OPTIONS");
  EXPECT_EQ(headers["Access-Control-Allow-Private-Network"], "true");
  EXPECT_NE(headers["Access-Control-Expose-Headers"].find("X-Request-Id"), std::string::npos);
  // An OPTIONS that is no preflight could carry a key.
  EXPECT_EQ(Status(MakeHead({{"Origin", "https://chat.example"}}, "OPTIONS")), 401);
  head.headers[2].value = "bad\x01header";
  EXPECT_EQ(PreflightHeaders(head, "GET")[1].value, "Authorization, Content-Type, x-api-key, X-Request-Id");
}

}  // namespace
}  // namespace tandem
