// What a model wrote, taken apart: how it is cut into pieces changes nothing, calls are well-formed as parts,
// and nothing is lost.
#include <algorithm>
#include <iterator>
#include <vector>

#include "base/utf8.h"
#include "dialect/answer_parser.h"
#include "fuzz/fuzzer_input.h"

namespace {

using tandem::AnswerParserOptions;
using tandem::AnswerPart;
using tandem::ToolFormat;
using Kind = tandem::AnswerPart::Kind;

constexpr ToolFormat kFormats[] = {ToolFormat::kNone,     ToolFormat::kHermes,  ToolFormat::kLlamaJson,
                                   ToolFormat::kPythonic, ToolFormat::kMistral, ToolFormat::kGeneric};

void AddJoined(const std::vector<AnswerPart>& pieces, std::vector<AnswerPart>* parts) {
  for (const AnswerPart& piece : pieces) {
    const bool continues = !parts->empty() && parts->back().kind == piece.kind &&
                           piece.kind != Kind::kCallBegin && piece.kind != Kind::kCallEnd;
    if (continues) {
      parts->back().text += piece.text;
    } else {
      parts->push_back(piece);
    }
  }
}

// cuts: each byte says how long the next piece is; none left: the rest at once.
std::vector<AnswerPart> Parse(const AnswerParserOptions& options, std::string_view answer,
                              std::string_view cuts) {
  const auto parser = tandem::MakeAnswerParser(options);
  const bool is_utf8 = tandem::IsValidUtf8(answer);
  std::vector<AnswerPart> joined;
  std::vector<AnswerPart> pieces;
  const auto take = [&] {
    for (const AnswerPart& piece : pieces) {
      tandem::Expect(piece.text.empty() == (piece.kind == Kind::kCallEnd), "only the end of a call is empty");
      tandem::Expect(!is_utf8 || tandem::IsValidUtf8(piece.text), "no part ends within a character");
    }
    AddJoined(pieces, &joined);
    pieces.clear();
  };
  while (!answer.empty()) {
    const size_t bytes = cuts.empty() ? answer.size() : static_cast<unsigned char>(cuts[0]) % 32;
    if (!cuts.empty()) cuts.remove_prefix(1);
    parser->Append(answer.substr(0, bytes), &pieces);
    answer.remove_prefix(std::min(bytes, answer.size()));
    take();
  }
  parser->Finish(&pieces);
  take();
  return joined;
}

bool IsSpace(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

std::string WithoutSpace(std::string_view text) {
  std::string kept;
  for (const char c : text) {
    if (!IsSpace(c)) kept += c;
  }
  return kept;
}

// Where `part` is found in `text`, byte by byte with other bytes between, text goes on behind it.
bool TakeSubsequence(std::string_view part, std::string_view* text) {
  for (const char c : part) {
    const size_t found = text->find(c);
    if (found == std::string_view::npos) return false;
    text->remove_prefix(found + 1);
  }
  return true;
}

void CheckCalls(const std::vector<AnswerPart>& parts, const AnswerParserOptions& options) {
  bool in_call = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    const AnswerPart& part = parts[i];
    switch (part.kind) {
      case Kind::kReasoning:
        tandem::Expect(i == 0, "reasoning comes first");
        break;
      case Kind::kText:
        tandem::Expect(!in_call, "no text within a call");
        break;
      case Kind::kCallBegin:
        tandem::Expect(!in_call, "calls do not nest");
        tandem::Expect(part.text == options.tools[0] || part.text == options.tools[1],
                       "offered tools are called");
        in_call = true;
        break;
      case Kind::kCallArguments:
        tandem::Expect(in_call && part.text[0] == '{', "arguments are an object of a call");
        break;
      case Kind::kCallEnd:
        tandem::Expect(in_call && parts[i - 1].kind == Kind::kCallArguments, "a call has arguments");
        in_call = false;
        break;
    }
  }
  tandem::Expect(!in_call, "calls end");
}

void CheckNothingIsLost(const std::vector<AnswerPart>& parts, std::string_view answer,
                        const AnswerParserOptions& options) {
  std::string joined;
  bool has_calls = false;
  for (const AnswerPart& part : parts) {
    has_calls |= part.kind == Kind::kCallBegin;
    joined += part.text;
  }
  if (!has_calls) {
    // All but white space and the markers of reasoning, which may stand at the start and behind the
    // reasoning.
    std::string rest(answer);
    if (options.reasoning) {
      const size_t first = rest.find_first_not_of(" \n\t\r");
      const bool is_marked = first != std::string::npos && rest.compare(first, 7, "<think>") == 0;
      if (is_marked) rest.erase(0, first + 7);
      const size_t end = is_marked || options.starts_in_reasoning ? rest.find("</think>") : std::string::npos;
      if (end != std::string::npos) rest.erase(end, 8);
    }
    tandem::Expect(WithoutSpace(joined) == WithoutSpace(rest), "nothing is lost");
    return;
  }
  // Keys, names and markers of calls are between what is seen; Python's values and escaped names change.
  if (options.format == ToolFormat::kPythonic || answer.find('\\') != std::string_view::npos) return;
  std::string_view rest = answer;
  for (const AnswerPart& part : parts) {
    // A name may stand behind its arguments, and {} may stand for none.
    if (part.kind == Kind::kCallBegin || part.text == "{}") continue;
    tandem::Expect(TakeSubsequence(part.text, &rest), "what is seen was written, in this order");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  AnswerParserOptions options = {.format = kFormats[data[0] % std::size(kFormats)], .tools = {"f", "get"}};
  options.reasoning = (data[0] & 0x40) != 0;
  options.starts_in_reasoning = (data[0] & 0x80) != 0;
  const size_t cuts = std::min<size_t>(data[1], size - 2);
  const std::string_view cut_bytes = tandem::AsText(data + 2, cuts);
  const std::string_view answer = tandem::AsText(data + 2 + cuts, size - 2 - cuts);

  const std::vector<AnswerPart> whole = Parse(options, answer, "");
  tandem::Expect(whole == Parse(options, answer, cut_bytes), "cuts change nothing");
  if (answer.size() < 2000) {
    tandem::Expect(whole == Parse(options, answer, std::string(answer.size(), '\1')), "nor byte by byte");
  }
  CheckCalls(whole, options);
  CheckNothingIsLost(whole, answer, options);
  return 0;
}
