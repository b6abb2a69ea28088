#include "base/replace_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace tandem {
namespace {

class ReplaceFileTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::string Read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  int64_t NumFiles() const {
    return std::distance(std::filesystem::recursive_directory_iterator(folder_),
                         std::filesystem::recursive_directory_iterator());
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / fmt::format("tandem_replace_file_test.{}", getpid());
};

TEST_F(ReplaceFileTest, WritesFoldersAndReplacesWhatIsThere) {
  const std::string path = folder_ / "a" / "b.json";
  ASSERT_TRUE(ReplaceFile(path, "first, and longer").ok());
  EXPECT_EQ(Read(path), "first, and longer");
  ASSERT_TRUE(ReplaceFile(path, "second").ok());
  EXPECT_EQ(Read(path), "second");
  EXPECT_EQ(NumFiles(), 2) << "the folder and the file";
}

TEST_F(ReplaceFileTest, ReadsWhatIsThereUpToASize) {
  const std::string path = folder_ / "a.json";
  EXPECT_EQ(ReadReplacedFile(path, 4, "four letters").error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(ReplaceFile(path, "four").ok());
  EXPECT_EQ(ReadReplacedFile(path, 4, "four letters").value(), "four");
  const Error error = ReadReplacedFile(path, 3, "three letters").error();
  EXPECT_EQ(error.code, ErrorCode::kMalformedFile);
  EXPECT_EQ(error.message, path + ": 4 bytes are too many for three letters");
}

TEST_F(ReplaceFileTest, SaysWhatItCannotWriteAndLeavesNothing) {
  std::filesystem::create_directories(folder_ / "taken" / "by_a_folder");
  const std::string path = folder_ / "taken";
  const Status written = ReplaceFile(path, "text");
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, ErrorCode::kIo);
  EXPECT_TRUE(written.error().message.starts_with(path + " cannot be written: ")) << written.error().message;
  EXPECT_EQ(NumFiles(), 2) << "the folders alone";
}

}  // namespace
}  // namespace tandem
