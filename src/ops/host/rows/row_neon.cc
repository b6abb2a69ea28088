#include "ops/host/rows/row_microkernels.h"

namespace tandem {

const RowKernels& RowKernelsNeon() {
  return kRowKernels;
}

}  // namespace tandem
