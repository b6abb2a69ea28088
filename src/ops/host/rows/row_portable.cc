#include "ops/host/rows/row_microkernels.h"

namespace tandem {

const RowKernels& RowKernelsPortable() {
  return kRowKernels;
}

}  // namespace tandem
