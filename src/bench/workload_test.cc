#include "bench/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace tandem {
namespace {

using testing::HasSubstr;

// A file that lives as long as the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view text)
      : path_(testing::TempDir() + "tandem_workload_" + std::to_string(::getpid()) + ".csv") {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Workload MustLoad(const std::string& name, int64_t num_requests, uint64_t seed = 0) {
  auto workload = LoadWorkload(name, num_requests, seed);
  EXPECT_TRUE(workload.ok()) << workload.error().message;
  return std::move(workload).value();
}

std::string ErrorOf(const std::string& name) {
  const auto workload = LoadWorkload(name, 1, 0);
  EXPECT_FALSE(workload.ok()) << name;
  if (workload.ok()) return "";
  EXPECT_EQ(workload.error().param, "workload");
  return workload.error().message;
}

TEST(Workload, TracesAreThoseOfTheirSources) {
  struct Source {
    const char* name;
    int64_t rows;
    double mean_prompt;
    double mean_output;
    bool has_arrivals;
  };
  for (const Source& source :
       {Source{"azure-code", 5291, 2034, 27, true}, Source{"azure-conv", 11619, 1263, 206, true},
        Source{"osc", 1200, 371, 45, false}}) {
    const Workload workload = MustLoad(source.name, source.rows);
    double prompt = 0;
    double output = 0;
    for (const WorkloadRequest& request : workload.requests) {
      prompt += static_cast<double>(request.prompt_tokens);
      output += static_cast<double>(request.output_tokens);
      ASSERT_EQ(request.arrival_s.has_value(), source.has_arrivals);
    }
    EXPECT_NEAR(prompt / static_cast<double>(source.rows), source.mean_prompt, 0.5) << source.name;
    EXPECT_NEAR(output / static_cast<double>(source.rows), source.mean_output, 0.5) << source.name;
  }
  const Workload code = MustLoad("azure-code", 3);
  EXPECT_EQ(code.requests[1].prompt_tokens, 3180);
  EXPECT_EQ(code.requests[1].output_tokens, 8);
  EXPECT_DOUBLE_EQ(*code.requests[1].arrival_s, 0.052);
}

TEST(Workload, ATraceBeginsAgainWhenItEnds) {
  const TemporaryFile file("arrival_s,prompt_tokens,output_tokens\n5,10,1\n6,20,2\n9,30,3\n");
  const Workload workload = MustLoad(file.path(), 7);
  std::vector<int64_t> lengths;
  std::vector<double> arrivals;
  for (const WorkloadRequest& request : workload.requests) {
    lengths.push_back(request.prompt_tokens);
    arrivals.push_back(*request.arrival_s);
  }
  EXPECT_EQ(lengths, (std::vector<int64_t>{10, 20, 30, 10, 20, 30, 10}));
  // A round of 4 s, and a mean gap of 2 s behind it.
  EXPECT_EQ(arrivals, (std::vector<double>{0, 1, 4, 6, 7, 10, 12}));
}

TEST(Workload, ReasoningHasShortPromptsAndLongOutputs) {
  const Workload workload = MustLoad("reasoning", 20000, 5);
  double sum = 0;
  double log_sum = 0;
  double log_squares = 0;
  int64_t longest = 0;
  for (const WorkloadRequest& request : workload.requests) {
    ASSERT_GE(request.prompt_tokens, 270);
    ASSERT_LE(request.prompt_tokens, 330);
    ASSERT_GE(request.output_tokens, 64);
    const auto tokens = static_cast<double>(request.output_tokens);
    sum += tokens;
    log_sum += std::log(tokens);
    log_squares += std::log(tokens) * std::log(tokens);
    longest = std::max(longest, request.output_tokens);
  }
  EXPECT_NEAR(sum / 20000, 1500, 25);
  EXPECT_NEAR(log_sum / 20000, std::log(1500) - 0.18, 0.02);
  EXPECT_NEAR(std::sqrt(log_squares / 20000 - log_sum * log_sum / 20000 / 20000), 0.6, 0.02);
  EXPECT_EQ(longest, 8192) << "clipped";
  const Workload same = MustLoad("reasoning", 20000, 5);
  EXPECT_EQ(same.requests[777].output_tokens, workload.requests[777].output_tokens);
  EXPECT_NE(MustLoad("reasoning", 1, 6).requests[0].output_tokens, workload.requests[0].output_tokens);
  // Lengths of one's own, as for a trace.
  const Workload longer = MustLoad("reasoning:in=1000", 50, 5);
  for (const WorkloadRequest& request : longer.requests) EXPECT_GE(request.prompt_tokens, 900);
  EXPECT_EQ(longer.requests[7].output_tokens, workload.requests[7].output_tokens);
}

TEST(Workload, SyntheticLengthsAreUniformWithinTenPercent) {
  const Workload workload = MustLoad("synthetic:in=1000,out=50", 5000, 3);
  std::set<int64_t> prompts;
  std::set<int64_t> outputs;
  double sum = 0;
  for (const WorkloadRequest& request : workload.requests) {
    prompts.insert(request.prompt_tokens);
    outputs.insert(request.output_tokens);
    sum += static_cast<double>(request.prompt_tokens);
    EXPECT_FALSE(request.arrival_s.has_value());
  }
  EXPECT_EQ(*prompts.begin(), 900);
  EXPECT_EQ(*prompts.rbegin(), 1100);
  EXPECT_EQ(outputs.size(), 11U);
  EXPECT_EQ(*outputs.begin(), 45);
  EXPECT_EQ(*outputs.rbegin(), 55);
  EXPECT_NEAR(sum / 5000, 1000, 5);
  const Workload same = MustLoad("synthetic:out=50,in=1000", 5000, 3);
  EXPECT_EQ(same.requests[4999].prompt_tokens, workload.requests[4999].prompt_tokens);
  const Workload short_ones = MustLoad("synthetic:in=1,out=9", 10, 3);
  for (const WorkloadRequest& request : short_ones.requests) {
    EXPECT_EQ(request.prompt_tokens, 1);
    EXPECT_EQ(request.output_tokens, 9);
  }
}

TEST(Workload, ATraceCanHaveOtherLengths) {
  const Workload trace = MustLoad("osc", 1500);
  const Workload longer = MustLoad("osc:out=200", 1500, 5);
  EXPECT_EQ(longer.name, "osc:out=200");
  std::set<int64_t> outputs;
  for (size_t i = 0; i < 1500; ++i) {
    ASSERT_EQ(longer.requests[i].prompt_tokens, trace.requests[i].prompt_tokens);
    outputs.insert(longer.requests[i].output_tokens);
  }
  EXPECT_EQ(*outputs.begin(), 180);
  EXPECT_EQ(*outputs.rbegin(), 220);
  EXPECT_EQ(outputs.size(), 41U);
  const TemporaryFile file("arrival_s,prompt_tokens,output_tokens\n5,10,1\n6,20,2\n");
  const Workload both = MustLoad(file.path() + ":out=5,in=7", 2);
  EXPECT_EQ(both.requests[1].prompt_tokens, 7);
  EXPECT_EQ(both.requests[1].output_tokens, 5);
  EXPECT_EQ(both.requests[1].arrival_s, 1.0);
  EXPECT_EQ(MustLoad(file.path() + ":in=9", 2).requests[1].output_tokens, 2);
}

TEST(Workload, ErrorsNameWhatIsWrong) {
  EXPECT_THAT(ErrorOf("azure"), HasSubstr("'azure' is no workload"));
  EXPECT_THAT(ErrorOf("synthetic:"), HasSubstr("there is no in=N"));
  EXPECT_THAT(ErrorOf("synthetic:in=5"), HasSubstr("there is no out=N"));
  EXPECT_THAT(ErrorOf("synthetic:in=5,out=x"), HasSubstr("'x' is no number"));
  EXPECT_THAT(ErrorOf("synthetic:in=0,out=1"), HasSubstr("'0' is no number"));
  EXPECT_THAT(ErrorOf("synthetic:in=5,in=6,out=1"), HasSubstr("'in=6' comes second"));
  EXPECT_THAT(ErrorOf("synthetic:in=5,out=1,rate=2"), HasSubstr("'rate=2' is neither"));
  EXPECT_THAT(ErrorOf("osc:out=0"), HasSubstr("'0' is no number of tokens"));
  EXPECT_THAT(ErrorOf("osc:out=5,rate=2"), HasSubstr("'rate=2' is neither"));
  EXPECT_THAT(ErrorOf("oscar:out=5"), HasSubstr("'oscar' is no workload"));
  EXPECT_THAT(ErrorOf("osc:rate=2"), HasSubstr("'osc:rate=2' is no workload"));
  const TemporaryFile file("prompt_tokens,output_tokens\n5,6\n7\n");
  EXPECT_THAT(ErrorOf(file.path()), HasSubstr("line 3: 1 fields where the first line has 2"));
}

TEST(Workload, RequestsThatCannotFitAreDroppedAndCounted) {
  const TemporaryFile file("prompt_tokens,output_tokens\n90,10\n91,10\n5,96\n1,1\n");
  Workload workload = MustLoad(file.path(), 8);
  DropTooLong(100, &workload);
  EXPECT_EQ(workload.num_dropped, 4);
  ASSERT_EQ(workload.requests.size(), 4U);
  EXPECT_EQ(workload.requests[0].prompt_tokens, 90);
  EXPECT_EQ(workload.requests[1].prompt_tokens, 1);
}

TEST(Workload, IsWrittenForOtherPrograms) {
  const TemporaryFile file("arrival_s,prompt_tokens,output_tokens\n0,10,1\n1.5,200,2\n");
  Workload workload = MustLoad(file.path(), 2);
  DropTooLong(100, &workload);
  const std::string path = file.path() + ".json";
  ASSERT_TRUE(WriteWorkloadJson(workload, 7, path).ok());
  std::ifstream written(path);
  const auto json = nlohmann::json::parse(written);
  std::filesystem::remove(path);
  EXPECT_EQ(json["seed"], 7);
  EXPECT_EQ(json["dropped"], 1);
  ASSERT_EQ(json["requests"].size(), 1U);
  EXPECT_EQ(json["requests"][0]["prompt_tokens"], 10);
  EXPECT_EQ(json["requests"][0]["arrival_s"], 0.0);
  EXPECT_FALSE(WriteWorkloadJson(workload, 7, "/nonexistent/w.json").ok());
}

TEST(Workload, ATraceOfBlocksSharesNothingWithItsNextRound) {
  const TemporaryFile file(
      R"({"timestamp": 1000, "input_length": 1000, "output_length": 10, "hash_ids": [3, 8]})"
      "\n"
      R"({"timestamp": 3000, "input_length": 600, "output_length": 20, "hash_ids": [3, 9]})"
      "\n");
  const Workload workload = MustLoad("trace:" + file.path(), 4);
  ASSERT_EQ(workload.requests.size(), 4U);
  EXPECT_EQ(workload.requests[1].prompt_tokens, 600);
  EXPECT_EQ(workload.requests[1].arrival_s, 2.0);
  EXPECT_EQ(workload.requests[1].block_ids, (std::vector<int64_t>{3, 9}));
  EXPECT_EQ(workload.requests[2].arrival_s, 4.0);
  EXPECT_EQ(workload.requests[2].block_ids, (std::vector<int64_t>{13, 18}));
  EXPECT_EQ(MustLoad("trace:" + file.path() + ":out=5", 2).requests[1].output_tokens, 5);
  EXPECT_THAT(ErrorOf("trace:" + file.path() + ":in=5"), HasSubstr("only out=N can differ"));
  EXPECT_THAT(ErrorOf("trace:/nonexistent"), HasSubstr("'/nonexistent' is no workload and no file"));
  const TemporaryFile csv("prompt_tokens,output_tokens\n5,6\n");
  EXPECT_THAT(ErrorOf("trace:" + csv.path()), HasSubstr("line 1: it is no JSON object"));
}

TEST(Workload, SessionsAreForTheOnlineBench) {
  EXPECT_THAT(ErrorOf("agents:sessions=3"), HasSubstr("only bench online, or compare with a --rate"));
}

}  // namespace
}  // namespace tandem
