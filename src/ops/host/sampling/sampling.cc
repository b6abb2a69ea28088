#include "base/check.h"
#include "base/token_mask.h"
#include "device/host/host_device.h"
#include "ops/host/host_ops.h"
#include "ops/host/sampling/token_sampler.h"

namespace tandem {

void HostOps::Sample(Stream& stream, const SampleArgs& args) {
  TANDEM_CHECK(
      args.logits.dtype == DType::kF32 && args.logits.cols > 0 && args.rows.size() == args.results.size(),
      "sample: logits [{}, {}] {}, {} rows, {} results", args.logits.rows, args.logits.cols,
      DTypeName(args.logits.dtype), args.rows.size(), args.results.size());
  for (const SampleRow& row : args.rows) {
    TANDEM_CHECK(row.logits_row >= 0 && row.logits_row < args.logits.rows &&
                     row.forced_token < args.logits.cols && FitsVocab(row.allowed_tokens, args.logits.cols),
                 "sample: row {} of {}, forced token {} of {}, a mask of {} words", row.logits_row,
                 args.logits.rows, row.forced_token, args.logits.cols, row.allowed_tokens.size());
  }
  AsHostStream(stream).Enqueue([args, &row_kernels = row_](ComputePool& pool) {
    pool.ParallelFor(static_cast<int64_t>(args.rows.size()), [&](int64_t i) {
      const SampleRow& row = args.rows[static_cast<size_t>(i)];
      const std::span<const float> logits(static_cast<const float*>(args.logits.RowData(row.logits_row)),
                                          static_cast<size_t>(args.logits.cols));
      SampledToken& result = args.results[static_cast<size_t>(i)];
      result = SampleToken(logits, row, row_kernels);
      if (args.drawn != nullptr) args.drawn[i] = result.token;
    });
  });
}

void HostOps::PutDrawnTokens(Stream& stream, const DrawnTokensArgs& args) {
  AsHostStream(stream).Enqueue([args](ComputePool&) {
    for (int32_t& token : std::span(args.token_ids, static_cast<size_t>(args.num_rows))) {
      if (token < 0) token = args.drawn[~token];
    }
  });
}

}  // namespace tandem
