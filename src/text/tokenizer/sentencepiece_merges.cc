#include "text/tokenizer/sentencepiece_merges.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/utf8.h"

namespace tandem {
namespace {

constexpr size_t kMaxTokenBytes = 1024;

struct Cut {
  double order = 0;     // of the token: smaller comes first
  int left_length = 0;  // characters
  int right_length = 0;
  int32_t left_id = 0;
  int32_t right_id = 0;
  std::string_view left;
  std::string_view right;
};

}  // namespace

Result<BpeModel::Merges> MergesFromVocabulary(const BpeModel::Vocabulary& vocabulary,
                                              const std::vector<float>& scores) {
  const bool by_score = !scores.empty();
  TANDEM_CHECK(!by_score || scores.size() == vocabulary.size());
  std::unordered_map<std::string_view, int32_t> id_of_token;
  id_of_token.reserve(vocabulary.size());
  for (const auto& [token, id] : vocabulary) id_of_token.insert_or_assign(token, id);

  std::vector<Cut> cuts;
  std::vector<size_t> borders;
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const auto& [token, id] = vocabulary[i];
    if (token.size() > kMaxTokenBytes)
      return MakeError(ErrorCode::kUnsupported, "token {} has {} bytes, more than {}", id, token.size(),
                       kMaxTokenBytes);
    if (!IsValidUtf8(token))
      return MakeError(ErrorCode::kMalformedFile, "the text of token {} is not valid UTF-8", id);
    if (by_score && !std::isfinite(scores[i]))
      return MakeError(ErrorCode::kMalformedFile, "the score of token {} is not finite", id);
    borders.clear();
    for (size_t pos = 0; pos < token.size(); pos += Utf8Length(token[pos])) borders.push_back(pos);
    const size_t first_cut = cuts.size();
    for (size_t b = 1; b < borders.size(); ++b) {
      Cut cut;
      cut.left = std::string_view(token).substr(0, borders[b]);
      cut.right = std::string_view(token).substr(borders[b]);
      const auto left = id_of_token.find(cut.left);
      const auto right = id_of_token.find(cut.right);
      if (left == id_of_token.end() || right == id_of_token.end()) continue;
      cut.left_id = left->second;
      cut.right_id = right->second;
      cut.left_length = static_cast<int>(b);
      cut.right_length = static_cast<int>(borders.size() - b);
      cut.order = by_score ? -static_cast<double>(scores[i]) : id_of_token.find(token)->second;
      cuts.push_back(cut);
    }
    std::stable_sort(cuts.begin() + static_cast<ptrdiff_t>(first_cut), cuts.end(),
                     [](const Cut& a, const Cut& b) {
                       return std::tie(a.left_id, a.right_id) < std::tie(b.left_id, b.right_id);
                     });
  }
  // By score the longer left part comes first, by id the shorter.
  std::stable_sort(cuts.begin(), cuts.end(), [by_score](const Cut& a, const Cut& b) {
    if (a.order != b.order) return a.order < b.order;
    if (a.left_length != b.left_length) return (a.left_length < b.left_length) != by_score;
    if (a.right_length != b.right_length) return (a.right_length < b.right_length) != by_score;
    return false;
  });
  BpeModel::Merges merges;
  merges.reserve(cuts.size());
  for (const Cut& cut : cuts) merges.emplace_back(cut.left, cut.right);
  return merges;
}

}  // namespace tandem
