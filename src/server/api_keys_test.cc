#include "server/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::Not;

class ApiKeyFileTest : public testing::Test {
 protected:
  Result<std::vector<ApiKey>> Read(const std::string& text) {
    std::ofstream(path_) << text;
    return ReadApiKeyFile(path_);
  }
  ~ApiKeyFileTest() override { std::filesystem::remove(path_); }

  const std::string path_ = testing::TempDir() + "tandem_api_keys_test";
};

TEST_F(ApiKeyFileTest, NamesAndKeys) {
  const auto keys = Read("# who\r\n\n  alice   k-1 \nk-2\r\nbob\tk-3");
  ASSERT_TRUE(keys.ok()) << keys.error().message;
  ASSERT_EQ(keys->size(), 3U);
  EXPECT_EQ(keys->at(0).name, "alice");
  EXPECT_EQ(keys->at(0).key, "k-1");
  EXPECT_EQ(keys->at(1).name, "line4");
  EXPECT_EQ(keys->at(1).key, "k-2");
  EXPECT_EQ(keys->at(2).name, "bob");
}

TEST_F(ApiKeyFileTest, ErrorsNameTheLineAndNoKey) {
  const auto error = [&](const std::string& text) {
    const auto keys = Read(text);
    EXPECT_FALSE(keys.ok()) << text;
    return keys.ok() ? "" : keys.error().message;
  };
  EXPECT_THAT(error("a secret1\na secret2\n"), HasSubstr(":2: the name 'a' is that of line 1"));
  EXPECT_THAT(error("a secret1\nb secret1\n"), HasSubstr(":2: the key is that of line 1"));
  EXPECT_THAT(error("a secret1\nb secret1\n"), Not(HasSubstr("secret1")));
  EXPECT_THAT(error("line2 secret1\nsecret2\n"), HasSubstr(":2: the name 'line2'"));
  EXPECT_THAT(error("\na b c\n"), HasSubstr(":2: more than"));
  EXPECT_THAT(error("a \xc3\xa4\n"), HasSubstr(":1: the key has"));
  EXPECT_THAT(error(std::string("a b\0c\n", 6)), HasSubstr(":1: the key has"));
  EXPECT_THAT(error("# nobody\n"), HasSubstr("has no key"));
  EXPECT_THAT(error(""), HasSubstr("has no key"));
}

TEST_F(ApiKeyFileTest, WhatCannotBeReadIsAnError) {
  for (const std::string& path : {testing::TempDir() + "tandem_no_such_file", testing::TempDir()}) {
    const auto keys = ReadApiKeyFile(path);
    ASSERT_FALSE(keys.ok());
    EXPECT_EQ(keys.error().code, ErrorCode::kIo);
    EXPECT_THAT(keys.error().message, HasSubstr(path));
  }
}

TEST(ApiKeys, AreVisibleAscii) {
  EXPECT_TRUE(CheckApiKey("sk-abc!~").ok());
  EXPECT_TRUE(CheckApiKey(std::string(kMaxApiKeyBytes, 'x')).ok());
  for (const std::string& key :
       {std::string(), std::string("a b"), std::string("a\tb"), std::string("a\n"), std::string("\xc3\xa4"),
        std::string("\x7f"), std::string(kMaxApiKeyBytes + 1, 'x')}) {
    EXPECT_FALSE(CheckApiKey(key).ok()) << key;
  }
}

TEST(ApiKeys, FindsTheNameOfTheKey) {
  const std::string longest(kMaxApiKeyBytes, 'x');
  const ApiKeys keys({{"a", "secret"}, {"b", "secret2"}, {"c", "s"}, {"d", longest}});
  const auto name = [&](std::string_view key) {
    const std::string* found = keys.Find(key);
    return found == nullptr ? "" : *found;
  };
  EXPECT_EQ(name("secret"), "a");
  EXPECT_EQ(name("secret2"), "b");
  EXPECT_EQ(name("s"), "c");
  EXPECT_EQ(name(longest), "d");
  for (const std::string& wrong :
       {std::string(), std::string("secre"), std::string("secret3"), std::string("Secret"),
        std::string("secret\0", 7), std::string("s\0ecret", 7), longest + "x", longest.substr(1)}) {
    EXPECT_EQ(keys.Find(wrong), nullptr) << wrong;
  }
  EXPECT_EQ(ApiKeys({}).Find(""), nullptr);
}

TEST(ApiKeys, DuplicatesAreRefused) {
  EXPECT_TRUE(CheckNoDuplicates({{"a", "1"}, {"b", "2"}}).ok());
  EXPECT_FALSE(CheckNoDuplicates({{"a", "1"}, {"a", "2"}}).ok());
  const Status same_key = CheckNoDuplicates({{"a", "secret"}, {"b", "secret"}});
  ASSERT_FALSE(same_key.ok());
  EXPECT_THAT(same_key.error().message, Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace tandem
