#include "execute/decode_graphs.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {

void DecodeGraphs::Enqueue(Stream& stream, int64_t size) const {
  const std::vector<int32_t> zeros(static_cast<size_t>(size), 0);
  RowBatch rows(*parts_.buffers, size);
  // The same order as in an iteration, so that the addresses are the same.
  parts_.inputs->Clear();
  rows.token_ids = parts_.inputs->Add(zeros);
  rows.positions = parts_.inputs->Add(zeros);
  rows.slots = parts_.inputs->Add(zeros);
  const Decoder& decoder = *parts_.decoder;
  IterationStamps& stamps = *parts_.stamps;
  decoder.Embed(stream, &rows);
  stamps.Detail(stream, "embedding");
  for (int64_t layer = 0; layer < decoder.config().num_layers; ++layer) {
    const KvLayerView kv = parts_.cache->LayerView(Tier::kGpu, layer);
    decoder.PreProjection(stream, layer, kv, &rows);
    stamps.Detail(stream, "pre-projection", layer);
    decoder.Attend(stream, *parts_.plan, kv, 0, size, rows);
    stamps.Detail(stream, "gpu attention", layer);
    decoder.PostProjection(stream, layer, &rows);
    stamps.Detail(stream, "post-projection", layer);
  }
  parts_.logits_stage->RunProducts(stream, &rows);
  stamps.Detail(stream, "logits");
}

void DecodeGraphs::Capture(Stream& stream, std::span<const int64_t> batch_sizes) {
  std::vector<int64_t> sizes(batch_sizes.begin(), batch_sizes.end());
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  for (const int64_t size : sizes) {
    if (graphs_.contains(size)) continue;
    parts_.stamps->BeginRecording();
    stream.BeginCapture();
    Enqueue(stream, size);
    graphs_[size] = {stream.EndCapture(), parts_.stamps->labels()};
  }
  stream.Synchronize();
}

int64_t DecodeGraphs::SizeFor(int64_t num_rows) const {
  const auto found = graphs_.lower_bound(num_rows);
  return found == graphs_.end() ? 0 : found->first;
}

void DecodeGraphs::Pad(int64_t size, std::vector<int32_t>* token_ids, std::vector<int32_t>* positions,
                       std::vector<int32_t>* slots) {
  const auto num_rows = static_cast<size_t>(size);
  TANDEM_CHECK(token_ids->size() <= num_rows, "{} rows in a graph of {}", token_ids->size(), size);
  token_ids->resize(num_rows, 0);
  positions->resize(num_rows, 0);
  slots->resize(num_rows, -1);
}

void DecodeGraphs::Launch(Stream& stream, int64_t size) {
  const Recorded& recorded = graphs_.at(size);
  parts_.stamps->Replay(recorded.labels);
  stream.Launch(*recorded.graph);
}

}  // namespace tandem
