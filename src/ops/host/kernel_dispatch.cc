// From instruction set to kernels.
#include "ops/host/linear/linear_kernels.h"
#include "ops/host/linear/quantized_kernels.h"
#include "ops/host/rows/row_kernels.h"

namespace tandem {

const LinearKernels& LinearKernelsFor(CpuIsa isa) {
#if defined(__x86_64__)
  if (isa >= CpuIsa::kAvx512Bf16) return LinearKernelsAvx512Bf16();
  if (isa == CpuIsa::kAvx512) return LinearKernelsAvx512();
  if (isa == CpuIsa::kAvx2) return LinearKernelsAvx2();
#elif defined(__aarch64__)
  if (isa == CpuIsa::kNeonBf16) return LinearKernelsNeonBf16();
  if (isa >= CpuIsa::kNeon) return LinearKernelsNeon();
#endif
  static_cast<void>(isa);
  return LinearKernelsPortable();
}

const QuantizedKernels& QuantizedKernelsFor(CpuIsa isa) {
#if defined(__x86_64__)
  if (isa == CpuIsa::kAmx) return QuantizedKernelsAmx();
  if (isa >= CpuIsa::kAvx512Bf16) return QuantizedKernelsAvx512Bf16();
  if (isa == CpuIsa::kAvx512) return QuantizedKernelsAvx512();
  if (isa == CpuIsa::kAvx2) return QuantizedKernelsAvx2();
#elif defined(__aarch64__)
  if (isa == CpuIsa::kNeonBf16) return QuantizedKernelsNeonBf16();
  if (isa == CpuIsa::kNeonDot) return QuantizedKernelsNeonDot();
  if (isa == CpuIsa::kNeon) return QuantizedKernelsNeon();
#endif
  static_cast<void>(isa);
  return QuantizedKernelsPortable();
}

const QuantizedKernels& Fp8KernelsFor(CpuIsa isa) {
#if defined(__x86_64__)
  if (isa >= CpuIsa::kAvx512Bf16) return Fp8KernelsAvx512Bf16();
  if (isa == CpuIsa::kAvx512) return Fp8KernelsAvx512();
  if (isa == CpuIsa::kAvx2) return Fp8KernelsAvx2();
#elif defined(__aarch64__)
  if (isa >= CpuIsa::kNeon) return Fp8KernelsNeon();
#endif
  static_cast<void>(isa);
  return Fp8KernelsPortable();
}

const RowKernels& RowKernelsFor(CpuIsa isa) {
#if defined(__x86_64__)
  if (isa >= CpuIsa::kAvx512) return RowKernelsAvx512();
  if (isa == CpuIsa::kAvx2) return RowKernelsAvx2();
#elif defined(__aarch64__)
  if (isa >= CpuIsa::kNeon) return RowKernelsNeon();
#endif
  static_cast<void>(isa);
  return RowKernelsPortable();
}

}  // namespace tandem
