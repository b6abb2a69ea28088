// What the parts of an iteration cost on this machine, as the scheduler sees it (NEO section 3.2: T_l, T_ga,
// T_ca).
#pragma once

#include <array>
#include <cstdint>

#include "base/row_tiles.h"

namespace tandem {

// Iterations by what they do for the cpu tier.
enum class IterationKind {
  kGpuOnly,    // nothing
  kPipelined,  // the GPU waits for CPU attention (NEO section 3.1)
  kRiding,     // cohorts ride, nobody waits (APEX section 3.3)
};

inline constexpr int kNumIterationKinds = 3;
// The strategies that make iterations of each kind.
inline constexpr std::array<const char*, kNumIterationKinds> kIterationKindNames = {"gpu-only", "asymmetric",
                                                                                    "async"};

// Microseconds; one layer unless a name says otherwise. Every cost of nothing is 0, except that an
// iteration which samples nothing has its start all the same, and none falls when its arguments grow.
// Thread-safe unless a class says otherwise.
class LayerCosts {
 public:
  virtual ~LayerCosts() = default;
  virtual int64_t num_layers() const = 0;
  // T_l: pre- and post-projection of a sub-batch of num_tokens rows.
  virtual double LinearUs(int64_t num_tokens) const = 0;
  // T_ga of decodes: num_rows rows that together read kv_tokens tokens of the gpu tier.
  virtual double GpuDecodeAttentionUs(int64_t num_rows, int64_t kv_tokens) const = 0;
  // T_ga of one prefill chunk: num_tokens rows, the last of which sees context_len tokens.
  virtual double PrefillAttentionUs(int64_t num_tokens, int64_t context_len) const = 0;
  // T_ca: num_rows rows that together read kv_tokens tokens of the cpu tier, without the exchange. What they
  // read for several of them counts as perf/shared_reads.h says.
  virtual double CpuAttentionUs(int64_t num_rows, int64_t kv_tokens) const = 0;
  // What CPU attention takes for tokens that num_rows rows, at most kRowsPerGroup, read at once, in reads for
  // one row: 1 for one, and for no number more than that. By default nothing is gained.
  virtual double SharedReadCost(int64_t num_rows) const { return static_cast<double>(num_rows); }
  // Q/K/V of num_rows cpu rows to the host and their O back, flags included.
  virtual double ExchangeUs(int64_t num_rows) const = 0;
  // KV of num_tokens tokens of one layer from one tier to the other.
  virtual double SwapUs(int64_t num_tokens) const = 0;
  // Everything of an iteration that is not of one layer: start, embedding, logits and sampling of num_sampled
  // rows.
  virtual double OutsideLayersUs(int64_t num_sampled) const = 0;
  // More, of a layer of an iteration that waits for CPU attention: what handing its rows over takes that
  // neither side has.
  virtual double HandOverUs() const { return 0; }
  // Times what the other costs say of such an iteration (perf/time_model.h): what it takes.
  virtual double IterationFactor(IterationKind /*kind*/) const { return 1; }
  // Of the linear operations.
  virtual const RowTiles& row_tiles() const = 0;
};

}  // namespace tandem
