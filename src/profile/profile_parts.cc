#include "profile/profile_parts.h"

namespace tandem {

std::vector<ShardParts> ShardsOf(const ProfileParts& parts) {
  std::vector<ShardParts> shards = {{.device = parts.device,
                                     .ops = parts.ops,
                                     .decoder = parts.decoder,
                                     .memory = parts.memory,
                                     .cpu_attention = parts.cpu_attention,
                                     .compute = parts.compute,
                                     .rows = parts.rows,
                                     .plan = parts.plan,
                                     .logits = parts.logits}};
  shards.insert(shards.end(), parts.others.begin(), parts.others.end());
  return shards;
}

void OnAllShards(const ProfileParts& parts, const std::function<void(size_t rank)>& work) {
  if (parts.others.empty()) return work(0);
  parts.on_all(work);
}

}  // namespace tandem
