#include "server/access_log.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "server/http_request_id.h"

namespace tandem {
namespace {

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(AccessLog, ALineIsOneJsonObject) {
  HttpAnswerRecord record{
      .received = std::chrono::system_clock::time_point(std::chrono::milliseconds(1'700'000'000'042)),
      .duration = std::chrono::microseconds(1'500),
      .client = "127.0.0.1",
      .request_id = "id\" x",
      .key_name = "alice",
      .method = "GET",
      .path = "/\"\n\xff\x01",
      .status = 200,
      .complete = true,
      .num_bytes_in = 3,
      .num_bytes_out = 4,
      .numbers = {{"prompt_tokens", 5}}};
  const std::string line = AccessLogLine(record);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["time"], "2023-11-14T22:13:20.042Z");
  EXPECT_EQ(json["client"], "127.0.0.1");
  EXPECT_EQ(json["request_id"], "id\" x");
  EXPECT_EQ(json["key"], "alice");
  EXPECT_EQ(json["path"], "/\"\n\xEF\xBF\xBD\x01");
  EXPECT_EQ(json["status"], 200);
  EXPECT_EQ(json["complete"], true);
  EXPECT_EQ(json["bytes_in"], 3);
  EXPECT_EQ(json["bytes_out"], 4);
  EXPECT_EQ(json["duration_ms"], 1.5);
  EXPECT_EQ(json["prompt_tokens"], 5);
  EXPECT_EQ(nlohmann::json::parse(AccessLogLine({}))["status"], 499);
  EXPECT_FALSE(nlohmann::json::parse(AccessLogLine({})).contains("key"));
}

TEST(AccessLog, AppendsAndIsOpenedAgainAfterAMove) {
  const std::string path = testing::TempDir() + "tandem_access_log_test";
  const std::string moved = path + ".1";
  std::filesystem::remove(moved);
  std::ofstream(path) << "before\n";
  {
    auto log = AccessLog::Open(path);
    ASSERT_TRUE(log.ok()) << log.error().message;
    (*log)->Write("one\n");
    while (ReadFile(path).find("one") == std::string::npos)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::filesystem::rename(path, moved);
    (*log)->Reopen();
    while (!std::filesystem::exists(path)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    for (int i = 0; i < 100; ++i) (*log)->Write("two\n");
  }
  EXPECT_EQ(ReadFile(moved), "before\none\n");
  EXPECT_EQ(ReadFile(path).size(), 400U) << "the last lines are written before it ends";
  std::filesystem::remove(path);
  std::filesystem::remove(moved);
}

TEST(AccessLog, APathThatCannotBeWrittenIsAnError) {
  const auto log = AccessLog::Open("/no/such/folder/log");
  ASSERT_FALSE(log.ok());
  EXPECT_EQ(log.error().param, "access-log");
}

TEST(HttpRequestId, IsTheClientsOwnIfItIsPrintable) {
  EXPECT_EQ(HttpRequestIdOr("abc-1 2~"), "abc-1 2~");
  EXPECT_EQ(HttpRequestIdOr(std::string(128, 'x')), std::string(128, 'x'));
  for (const std::string& bad :
       {std::string(), std::string(129, 'x'), std::string("a\tb"), std::string("\xc3\xa4")}) {
    EXPECT_NE(HttpRequestIdOr(bad), bad);
    EXPECT_NE(HttpRequestIdOr(bad), HttpRequestIdOr(bad));
  }
}

}  // namespace
}  // namespace tandem
