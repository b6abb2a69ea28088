// From instruction set to kernels.
#include "ops/host/attention_kernels.h"
#include "ops/host/linear_kernels.h"
#include "ops/host/row_kernels.h"

namespace tandem {

const LinearKernels& LinearKernelsFor(CpuIsa isa) {
#if defined(__x86_64__)
  if (isa == CpuIsa::kAvx512Bf16) return LinearKernelsAvx512Bf16();
  if (isa == CpuIsa::kAvx512) return LinearKernelsAvx512();
  if (isa == CpuIsa::kAvx2) return LinearKernelsAvx2();
#endif
  static_cast<void>(isa);
  return LinearKernelsPortable();
}

const AttentionKernels& AttentionKernelsFor(CpuIsa isa) {
#if defined(__x86_64__)
  if (isa == CpuIsa::kAvx512Bf16) return AttentionKernelsAvx512Bf16();
  if (isa == CpuIsa::kAvx512) return AttentionKernelsAvx512();
  if (isa == CpuIsa::kAvx2) return AttentionKernelsAvx2();
#endif
  static_cast<void>(isa);
  return AttentionKernelsPortable();
}

const RowKernels& RowKernelsFor(CpuIsa isa) {
#if defined(__x86_64__)
  if (isa == CpuIsa::kAvx512Bf16 || isa == CpuIsa::kAvx512) return RowKernelsAvx512();
  if (isa == CpuIsa::kAvx2) return RowKernelsAvx2();
#endif
  static_cast<void>(isa);
  return RowKernelsPortable();
}

}  // namespace tandem
