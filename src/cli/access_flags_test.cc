#include "cli/access_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <variant>
#include <vector>

#include "cli/command_line.h"
#include "cli/secret_arguments.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::Not;

CommandLine ParseWords(std::vector<const char*> words) {
  words.insert(words.begin(), "tandem");
  return ParseCommandLine(static_cast<int>(words.size()), words.data());
}

AccessOptions AccessOf(const std::vector<const char*>& words) {
  const CommandLine parsed = ParseWords(words);
  EXPECT_TRUE(std::holds_alternative<ServeOptions>(parsed));
  if (!std::holds_alternative<ServeOptions>(parsed)) return {};
  return std::get<ServeOptions>(parsed).server.access;
}

// What is said of wrong usage.
std::string ErrorOf(const std::vector<const char*>& words) {
  testing::internal::CaptureStderr();
  const CommandLine parsed = ParseWords(words);
  std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(std::holds_alternative<int>(parsed) && std::get<int>(parsed) == 2) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  return said;
}

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

TEST(AccessFlags, NoKeysAndNobodyElseByDefault) {
  const AccessOptions access = AccessOf({"serve", "m"});
  EXPECT_TRUE(access.keys.empty());
  EXPECT_TRUE(access.allowed_hosts.empty());
  EXPECT_TRUE(access.allowed_origins.empty());
  EXPECT_FALSE(access.open_metrics);
  EXPECT_FALSE(access.share_prefix_cache);
}

TEST(AccessFlags, AnEmptyKeyIsAnError) {
  EXPECT_THAT(ErrorOf({"serve", "m", "--api-key", ""}), HasSubstr("--api-key: the value is empty"));
  EXPECT_THAT(ErrorOf({"serve", "m", "--api-key="}), HasSubstr("--api-key: the value is empty"));
  EXPECT_THAT(ErrorOf({"serve", "--api-key=", "m"}), HasSubstr("--api-key: the value is empty"));
  EXPECT_THAT(ErrorOf({"serve", "m", "--api-key", "k", "--api-key", ""}),
              HasSubstr("--api-key: the value is empty"));
  EXPECT_THAT(ErrorOf({"serve", "m", "--api-key-file", ""}), HasSubstr("--api-key-file: the value is empty"));
  EXPECT_THAT(ErrorOf({"serve", "m", "--api-key-file="}), HasSubstr("--api-key-file: the value is empty"));
  EXPECT_THAT(ErrorOf({"bench", "online", "--url", "http://h", "--workload", "osc", "--api-key", ""}),
              HasSubstr("--api-key: the value is empty"));
  {
    const Variable key("TANDEM_API_KEY", "");
    EXPECT_THAT(ErrorOf({"serve", "m"}), HasSubstr("TANDEM_API_KEY is set and empty"));
    EXPECT_THAT(ErrorOf({"bench", "online", "--url", "http://h", "--workload", "osc"}),
                HasSubstr("TANDEM_API_KEY is set and empty"));
    EXPECT_EQ(AccessOf({"serve", "m", "--api-key", "k"}).keys.size(), 1U) << "what is given wins";
    EXPECT_TRUE(std::holds_alternative<DoctorOptions>(ParseWords({"doctor"}))) << "has no key";
  }
  const Variable file("TANDEM_API_KEY_FILE", "");
  EXPECT_THAT(ErrorOf({"serve", "m"}), HasSubstr("TANDEM_API_KEY_FILE is set and empty"));
}

