#include "ops/cuda/attention/attention_plan.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "device/cuda/cuda_device.h"
#include "ops/cuda/attention/attention_fallback.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/kv_codes/coded_heads.h"

namespace tandem {
namespace {

// Of q and out, unless they are fp32.
DType RowsOf(const AttentionCapacity& capacity) {
  return IsCoded(capacity.kv) ? capacity.coded_rows : capacity.kv.plain_dtype();
}

const CudaAttentionPlan& PlanOf(const AttentionPlan* plan) {
  const auto* cuda = dynamic_cast<const CudaAttentionPlan*>(plan);
  TANDEM_CHECK(cuda != nullptr, "attention: not a plan of the cuda backend");
  return *cuda;
}

}  // namespace

CudaAttentionPlan::CudaAttentionPlan(const AttentionCapacity& capacity, const CudaTarget& target)
    : capacity_(capacity),
      uses_decode_kernel_(
          DecodeAttentionSupports(capacity.kv, RowsOf(capacity), capacity.num_heads, target)) {
  if (!uses_decode_kernel_) return;
  launch_ = PlanDecodeLaunch(capacity.kv, capacity.num_heads, target);
  offsets_.num_ctas = launch_.num_ctas;
}

Result<std::unique_ptr<CudaAttentionPlan>> CudaAttentionPlan::Create(Device* device,
                                                                     const AttentionCapacity& capacity,
                                                                     const CudaTarget& target,
                                                                     bool flash_attention3) {
  const KvShape& kv = capacity.kv;
  TANDEM_CHECK(AttentionFallbackSupports(kv, capacity.num_heads),
               "attention plan: {} heads, {} kv heads of {} ({})", capacity.num_heads, kv.num_kv_heads,
               kv.head_dim, KvFormatName(kv.format));
  TANDEM_CHECK(capacity.sliding_window >= 0 && capacity.sliding_window <= std::numeric_limits<int32_t>::max(),
               "attention plan: window {}", capacity.sliding_window);
  std::unique_ptr<CudaAttentionPlan> plan(new CudaAttentionPlan(capacity, target));
  const auto allocate = [&](size_t size_bytes, MemoryKind kind, std::string_view what,
                            Buffer* buffer) -> Status {
    if (size_bytes == 0) return {};
    TANDEM_ASSIGN_OR_RETURN(*buffer, device->Allocate(size_bytes, kind, what));
    return {};
  };
  const int64_t num_words =
      plan->offsets_.tables(static_cast<int32_t>(capacity.max_sequences)) + capacity.max_blocks;
  // The line has to be counted in 32 bits too.
  TANDEM_CHECK((capacity.max_blocks + 1) * kv.num_kv_heads *
                           (kv.block_size / kDecodeTileTokens + 1 + kDecodeHeadPlaces) <
                       std::numeric_limits<int32_t>::max() &&
                   num_words < std::numeric_limits<int32_t>::max(),
               "attention plan: {} blocks of {} tokens, {} kv heads", capacity.max_blocks, kv.block_size,
               kv.num_kv_heads);
  const size_t plan_bytes = static_cast<size_t>(num_words) * sizeof(int32_t);
  TANDEM_ASSIGN_OR_RETURN(plan->staging_,
                          StagingPair::Allocate(device, plan_bytes, "staging of an attention plan"));
  TANDEM_RETURN_IF_ERROR(allocate(plan_bytes, MemoryKind::kDevice, "an attention plan", &plan->words_));
  if (plan->uses_decode_kernel_) {
    TANDEM_RETURN_IF_ERROR(allocate(plan->launch_.partial_bytes, MemoryKind::kDevice,
                                    "partial results of attention", &plan->partials_));
    TANDEM_RETURN_IF_ERROR(allocate(plan->launch_.counter_bytes, MemoryKind::kDevice, "counters of attention",
                                    &plan->counters_));
    PrepareDecodeAttention(kv, RowsOf(capacity), capacity.num_heads, plan->launch_);
  }
  if (PrefillAttention::Supports(kv, RowsOf(capacity), capacity.num_heads, target)) {
    TANDEM_ASSIGN_OR_RETURN(plan->prefill_, PrefillAttention::Create(device, capacity, RowsOf(capacity),
                                                                     target, flash_attention3));
  }
  return plan;
}

void CudaAttentionPlan::CheckSequence(const AttentionBatch& batch, const AttentionSequence& sequence) const {
  TANDEM_CHECK(sequence.num_rows >= 1 && sequence.row_begin >= 0 &&
                   sequence.row_begin + sequence.num_rows <= batch.num_rows &&
                   sequence.context_len >= sequence.num_rows,
               "attention: rows [{}, +{}) of {}, context {}", sequence.row_begin, sequence.num_rows,
               batch.num_rows, sequence.context_len);
  TANDEM_CHECK(
      static_cast<int64_t>(sequence.block_table.size()) * capacity_.kv.block_size >= sequence.context_len,
      "attention: {} blocks of {} tokens, context {}", sequence.block_table.size(), capacity_.kv.block_size,
      sequence.context_len);
}

void CudaAttentionPlan::FindPrefills(const AttentionBatch& batch) {
  const std::vector<AttentionSequence>& sequences = batch.sequences;
  const auto is_prefill = [](const AttentionSequence& sequence) { return sequence.num_rows > 1; };
  const auto first = std::find_if(sequences.begin(), sequences.end(), is_prefill);
  const auto end = std::find_if(sequences.rbegin(), sequences.rend(), is_prefill).base();
  prefill_begin_ = first == sequences.end() ? 0 : first - sequences.begin();
  prefill_end_ = first == sequences.end() ? 0 : end - sequences.begin();
  prefills_follow_each_other_ = true;
  for (int64_t i = prefill_begin_; i + 1 < prefill_end_; ++i) {
    const AttentionSequence& sequence = sequences[static_cast<size_t>(i)];
    if (sequence.row_begin + sequence.num_rows != sequences[static_cast<size_t>(i) + 1].row_begin) {
      prefills_follow_each_other_ = false;
    }
  }
}

bool CudaAttentionPlan::IsPrefill(const AttentionBatch& batch, int64_t sequence) const {
  if (sequence < prefill_begin_ || sequence >= prefill_end_) return false;
  return (prefill_ != nullptr && prefills_follow_each_other_) ||
         batch.sequences[static_cast<size_t>(sequence)].num_rows > 1;
}

void CudaAttentionPlan::Plan(CudaStream& stream, const AttentionBatch& batch) {
  const auto num_sequences = static_cast<int64_t>(batch.sequences.size());
  TANDEM_CHECK(num_sequences <= capacity_.max_sequences && batch.num_rows <= capacity_.max_rows,
               "attention plan: {} sequences of at most {}, {} rows of at most {}", num_sequences,
               capacity_.max_sequences, batch.num_rows, capacity_.max_rows);
  FindPrefills(batch);
  num_rows_ = batch.num_rows;
  num_sequences_ = num_sequences;
  num_decodes_ = 0;

  int32_t* const words = staging_.Next();
  auto* planned = reinterpret_cast<AttentionPlanSequence*>(words + offsets_.sequences());
  int32_t table = offsets_.tables(static_cast<int32_t>(num_sequences));
  int64_t num_blocks = 0;
  int32_t place = 0;
  int32_t row = 0;
  const auto window = static_cast<int32_t>(capacity_.sliding_window);
  const auto num_kv_heads = static_cast<int32_t>(capacity_.kv.num_kv_heads);
  const auto add = [&](const AttentionSequence& sequence, bool is_decode) {
    CheckSequence(batch, sequence);
    const auto context_len = static_cast<int32_t>(sequence.context_len);
    *planned++ = {.row_begin = static_cast<int32_t>(sequence.row_begin),
                  .context_len = context_len,
                  .table_begin = table,
                  .place_begin = place,
                  .num_rows = static_cast<int32_t>(sequence.num_rows),
                  .rows_before = row,
                  .unused = {}};
    if (is_decode) place += (NumDecodeTiles(context_len, window) + kDecodeHeadPlaces) * num_kv_heads;
    row += static_cast<int32_t>(sequence.num_rows);
    const auto used_blocks =
        static_cast<size_t>((sequence.context_len + capacity_.kv.block_size - 1) / capacity_.kv.block_size);
    num_blocks += static_cast<int64_t>(used_blocks);
    TANDEM_CHECK(num_blocks <= capacity_.max_blocks, "attention plan: more than {} blocks",
                 capacity_.max_blocks);
    std::memcpy(words + table, sequence.block_table.data(), used_blocks * sizeof(int32_t));
    table += static_cast<int32_t>(used_blocks);
  };
  for (int64_t i = 0; i < num_sequences; ++i) {
    if (IsPrefill(batch, i)) continue;
    add(batch.sequences[static_cast<size_t>(i)], true);
    ++num_decodes_;
  }
  for (int64_t i = prefill_begin_; i < prefill_end_; ++i) {
    if (IsPrefill(batch, i)) add(batch.sequences[static_cast<size_t>(i)], false);
  }
  *planned = {.row_begin = 0,
              .context_len = 0,
              .table_begin = 0,
              .place_begin = place,
              .num_rows = 0,
              .rows_before = row,
              .unused = {}};

  // That many before another CTA is worth its merging.
  constexpr int kMinPlacesPerCta = 4;
  const int32_t num_ctas = std::max<int32_t>(1, offsets_.num_ctas);
  const int32_t places_per_cta = std::max(kMinPlacesPerCta, (place + num_ctas - 1) / num_ctas);
  *reinterpret_cast<PlanHeader*>(words) = {.num_decodes = static_cast<int32_t>(num_decodes_),
                                           .num_sequences = static_cast<int32_t>(num_sequences),
                                           .num_rows = row,
                                           .num_places = place,
                                           .places_per_cta = places_per_cta,
                                           .unused = {}};
  const auto* first = reinterpret_cast<const AttentionPlanSequence*>(words + offsets_.sequences());
  int32_t* first_sequences = words + offsets_.first_sequences();
  int32_t sequence = 0;
  for (int32_t cta = 0; cta < offsets_.num_ctas; ++cta) {
    const int64_t begin = static_cast<int64_t>(cta) * places_per_cta;
    while (sequence + 1 < num_decodes_ && first[sequence + 1].place_begin <= begin) ++sequence;
    first_sequences[cta] = sequence;
  }
  stream.Copy(words_.data(), words, static_cast<size_t>(table) * sizeof(int32_t));

  if (num_decodes_ < num_sequences_ && prefill_ != nullptr && prefills_follow_each_other_) {
    prefill_->Plan(
        stream,
        std::span(batch.sequences)
            .subspan(static_cast<size_t>(prefill_begin_), static_cast<size_t>(prefill_end_ - prefill_begin_)),
        capacity_.kv, capacity_.num_heads, capacity_.sliding_window);
  }
}

void CudaAttentionPlan::CheckArgs(const AttentionArgs& args) const {
  const KvShape& shape = args.kv.shape;
  TANDEM_CHECK(
      shape == capacity_.kv && args.num_heads == capacity_.num_heads &&
          args.sliding_window == capacity_.sliding_window,
      "attention: {} heads, {} kv heads of {} ({}), blocks of {}, window {}; planned for {}, {} of {} "
      "({}), {}, {}",
      args.num_heads, shape.num_kv_heads, shape.head_dim, KvFormatName(shape.format), shape.block_size,
      args.sliding_window, capacity_.num_heads, capacity_.kv.num_kv_heads, capacity_.kv.head_dim,
      KvFormatName(capacity_.kv.format), capacity_.kv.block_size, capacity_.sliding_window);
  TANDEM_CHECK(args.kv.heads_per_part == 0 || args.kv.heads_per_part == shape.num_kv_heads,
               "attention: {} heads a part", args.kv.heads_per_part);
  TANDEM_CHECK(args.q.cols == args.num_heads * shape.head_dim && args.out.cols == args.q.cols &&
                   args.q.rows >= num_rows_ && args.out.rows >= num_rows_,
               "attention: q [{}, {}], out [{}, {}], {} heads of {}, {} rows", args.q.rows, args.q.cols,
               args.out.rows, args.out.cols, args.num_heads, shape.head_dim, num_rows_);
  const DType rows = RowsOf(capacity_);
  TANDEM_CHECK((args.q.dtype == DType::kF32 || args.q.dtype == rows) &&
                   (args.out.dtype == DType::kF32 || args.out.dtype == rows),
               "attention: q {}, out {}, cache {}, planned for {}", DTypeName(args.q.dtype),
               DTypeName(args.out.dtype), KvFormatName(shape.format), DTypeName(rows));
}

void CudaAttentionPlan::Run(CudaStream& stream, const AttentionArgs& args) const {
  CheckArgs(args);
  const auto* words = words_.as<const int32_t>();
  const DType rows = RowsOf(capacity_);
  const bool same_dtype = args.q.dtype == rows && args.out.dtype == rows;
  const bool only_decodes = num_decodes_ == num_sequences_;
  const bool decodes_by_kernel = uses_decode_kernel_ && same_dtype;
  const bool prefills_by_kernel = prefill_ != nullptr && prefills_follow_each_other_ && same_dtype;
  if (decodes_by_kernel && (num_decodes_ > 0 || only_decodes)) {
    DecodeAttention(stream, args, launch_, words, partials_.data(), counters_.data());
  }
  if (prefills_by_kernel && !only_decodes) prefill_->Run(stream, args);
  const bool decodes_left = !decodes_by_kernel && (num_decodes_ > 0 || only_decodes);
  const bool prefills_left = !prefills_by_kernel && !only_decodes;
  if (decodes_left || prefills_left) {
    AttentionFallback(stream, args, words, offsets_.num_ctas,
                      {.decodes = decodes_left, .prefills = prefills_left});
  }
}

size_t CudaOps::AttentionBytes(const AttentionCapacity& capacity) const {
  const DType rows = RowsOf(capacity);
  if (!PrefillAttention::Supports(capacity.kv, rows, capacity.num_heads, target_)) return 0;
  return PrefillAttention::StagedBytes(capacity, rows);
}

Result<std::unique_ptr<AttentionPlan>> CudaOps::CreateAttentionPlan(const AttentionCapacity& capacity) {
  // Attributes of kernels are set, without a stream.
  UseCudaGpu(*device_);
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<CudaAttentionPlan> plan,
                          CudaAttentionPlan::Create(device_, capacity, target_, options_.flash_attention3));
  return std::unique_ptr<AttentionPlan>(std::move(plan));
}

void CudaOps::PlanAttention(Stream& stream, const AttentionBatch& batch, AttentionPlan* plan) {
  auto* cuda = dynamic_cast<CudaAttentionPlan*>(plan);
  TANDEM_CHECK(cuda != nullptr, "attention: not a plan of the cuda backend");
  cuda->Plan(AsCudaStream(stream), batch);
}

void CudaOps::PagedAttention(Stream& stream, const AttentionArgs& args) {
  PlanOf(args.plan).Run(AsCudaStream(stream), args);
}

}  // namespace tandem
