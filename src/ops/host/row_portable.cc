#include "ops/host/row_microkernels.h"

namespace tandem {

const RowKernels& RowKernelsPortable() {
  return kRowKernels;
}

}  // namespace tandem
