#include "ops/host/rows/row_microkernels.h"

namespace tandem {

const RowKernels& RowKernelsAvx2() {
  return kRowKernels;
}

}  // namespace tandem
