// From messages to token ids: what rendering, encoding, and keeping content from making control tokens cost.
#include <fmt/format.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "load/json_fields.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

struct Flags {
  std::string tokenizer;
  std::string chat_template;
  std::string text;
  size_t bytes = 100'000;
  int rounds = 100;
};

// Of this thread, so that a busy machine disturbs less.
double CpuTimeUs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

// Turns of 200 to 2000 bytes, cut between lines.
ordered_json Conversation(const std::string& text, size_t bytes) {
  ordered_json messages = ordered_json::array();
  size_t done = 0;
  for (size_t turn = 0; done < bytes || turn % 2 == 0; ++turn) {
    const size_t begin = (done == 0 ? 0 : text.find('\n', done % text.size()) + 1) % text.size();
    const size_t end = std::min(text.find('\n', begin + 200 + turn * 7919 % 1800), text.size());
    messages.push_back(
        {{"role", turn % 2 == 0 ? "user" : "assistant"}, {"content", text.substr(begin, end - begin)}});
    done += end - begin;
  }
  return messages;
}

void Measure(std::string_view name, int rounds, const std::function<void()>& work) {
  std::vector<double> times_us;
  for (int i = 0; i < rounds; ++i) {
    const double start = CpuTimeUs();
    work();
    times_us.push_back(CpuTimeUs() - start);
  }
  std::sort(times_us.begin(), times_us.end());
  fmt::print("{:<28} median {:7.0f} us, {:.0f} to {:.0f} (10 to 90 %)\n", name, times_us[times_us.size() / 2],
             times_us[times_us.size() / 10], times_us[times_us.size() * 9 / 10]);
}

Status Run(const Flags& flags) {
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                          flags.tokenizer.ends_with(".gguf")
                              ? Tokenizer::FromGguf(flags.tokenizer)
                              : Tokenizer::FromTokenizerJson(flags.tokenizer, ""));
  constexpr size_t kMaxBytes = size_t{1} << 26;
  TANDEM_ASSIGN_OR_RETURN(const std::string source, ReadTextFile(flags.chat_template, kMaxBytes));
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<ChatTemplate> chat_template, ChatTemplate::Parse(source));
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags.text, kMaxBytes));
  const ordered_json content = {{"messages", Conversation(text, flags.bytes)}, {"tools", nullptr}};
  const ordered_json own = {{"add_generation_prompt", true},
                            {"bos_token", tokenizer->bos_token()},
                            {"eos_token", tokenizer->eos_token()}};
  TANDEM_ASSIGN_OR_RETURN(const RenderedChat chat, chat_template->Render(content, own));
  const std::vector<int32_t> ids = tokenizer->Encode(chat.text, chat.provenance, false);
  fmt::print("{} messages, {} bytes, {} tokens\n", content["messages"].size(), chat.text.size(), ids.size());
  Measure("render", flags.rounds, [&] { (void)chat_template->Render(content, own); });
  Measure("encode, content is text", flags.rounds,
          [&] { (void)tokenizer->Encode(chat.text, chat.provenance, false); });
  Measure("encode, all recognized", flags.rounds, [&] { (void)tokenizer->Encode(chat.text, false); });
  return {};
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::Flags flags;
  CLI::App app("From messages to token ids");
  app.add_option("--tokenizer", flags.tokenizer, "tokenizer.json or .gguf file")->required();
  app.add_option("--template", flags.chat_template, "Chat template")->required();
  app.add_option("--text", flags.text, "Text that the messages are cut from")->required();
  app.add_option("--bytes", flags.bytes, "Of all messages");
  app.add_option("--rounds", flags.rounds, "Of each measurement")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  const tandem::Status status = tandem::Run(flags);
  if (status.ok()) return 0;
  fmt::print(stderr, "bench_chat_text: {}\n", status.error().message);
  return 1;
}
