#include "execute/decode_graphs.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace tandem {
namespace {

// Up to so many rows each more costs next to nothing. Beyond, padding costs more than to enqueue op by op
// does: products of a layer of an 8B model on 16 SMs of an H200 take 285 us with 48 rows, 298 with 64, 417
// with 96.
constexpr int64_t kCheapRows = 64;
constexpr int64_t kMostPadding = 24;

}  // namespace

void DecodeGraphs::Enqueue(Stream& stream, const GraphShape& shape) const {
  const std::vector<int32_t> zeros(static_cast<size_t>(shape.total_rows()), 0);
  RowBatch rows(*parts_.buffers, shape.total_rows());
  // The same order as in an iteration, so that the addresses are the same.
  parts_.inputs->Clear();
  rows.token_ids = parts_.inputs->Add(zeros);
  int32_t* positions = parts_.inputs->Add(zeros);
  rows.positions = positions;
  rows.slots = parts_.inputs->Add(zeros);
  const Decoder& decoder = *parts_.decoder;
  const int64_t num_layers = decoder.config().num_layers;
  IterationStamps& stamps = *parts_.stamps;
  const int64_t num_riders = shape.num_rider_rows;
  const auto exchange = [&](int64_t boundary) {
    if (num_riders == 0) return;
    const int64_t next = boundary + 1 < num_layers ? num_riders : 0;
    parts_.riding->Exchange(
        boundary, {.row_begin = shape.num_rows, .here = num_riders, .next = next, .positions = positions},
        rows);
  };
  const auto await_riders = [&] {
    if (num_riders > 0) parts_.riding->Await();
  };
  decoder.Embed(stream, &rows);
  stamps.Detail(stream, "embedding");
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const KvLayerView kv = parts_.memory->LayerView(Tier::kGpu, layer);
    decoder.PreProjection(stream, layer, {{{.row_begin = 0, .num_rows = shape.num_rows, .kv = kv}, {}}},
                          &rows);
    stamps.Detail(stream, "pre-projection", layer);
    exchange(layer - 1);
    decoder.Attend(stream, *parts_.plan, kv, 0, shape.num_rows, rows);
    stamps.Detail(stream, "gpu attention", layer);
    await_riders();
    decoder.PostProjection(stream, layer, &rows);
    stamps.Detail(stream, "post-projection", layer);
  }
  parts_.logits_stage->RunProducts(stream, &rows);
  stamps.Detail(stream, "logits");
  exchange(num_layers - 1);
  await_riders();
}

void DecodeGraphs::Capture(Stream& stream, std::vector<GraphShape> shapes) {
  std::sort(shapes.begin(), shapes.end(),
            [](const GraphShape& a, const GraphShape& b) { return a.total_rows() > b.total_rows(); });
  for (const GraphShape& shape : shapes) {
    if (graphs_.contains(shape)) continue;
    parts_.stamps->BeginRecording();
    if (parts_.rider_stamps != nullptr) parts_.rider_stamps->BeginRecording();
    stream.BeginCapture();
    Enqueue(stream, shape);
    Recorded& recorded = graphs_[shape];
    recorded.graph = stream.EndCapture();
    recorded.labels = parts_.stamps->labels();
    if (parts_.rider_stamps != nullptr) recorded.rider_labels = parts_.rider_stamps->labels();
  }
  stream.Synchronize();
}

GraphShape DecodeGraphs::ShapeFor(int64_t num_rows, int64_t most_rider_rows, int64_t mean_rider_rows) const {
  GraphShape best;
  for (const auto& [shape, recorded] : graphs_) {
    const bool fits = shape.num_rows >= num_rows && shape.num_rider_rows >= most_rider_rows &&
                      (shape.num_rider_rows > 0) == (most_rider_rows > 0);
    if (fits && (best.empty() || shape.total_rows() < best.total_rows())) best = shape;
  }
  const bool is_padding = most_rider_rows > 0 && best.total_rows() > kCheapRows &&
                          best.total_rows() - num_rows - mean_rider_rows > kMostPadding;
  return is_padding ? GraphShape{} : best;
}

void DecodeGraphs::Launch(Stream& stream, const GraphShape& shape) {
  const Recorded& recorded = graphs_.at(shape);
  parts_.stamps->Replay(recorded.labels);
  if (parts_.rider_stamps != nullptr) parts_.rider_stamps->Replay(recorded.rider_labels);
  stream.Launch(*recorded.graph);
}

}  // namespace tandem
