#include "ops/host/rows/row_microkernels.h"

namespace tandem {

const RowKernels& RowKernelsAvx512() {
  return kRowKernels;
}

}  // namespace tandem
