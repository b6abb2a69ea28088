#include "ops/host/row_microkernels.h"

namespace tandem {

const RowKernels& RowKernelsAvx512() {
  return kRowKernels;
}

}  // namespace tandem
