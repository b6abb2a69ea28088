#include "execute/executor_options.h"

namespace tandem {

ExecutorOptions ExecutorOptions::Complete(bool cpu_tier) const {
  ExecutorOptions complete = *this;
  if (complete.max_cpu_rows == 0) complete.max_cpu_rows = complete.max_rows;
  if (complete.max_flight_rows == 0) complete.max_flight_rows = complete.max_cpu_rows;
  if (!cpu_tier) complete.max_rider_rows = 0;
  return complete;
}

}  // namespace tandem
