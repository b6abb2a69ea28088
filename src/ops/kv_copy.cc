#include "ops/kv_copy.h"

#include <string_view>

#include "base/check.h"

namespace tandem {
namespace {

void CheckBlocks(std::string_view side, std::span<const int32_t> blocks, int64_t num_blocks) {
  for (const int32_t block : blocks) {
    TANDEM_CHECK(block >= 0 && block < num_blocks, "copy_kv: {} block {} of {}", side, block, num_blocks);
  }
}

}  // namespace

KvParts PartsOf(const KvLayerView& view) {
  const int64_t num_heads = view.shape.num_kv_heads;
  const int64_t heads_per_part = view.heads_per_part > 0 ? view.heads_per_part : num_heads;
  return {(num_heads + heads_per_part - 1) / heads_per_part, heads_per_part};
}

void CheckCopyKv(const CopyKvArgs& args) {
  const KvShape& gpu = args.gpu.shape;
  const KvShape& cpu = args.cpu.shape;
  TANDEM_CHECK(
      gpu.block_size == cpu.block_size && gpu.num_kv_heads == cpu.num_kv_heads &&
          gpu.head_dim == cpu.head_dim && gpu.BlockBytes() > 0,
      "copy_kv: gpu blocks {} of {} tokens, {} heads of {}; cpu blocks {} of {} tokens, {} heads of {}",
      KvFormatName(gpu.format), gpu.block_size, gpu.num_kv_heads, gpu.head_dim, KvFormatName(cpu.format),
      cpu.block_size, cpu.num_kv_heads, cpu.head_dim);
  TANDEM_CHECK(PartsOf(args.gpu).num_parts == 1, "copy_kv: the gpu blocks lie in {} parts",
               PartsOf(args.gpu).num_parts);
  TANDEM_CHECK(args.gpu_blocks.size() == args.cpu_blocks.size(), "copy_kv: {} gpu blocks, {} cpu blocks",
               args.gpu_blocks.size(), args.cpu_blocks.size());
  CheckBlocks("gpu", args.gpu_blocks, args.gpu.num_blocks);
  CheckBlocks("cpu", args.cpu_blocks, args.cpu.num_blocks);
}

}  // namespace tandem