TEST(AccessFlags, KeysOfFlagsVariablesAndAFile) {
  const std::string path = testing::TempDir() + "tandem_access_flags_test";
  std::ofstream(path) << "alice k3\nk4\n";
  const AccessOptions both =
      AccessOf({"serve", "--api-key", "k1", "--api-key=k2", "m", "--api-key-file", path.c_str()});
  ASSERT_EQ(both.keys.size(), 4U);
  EXPECT_EQ(both.keys[0].name, "default");
  EXPECT_EQ(both.keys[0].key, "k1");
  EXPECT_EQ(both.keys[1].name, "default2");
  EXPECT_EQ(both.keys[1].key, "k2");
  EXPECT_EQ(both.keys[2].name, "alice");
  EXPECT_EQ(both.keys[3].name, "line2");
  EXPECT_THAT(ErrorOf({"serve", "m", "--api-key", "k3", "--api-key-file", path.c_str()}),
              Not(HasSubstr("k3")));
  const Variable key("TANDEM_API_KEY", "k5");
  const Variable file("TANDEM_API_KEY_FILE", path.c_str());
  const AccessOptions from_variables = AccessOf({"serve", "m"});
  ASSERT_EQ(from_variables.keys.size(), 3U);
  EXPECT_EQ(from_variables.keys[0].key, "k5");
  std::ofstream(path) << "alice one\nalice two\n";
  EXPECT_THAT(ErrorOf({"serve", "m"}), HasSubstr("--api-key-file: " + path + ":2: "));
  std::filesystem::remove(path);
  EXPECT_THAT(ErrorOf({"serve", "m"}), HasSubstr("cannot read"));
}

TEST(AccessFlags, KeysThatNoHeaderCarriesAreErrors) {
  for (const char* key : {"two words", "tab\t", "\xc3\xa4"}) {
    const std::string said = ErrorOf({"serve", "m", "--api-key", key});
    EXPECT_THAT(said, HasSubstr("--api-key: the key has"));
    EXPECT_THAT(said, Not(HasSubstr(key)));
  }
}

TEST(AccessFlags, HostsOriginsAndPaths) {
  const CommandLine parsed =
      ParseWords({"serve", "--allowed-hosts", "a.example,*.lan", "--allowed-origins", "https://a.example",
                  "m", "--allowed-origins", "http://b", "--open-metrics", "--share-prefix-cache",
                  "--access-log", "-", "--root-path", "/tandem/"});
  const auto* options = std::get_if<ServeOptions>(&parsed);
  ASSERT_NE(options, nullptr);
  EXPECT_EQ(options->engine.model, "m");
  EXPECT_EQ(options->server.access.allowed_hosts, (std::vector<std::string>{"a.example", "*.lan"}));
  EXPECT_EQ(options->server.access.allowed_origins,
            (std::vector<std::string>{"https://a.example", "http://b"}));
  EXPECT_TRUE(options->server.access.open_metrics);
  EXPECT_TRUE(options->server.access.share_prefix_cache);
  EXPECT_EQ(options->server.access_log, "-");
  EXPECT_EQ(options->server.root_path, "/tandem");
  EXPECT_THAT(ErrorOf({"serve", "m", "--allowed-origins", "example.com"}), HasSubstr("--allowed-origins: "));
  EXPECT_THAT(ErrorOf({"serve", "m", "--allowed-hosts", "http://a"}), HasSubstr("--allowed-hosts: "));
  EXPECT_THAT(ErrorOf({"serve", "m", "--root-path", "tandem"}), HasSubstr("--root-path: "));
}

TEST(SecretArguments, AreOverwrittenWhereTheyStand) {
  std::vector<std::string> words = {"tandem",         "serve", "--api-key", "secret",   "--api-key=secret2",
                                    "--api-key-file", "path",  "m",         "--api-key"};
  std::vector<char*> argv;
  argv.reserve(words.size());
  for (std::string& word : words) argv.push_back(word.data());
  const std::vector<std::string> shown = WithoutSecrets(static_cast<int>(argv.size()), argv.data());
  EXPECT_EQ(shown, (std::vector<std::string>{"tandem", "serve", "--api-key", "***", "--api-key=***",
                                             "--api-key-file", "path", "m", "--api-key"}));
  OverwriteSecrets(static_cast<int>(argv.size()), argv.data());
  EXPECT_EQ(words, (std::vector<std::string>{"tandem", "serve", "--api-key", "******", "--api-key=*******",
                                             "--api-key-file", "path", "m", "--api-key"}));
}

TEST(SecretArguments, AreNotInTheCommandOfAReport) {
  const CommandLine parsed =
      ParseWords({"bench", "online", "--url", "http://h", "--workload", "osc", "--api-key", "secret"});
  const auto* options = std::get_if<BenchOnlineOptions>(&parsed);
  ASSERT_NE(options, nullptr);
  EXPECT_EQ(options->api_key, "secret");
  EXPECT_THAT(options->command, Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace tandem
